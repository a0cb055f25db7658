/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h: the states of all programs in the last minutes, for the page's timeline.
 */
#ifndef GS_LOCKD_CTL_WATCH_HISTORY_H
#define GS_LOCKD_CTL_WATCH_HISTORY_H

#include "lockd/ctl/ctl.h"

#define HISTORY_SAMPLES  300 /* of one second each */
#define HISTORY_PROGRAMS 256 /* in one sample; further programs are left out */

struct history;

/* NULL: no memory. */
struct history *history_new(void);
void history_free(struct history *history);
/* Adds a sample of the present states. time: seconds since the epoch. */
void history_add(struct history *history, int64_t time, const struct ctl_answer *answer);
/* An array, the oldest sample first: [{"time": s, "programs": [{"pid", "name", "device",
 * "state", "resident", "on_host"}]}]. NULL: no memory. */
struct json_t *history_json(const struct history *history);

#endif
