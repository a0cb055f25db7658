/* SPDX-License-Identifier: Apache-2.0
 *
 * status_table.h: the table of programs that `gpusharectl status` prints.
 */
#pragma once

#include "lockd/ctl/ctl.h"
#include "lockd/ctl/table.h"

/* Asks for the status and prints it: as JSON, or by that function. without: also while no daemon
 * runs. Returns the exit code. */
enum ctl_exit ctl_status_show(struct ctl *ctl, bool json, bool without,
                              void (*print)(const struct ctl_answer *answer));

/* The notes of a program: its unusual properties and remarks, in a few words, with commas
 * between. */
void ctl_program_notes(const struct ctl_answer *answer, size_t index, char *buffer,
                       size_t size);

/* Writes a number of bytes that may be unknown into a cell. */
void ctl_put_bytes(uint64_t bytes, char *cell);
/* Fills the row of a process that is not a program: the first four cells, which are its process
 * id, user, name and state in every table, and those with the numbers external and busy. */
void ctl_outsider_fill(const struct ctl_outsider *outsider, struct ctl_row *row,
                       size_t external, size_t busy);
