/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.h: the parties that wait for a device, and the next of them.
 */
#ifndef GS_LOCKD_SCHED_QUEUE_H
#define GS_LOCKD_SCHED_QUEUE_H

#include "lockd/sched/state.h"

/* It waits from now on; its place may have to be another one. */
void sched_queue_enter(struct sched_party *party, uint64_t now);
void sched_queue_leave(struct sched_party *party, uint64_t now);
/* ... without a look at its books. */
void sched_queue_drop(struct sched_party *party);
/* Its place may be another one now. */
void sched_queue_renew(struct sched_party *party, uint64_t now);
/* ... those that only waited for this one to come before them. */
void sched_queue_served(struct sched_party *party, uint64_t now);
/* ... those that have become interactive while they wait. */
void sched_queue_look_again(struct sched_device *device, uint64_t now);
/* ... and those of all parties of the gang, whose priority may be another one. */
void sched_queue_renew_gang(struct sched_gang *gang, uint64_t now);
/* What stuck ones keep from it. Not what gangs keep that wait for a place themselves, when it is of
 * such a gang, too: each might wait for the other for ever. What it lacks then goes beyond the card
 * (stop.c). */
uint64_t sched_queue_lost(const struct sched_party *party);
/* What its turn takes of the device. */
uint64_t sched_queue_takes(const struct sched_party *party);
/* The one to be served next, or NULL. */
struct sched_party *sched_queue_head(const struct sched_device *device);

#endif
