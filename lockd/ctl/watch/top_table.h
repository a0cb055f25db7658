/* SPDX-License-Identifier: Apache-2.0
 *
 * top_table.h: the programs of `gpusharectl top` as a table.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_TABLE_H
#define GS_LOCKD_CTL_WATCH_TOP_TABLE_H

#include "lockd/ctl/watch/top.h"

#include <stdint.h>

/* Fills top->table: a row for each of top->lines, then one for each outsider; for so many columns
 * of the terminal. False: no memory. */
bool top_table_fill(struct top *top, int columns);
/* "1.5 GiB/s" */
const char *top_table_rate(double bytes, char *buffer, size_t size);

#endif
