/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.h: holders that stop for reasons of their own, and those that were asked to.
 */
#ifndef GS_LOCKD_SCHED_STOP_H
#define GS_LOCKD_SCHED_STOP_H

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

#endif
