/* SPDX-License-Identifier: Apache-2.0
 *
 * quantum.c: the cost of a switch on a device, and from it the length of a turn and the time
 * that a program may idle in it. The settings come first where they name a value. O(1).
 */
#include "lockd/sched/quantum.h"

static bool is_unset(uint64_t value)
{
    return value == 0 || value == LOCKD_AUTO;
}

uint64_t sched_settings_quantum_min(const struct sched_settings *settings)
{
    if (!is_unset(settings->quantum_min_ns))
        return settings->quantum_min_ns;
    /* a lower maximum that is set alone is meant */
    return is_unset(settings->quantum_max_ns)
               ? QUANTUM_MIN
               : sched_min(QUANTUM_MIN, settings->quantum_max_ns);
}

uint64_t sched_settings_quantum_max(const struct sched_settings *settings)
{
    const uint64_t most =
        is_unset(settings->quantum_max_ns) ? QUANTUM_MAX : settings->quantum_max_ns;

    return sched_max(most, sched_settings_quantum_min(settings));
}

uint32_t sched_settings_share(const struct sched_settings *settings)
{
    return settings->share_ppm == 0 ? SHARE_PPM : settings->share_ppm;
}

uint32_t sched_settings_floor(const struct sched_settings *settings)
{
    return settings->floor_ppm == 0 ? FLOOR_PPM : settings->floor_ppm;
}

/* What a switch is expected to move: the bytes that do not fit, but no more than an average
 * program has. */
static uint64_t switch_bytes(const struct sched_device *device)
{
    const uint64_t over = sched_less(device->books.sum.demand, device->space.capacity);

    if (device->party_count == 0)
        return 0;
    return sched_min(over, device->books.sum.demand / device->party_count);
}

uint64_t sched_device_switch(const struct sched_device *device)
{
    if (device->turns.switch_ns != 0)
        return device->turns.switch_ns;
    return SWITCH_BASE + switch_bytes(device) * 1000 / (SWITCH_RATE / 1000000);
}

void sched_device_switched(struct sched_device *device, uint64_t ns)
{
    if (ns == 0)
        ns = 1;
    if (device->turns.switch_ns == 0)
        device->turns.switch_ns = ns;
    else
        device->turns.switch_ns =
            device->turns.switch_ns - device->turns.switch_ns / 4 + ns / 4;
}

uint64_t sched_device_quantum_by(const struct sched_device *device,
                                 const struct sched_settings *settings)
{
    const uint64_t low = sched_settings_quantum_min(settings),
                   high = sched_settings_quantum_max(settings),
                   per_cost = PPM / sched_settings_share(settings);

    if (settings->quantum_ns != LOCKD_AUTO)
        return settings->quantum_ns;
    return sched_clamp(sched_min(sched_device_switch(device) + SWITCH_UNSEEN, high) *
                           sched_max(per_cost, 1),
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
