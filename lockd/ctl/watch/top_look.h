/* SPDX-License-Identifier: Apache-2.0
 *
 * top_look.h: takes looks at the daemon, and keeps their history.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_LOOK_H
#define GS_LOCKD_CTL_WATCH_TOP_LOOK_H

#include "lockd/ctl/watch/top.h"

/* Takes the next look. 0; or -errno with ctl->err, then the last answer stays. */
int top_look_take(struct top *top);
void top_look_deinit(struct top *top);
/* The history of a device; NULL: there is none. */
const struct top_history *top_look_history(const struct top *top, const uint8_t *uuid);

#endif
