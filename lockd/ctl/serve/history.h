/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h: what every program did in the last minutes, for the page's timeline.
 */
#ifndef GS_LOCKD_CTL_SERVE_HISTORY_H
#define GS_LOCKD_CTL_SERVE_HISTORY_H

#include "lockd/ctl/ctl.h"

#define HISTORY_SAMPLES  300 /* of one second each */
#define HISTORY_PROGRAMS 256 /* in one sample; more are left out */

struct history;

/* NULL: no memory. */
struct history *history_new(void);
void history_free(struct history *history);
/* Adds the state of everything at this moment (time: seconds since the epoch). */
void history_add(struct history *history, int64_t time, const struct ctl_answer *answer);
/* An array, oldest sample first: [{"time": s, "programs": [{"pid", "name", "device", "state", "resident", "on_host"}]}]. NULL: no
 * memory. */
struct json_t *history_json(const struct history *history);

#endif
