/* SPDX-License-Identifier: Apache-2.0
 *
 * quantum.h: the cost of a switch on a device, the length of a turn, and the time that a program may
 * idle.
 */
#pragma once

#include "lockd/sched/state.h"

/* What a switch costs: measured, or guessed from what must move. */
uint64_t sched_device_switch(const struct sched_device *device);
/* A turn came to run so long after others were first stopped for it. The first time may take many
 * times as long as any later one, since memory of the host is pinned. */
void sched_device_switched(struct sched_device *device, uint64_t ns);
/* The settings, with values where they have none: 0, or LOCKD_AUTO of the bounds of a turn. */
struct sched_settings sched_settings_in_force(const struct sched_settings *settings);
uint64_t sched_device_quantum(const struct sched_device *device);
uint64_t sched_device_quantum_by(const struct sched_device *device,
                                 const struct sched_settings *settings);
uint64_t sched_device_idle(const struct sched_device *device);

/* How long nothing may happen in a turn before it is looked at whether it ends. */
static inline uint64_t sched_device_look(const struct sched_device *device)
{
    return device->measure.several ? QUANTUM_MIN : REPEAT;
}
