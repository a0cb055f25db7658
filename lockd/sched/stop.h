/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h: holders that stop for reasons of their own, programs that were asked to stop, evictions.
 */
#pragma once

#include "lockd/sched/state.h"

/* Stops holders until the others fit together. */
void sched_stop_overflow(struct sched_device *device, uint64_t now);
/* Gangs that cannot stop before they get memory that another gang has, which cannot stop
 * either, are told to put it beyond the card. */
void sched_stop_knots(struct sched_device *device, uint64_t now);
/* Stops holders that idle or do not get ahead while others wait. */
void sched_stop_idle(struct sched_device *device, uint64_t now);
/* Asks stuck programs again. */
void sched_stop_watch(struct sched_device *device, uint64_t now);

/* All memory of a client is to leave its devices, or no longer is. */
void sched_evict_begin(struct sched_client *client, uint64_t now);
void sched_evict_cancel(struct sched_client *client);
/* May the eviction begin that was asked for; is all its memory out? */
void sched_evict_check(struct sched_member *member, uint64_t now);
/* ... of those whose time has come. */
void sched_evict_watch(struct sched_device *device, uint64_t now);
