/* SPDX-License-Identifier: Apache-2.0
 *
 * quantum.c: the cost of a switch on a device, and from it the length of a turn and the time
 * that a program may idle in it. The settings come first where they name a value. O(1).
 */
#include "lockd/sched/room.h"

static bool is_unset(uint64_t value)
{
    return value == 0 || value == LOCKD_AUTO;
}

struct sched_settings sched_settings_in_force(const struct sched_settings *settings)
{
    struct sched_settings set = *settings;

    if (is_unset(set.quantum_max_ns))
        set.quantum_max_ns = QUANTUM_MAX;
    if (is_unset(set.quantum_min_ns)) /* a lower maximum that is set alone is meant */
        set.quantum_min_ns = sched_min(QUANTUM_MIN, set.quantum_max_ns);
    set.quantum_max_ns = sched_max(set.quantum_max_ns, set.quantum_min_ns);
    if (set.share_ppm == 0)
        set.share_ppm = SHARE_PPM;
    if (set.floor_ppm == 0)
        set.floor_ppm = FLOOR_PPM;
    return set;
}

uint64_t sched_device_switch(const struct sched_device *device)
{
    const uint64_t needs = device->books.sum.demand;
    uint64_t bytes = 0;

    if (device->turns.switch_ns != 0)
        return device->turns.switch_ns;
    /* the bytes that do not fit, but no more than an average program has */
    if (device->party_count != 0)
        bytes =
            sched_min(sched_less(needs, device->space.capacity), needs / device->party_count);
    return IDLE_MIN + bytes * 1000 / (SWITCH_RATE / 1000000);
}

void sched_device_switched(struct sched_device *device, uint64_t ns)
{
    const uint64_t mean = device->turns.switch_ns;

    ns = sched_clamp(ns, 1, 2 * sched_max(sched_device_switch(device), IDLE_MAX));
    device->turns.switch_ns = mean == 0 ? ns : mean - mean / 4 + ns / 4;
}

uint64_t sched_device_quantum_by(const struct sched_device *device,
                                 const struct sched_settings *settings)
{
    const uint64_t low = settings->quantum_min_ns, high = settings->quantum_max_ns;

    if (settings->quantum_ns != LOCKD_AUTO)
        return settings->quantum_ns;
    return sched_clamp(sched_min(sched_device_switch(device) + SWITCH_UNSEEN, high) *
                           sched_max(PPM / settings->share_ppm, 1),
                       low, high);
}

uint64_t sched_device_quantum(const struct sched_device *device)
{
    return sched_device_quantum_by(device, &device->sched->settings);
}

uint64_t sched_device_idle(const struct sched_device *device)
{
    if (device->sched->settings.idle_ns != LOCKD_AUTO)
        return device->sched->settings.idle_ns;
    return sched_clamp(sched_device_switch(device), IDLE_MIN, IDLE_MAX);
}
