/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: decides anew after an event.
 */
#pragma once

#include "lockd/sched/state.h"

/* Decides all that is on the agenda anew, and what follows from it on other devices. */
void sched_plan(struct sched *sched, uint64_t now);
/* The client counts as background for as long as it goes last on any device. */
void sched_plan_last(struct sched_member *member, bool last, uint64_t now);
/* Drops the budgets that the client has left behind with what it echoed. */
void sched_send_echo(struct sched_member *member, uint64_t now);
