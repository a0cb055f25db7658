/* SPDX-License-Identifier: Apache-2.0
 *
 * help.c: rows of --help (help.h). No state.
 */
#include "common/help.h"

#include <string.h>

void gs_help_row(FILE *to, const char *typed, unsigned column, const char *help,
                 const char *initial)
{
    if (strlen(typed) + 1 > column)
        fprintf(to, "%s\n%*s", typed, (int)column, "");
    else
        fprintf(to, "%-*s", (int)column, typed);
    fputs(help, to);
    if (initial != NULL && initial[0] != '\0')
        fprintf(to, " [%s]", initial);
    putc('\n', to);
}
