/* SPDX-License-Identifier: Apache-2.0
 *
 * quantum.h: the cost of a switch on a device, the length of a turn, the time that a program may
 * idle, and the part of the time that interactive programs leave.
 */
#ifndef GS_LOCKD_SCHED_QUANTUM_H
#define GS_LOCKD_SCHED_QUANTUM_H

#include "lockd/sched/state.h"

/* What a switch costs: measured, or guessed from what must move. */
uint64_t sched_device_switch(const struct sched_device *device);
/* A turn came to run so long after others were first stopped for it. */
void sched_device_switched(struct sched_device *device, uint64_t ns);
uint64_t sched_device_quantum(const struct sched_device *device);
uint64_t sched_device_quantum_by(const struct sched_device *device,
                                 const struct sched_settings *settings);
/* The part of the time that is kept for parties that are not interactive. */
double sched_device_keeps(const struct sched_device *device);
uint64_t sched_device_idle(const struct sched_device *device);
bool sched_party_is_steady(const struct sched_party *party); /* its bursts are about as long */
uint64_t sched_party_idle(const struct sched_party *party);  /* what it may idle */

#endif
