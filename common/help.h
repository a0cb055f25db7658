/* SPDX-License-Identifier: Apache-2.0
 *
 * help.h: one row of a tool's --help: the words to type, and their effect.
 */
#ifndef GS_COMMON_HELP_H
#define GS_COMMON_HELP_H

#include <stdio.h>

/* Writes `typed`, then `help` at that column (counted from 0), in the next line if `typed` is
 * too long. initial: the default, shown in brackets; NULL or "": none. */
void gs_help_row(FILE *to, const char *typed, unsigned column, const char *help,
                 const char *initial);

#endif
