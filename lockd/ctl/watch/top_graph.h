/* SPDX-License-Identifier: Apache-2.0
 *
 * top_graph.h: a history as a line of bars, and memory as a bar, in characters.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_GRAPH_H
#define GS_LOCKD_CTL_WATCH_TOP_GRAPH_H

#include <stddef.h>
#include <stdint.h>

/* Draws values from 0 to 1, one column each; below 0: unknown, a blank. Uses block elements if
 * the locale is UTF-8, else ASCII. size: of buffer, at least 3 bytes a column and 1. Returns
 * buffer. */
const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size);

/* "[######+++---.....]": of `total`: on the card, pinned there, on the host (what does not fit
 * into the bar is cut). buffer: width + 3 bytes. */
const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer);

#endif
