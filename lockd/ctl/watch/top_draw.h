/* SPDX-License-Identifier: Apache-2.0
 *
 * top_draw.h: the screen of `gpusharectl top`.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_DRAW_H
#define GS_LOCKD_CTL_WATCH_TOP_DRAW_H

#include "lockd/ctl/watch/top.h"

/* Draws everything anew, scrolled so that the chosen line is on the screen. */
void top_draw(struct top *top);
/* Sets up the colours, if they are wanted and the terminal has them. */
void top_draw_colours(struct top *top);

#endif
