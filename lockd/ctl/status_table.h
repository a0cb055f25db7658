/* SPDX-License-Identifier: Apache-2.0
 *
 * status_table.h: the table of programs that `gpusharectl status` prints.
 */
#ifndef GS_LOCKD_CTL_STATUS_TABLE_H
#define GS_LOCKD_CTL_STATUS_TABLE_H

#include "lockd/ctl/ctl.h"

struct ctl_layout {
    int columns; /* columns of the terminal; 0: lines may have any length */
    bool wide; /* all columns of the table; false: those that fit on a terminal of 80 columns */
    bool colour; /* with escape sequences */
};

/* The properties of standard output. */
struct ctl_layout ctl_layout_find(void);
void ctl_table_heading(const struct ctl_layout *layout);
/* Prints the program at that index. */
void ctl_table_row(const struct ctl_layout *layout, const struct ctl_answer *answer,
                   size_t index);

#endif
