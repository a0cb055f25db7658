/* SPDX-License-Identifier: Apache-2.0
 *
 * help.h: one row of a tool's --help: what is typed, and what it does.
 */
#ifndef GS_COMMON_HELP_H
#define GS_COMMON_HELP_H

#include <stdio.h>

/* Writes `typed`, then `help` at that column (counted from 0), which is in the next line where `typed`
 * is too long. initial: the default, shown in brackets; NULL or "": none. */
void gs_help_row(FILE *to, const char *typed, unsigned column, const char *help,
                 const char *initial);

#endif
