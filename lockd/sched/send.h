/* SPDX-License-Identifier: Apache-2.0
 *
 * send.h: targets.
 */
#ifndef GS_LOCKD_SCHED_SEND_H
#define GS_LOCKD_SCHED_SEND_H

#include "lockd/sched/state.h"

/* Drops the budgets that the client has left behind with what it echoed. */
void sched_send_echo(struct sched_member *member, uint64_t now);
/* Puts out a target if it would differ from the newest in something that matters. */
void sched_send_member(struct sched_member *member, uint64_t now);
/* Touches all members that must be told of a change to the device. */
void sched_send_broadcast(struct sched_device *device, uint64_t now);

#endif
