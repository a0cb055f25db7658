/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.h: all memory of a client is to leave its devices.
 */
#ifndef GS_LOCKD_SCHED_EVICT_H
#define GS_LOCKD_SCHED_EVICT_H

#include "lockd/sched/state.h"

void sched_evict_begin(struct sched_client *client, uint64_t now);
void sched_evict_cancel(struct sched_client *client);
/* May the eviction begin that was asked for; is all its memory out? */
void sched_evict_check(struct sched_member *member, uint64_t now);
/* ... of those whose time has come. */
void sched_evict_watch(struct sched_device *device, uint64_t now);

#endif
