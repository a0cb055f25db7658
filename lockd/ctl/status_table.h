/* SPDX-License-Identifier: Apache-2.0
 *
 * status_table.h: the table of programs that `gpusharectl status` prints.
 */
#pragma once

#include "lockd/ctl/ctl.h"
#include "lockd/ctl/table.h"

struct ctl_layout {
    int columns; /* columns of the terminal; 0: lines may have any length */
    bool colour; /* with escape sequences */
};

/* The properties of standard output. */
struct ctl_layout ctl_layout_find(void);

/* Makes the table of all programs and all other processes, of all devices, so that their columns
 * stand below each other. To be cleared by the caller. 0 or -ENOMEM. */
int ctl_status_table(struct ctl_table *table, const struct ctl_layout *layout,
                     const struct ctl_answer *answer);
void ctl_status_heading(const struct ctl_table *table, const struct ctl_layout *layout);
/* Prints the program at that index, with its notes. */
void ctl_status_row(const struct ctl_table *table, const struct ctl_layout *layout,
                    const struct ctl_answer *answer, size_t index);
/* Prints the outsider at that index. */
void ctl_status_outsider(const struct ctl_table *table, const struct ctl_layout *layout,
                         const struct ctl_answer *answer, size_t index);

/* The notes of a program: its unusual properties and remarks, in a few words, with commas
 * between. */
void ctl_program_notes(const struct ctl_answer *answer, size_t index, char *buffer,
                       size_t size);
/* Prints notes in lines of their own, broken between two notes. */
void ctl_print_notes(const struct ctl_layout *layout, int indent, const char *notes);

/* Writes a number of bytes that may be unknown into a cell. */
void ctl_put_bytes(uint64_t bytes, char *cell);
/* Fills the row of a process that is not a program: the first four cells, which are its process
 * id, user, name and state in every table, and those with the numbers external and busy. */
void ctl_outsider_fill(const struct ctl_outsider *outsider, struct ctl_row *row,
                       size_t external, size_t busy);
