/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.h: the programs of `gpusharectl top` as a table, and the keys that act on them.
 */
#pragma once

#include "lockd/ctl/watch/top.h"

/* The name of an order, for the footer. */
const char *top_lines_order(enum top_order order);
/* Makes the lines of all programs that are shown, device by device. False: no memory. */
bool top_lines_fill(struct top *top);
/* The line that keys act on: the program that was chosen, else the first; NULL: there is
 * none. */
const struct top_line *top_lines_chosen(const struct top *top);

/* Draws values from 0 to 1, one column each; below 0: unknown, a blank. Uses block elements if
 * the locale is UTF-8, else ASCII. size: of buffer, at least 3 bytes a column and 1. Returns
 * buffer. */
const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size);

/* "[######+++---.....]": of `total`: on the card, pinned there, on the host (what does not fit
 * into the bar is cut). buffer: width + 3 bytes. */
const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer);

/* Fills top->table: a row for each of top->lines, then one for each outsider; for so many
 * columns of the terminal. False: no memory. */
bool top_table_fill(struct top *top, int columns);
/* "1.5 GiB/s" */
const char *top_table_rate(double bytes, char *buffer, size_t size);

/* Opens a descriptor of a program's process, to be closed by the caller. -errno: the
 * process has ended, cannot be seen from here, or another process has its number. */
int top_process_open(const struct gs_wire_client *client, struct gs_err *err);
/* Sends the signal. 0 or -errno. */
int top_process_signal(int pidfd, int number, struct gs_err *err);
/* A line of the help, in `buffer` or elsewhere; NULL: there are no more. */
const char *top_keys_help(size_t line, char *buffer, size_t size);
/* The key at that place of the footer, as "p pause"; NULL: there are no more. */
const char *top_keys_footer(size_t place);
/* Handles a key as getch() returns it; ERR: none came in time. False: the user wants to
 * quit. */
bool top_keys_take(struct top *top, int key);
