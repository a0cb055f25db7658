/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: decides anew after an event.
 */
#pragma once

#include "lockd/sched/state.h"

/* Decides a device anew, and all that follows on others. */
void sched_plan(struct sched_device *device, uint64_t now);
void sched_plan_all(struct sched *sched, uint64_t now);
/* ... whatever is on the agenda. */
void sched_plan_pending(struct sched *sched, uint64_t now);
/* Drops the budgets that the client has left behind with what it echoed. */
void sched_send_echo(struct sched_member *member, uint64_t now);
