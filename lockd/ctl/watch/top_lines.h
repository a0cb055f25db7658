/* SPDX-License-Identifier: Apache-2.0
 *
 * top_lines.h: the programs of a device that are shown, and their order.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_LINES_H
#define GS_LOCKD_CTL_WATCH_TOP_LINES_H

#include "lockd/ctl/watch/top.h"

/* The name of an order, for the footer. */
const char *top_lines_order(enum top_order order);
/* Makes the lines of all programs that are shown, device by device. False: no memory. */
bool top_lines_fill(struct top *top);
/* The line that keys act on: the program that was chosen, else the first; NULL: there is none. */
const struct top_line *top_lines_chosen(const struct top *top);
/* Chooses the line so many lines below (negative: above), within the existing lines. */
void top_lines_move(struct top *top, int by);

#endif
