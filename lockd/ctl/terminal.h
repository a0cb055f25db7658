/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.h: the width and colours of standard output, and figures that line up.
 */
#ifndef GS_LOCKD_CTL_TERMINAL_H
#define GS_LOCKD_CTL_TERMINAL_H

#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stddef.h>

/* The colours of a program's conditions; the numbers are those of ncurses' colour pairs in top. */
enum ctl_colour {
    CTL_PLAIN = 0,
    CTL_RUNS,
    CTL_WAITS,
    CTL_MOVES,
    CTL_TROUBLE,
    CTL_HEAD,
    CTL_GREY, /* what is not under control */
};

enum ctl_colour ctl_condition_colour(uint32_t condition);

/* The columns of the terminal at standard output; 0: it is no terminal, so lines may have any
 * length. */
int ctl_terminal_columns(void);
/* Whether colours are wanted: a terminal, which is not dumb, and no NO_COLOR in the environment. */
bool ctl_terminal_colour(void);
/* The same, for a terminal that is known to be a terminal. */
bool ctl_colour_wanted(void);
/* A grey that is read on black (4.6 : 1) and on white (4.5 : 1); of 256 colours. */
#define CTL_GREY_NUMBER 243
/* The escape sequence that begins that colour; "" for CTL_PLAIN. */
const char *ctl_colour_start(enum ctl_colour colour);
#define CTL_COLOUR_END "\x1b[0m"

/* A figure such as "7.0 GiB" or "1.5 s" at the right end of `width` columns, so that numbers end
 * and units begin in the same column. unit_width: of the longest unit. Returns buffer. */
const char *ctl_align(const char *text, int width, int unit_width, char *buffer, size_t size);
#define CTL_UNIT_WIDTH 3 /* of "GiB" and "min" */

#endif
