/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.h: the parties that wait for a device, and the next of them.
 */
#pragma once

#include "lockd/sched/state.h"

/* The party waits from now on, or its place may have changed. */
void sched_queue_enter(struct sched_party *party, uint64_t now);
void sched_queue_leave(struct sched_party *party, uint64_t now);
/* ... without a look at its books. */
void sched_queue_drop(struct sched_party *party);
/* Works out its place again. */
void sched_queue_renew(struct sched_party *party, uint64_t now);
/* ... of the parties that only waited for this party to come before them. */
void sched_queue_served(struct sched_party *party, uint64_t now);
/* ... of the parties that may go first again while they wait. */
void sched_queue_look_again(struct sched_device *device, uint64_t now);
/* The bytes that stuck parties keep from it. If its gang waits for another place, the bytes of
 * other such gangs do not count: each might wait for the other for ever. The memory that the
 * party then lacks goes beyond the card (stop.c). */
uint64_t sched_queue_lost(const struct sched_party *party);
/* Does it fit beside all that run, or may not have stopped yet? */
bool sched_queue_has_room(const struct sched_party *head);
/* The bytes of the device that its turn takes. */
uint64_t sched_queue_takes(const struct sched_party *party);
/* The party to be served next, or NULL. */
struct sched_party *sched_queue_head(const struct sched_device *device);
