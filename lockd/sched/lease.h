/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.h: the turn of a gang begins and ends.
 */
#pragma once

#include "lockd/sched/state.h"

/* The party gets its place; when it was the last one of its gang, all run. */
void sched_lease_admit(struct sched_party *party, bool backfilled, uint64_t now);
/* All have their places: the turn begins; not again where it is under way already, and one of
 * the gang came or left. */
void sched_lease_begin(struct sched_gang *gang, uint64_t now);
/* The time of its turn counts from now on, if it does not yet and all run that want to. */
void sched_lease_look_complete(struct sched_gang *gang, uint64_t now);
/* ... however many do. */
void sched_lease_set_complete(struct sched_gang *gang, uint64_t now);
/* The length of the party's turn is decided anew, and counts from then. */
void sched_lease_anew(struct sched_party *party, uint64_t from);
/* Ends the turn of all of them. */
void sched_lease_end(struct sched_gang *gang, uint64_t now);
/* The gang gives way to all others from now on, or no more. */
void sched_lease_give_way(struct sched_gang *gang, bool gives);
/* The priority, weight or class of the gang has changed, and with it its places in queues; it may
 * be served now if it gives way. */
void sched_lease_requeue_gang(struct sched_gang *gang, uint64_t now);
/* A gang that waits here and has given way for long enough, or to none, tries again. */
void sched_lease_retry(struct sched_device *device, uint64_t now);
/* The party that is to get its place next; NULL: all have. */
struct sched_party *sched_lease_next(const struct sched_gang *gang);
