/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: devices come and go; a device's figures: what is left for programs, what a
 * switch costs and so how long a turn is. No state of its own; O(1) but for a change of
 * capacity, which plan.c answers with a recount of all members.
 */
#include "lockd/sched/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct sched_policy *const policies[GS_POLICY_COUNT] = {
    [GS_POLICY_FAIR] = &sched_policy_fair,
    [GS_POLICY_FIFO] = &sched_policy_fifo,
    [GS_POLICY_RR] = &sched_policy_rr,
    [GS_POLICY_PRIORITY] = &sched_policy_priority,
};

static struct sched_device *device_new(struct sched *lock, const uint8_t *uuid, uint32_t user)
{
    struct sched_device *device = calloc(1, sizeof *device);

    if (device == NULL)
        return NULL;
    device->lock = lock;
    device->user = user;
    lockd_list_init(&device->pending);
    lockd_list_init(&device->members);
    lockd_list_init(&device->parties);
    lockd_list_init(&device->holders);
    lockd_list_init(&device->touched);
    lockd_list_init(&device->settle);
    lockd_list_init(&device->hungry);
    lockd_list_init(&device->spared);
    lockd_list_init(&device->unused);
    lockd_list_init(&device->stopping);
    memcpy(device->uuid, uuid, sizeof device->uuid);
    device->deadline = device->grace_at = device->stop_at = device->revoke_at = LOCKD_NEVER;
    device->exact_at = device->evict_at = LOCKD_NEVER;
    device->level = LEVEL_START;
    lockd_list_append(&lock->devices, &device->link);
    return device;
}

int sched_device_get(struct sched *lock, const uint8_t *uuid, uint32_t user,
                     struct sched_device **found)
{
    uint32_t named = 0;

    lockd_list_each (at, &lock->devices) {
        *found = lockd_entry(at, struct sched_device, link);
        if (memcmp((*found)->uuid, uuid, sizeof(*found)->uuid) == 0)
            return 0;
        named += (*found)->user == user;
    }
    if (named >= LOCKD_DEVICES_PER_USER)
        return -EMFILE;
    *found = device_new(lock, uuid, user);
    return *found != NULL ? 0 : -ENOMEM;
}

void sched_device_free_unused(struct sched_device *device)
{
    if (device->member_count != 0 || device->party_count != 0)
        return;
    lockd_list_remove(&device->pending);
    lockd_list_remove(&device->link);
    free(device);
}

const struct sched_policy *sched_device_policy(const struct sched_device *device)
{
    return policies[device->lock->settings.policy];
}

/* What a switch is expected to move: the bytes that do not fit, but no more than an average
 * program has. */
static uint64_t switch_bytes(const struct sched_device *device)
{
    const uint64_t over = sched_less(device->sum.demand, device->capacity);

    if (device->party_count == 0)
        return 0;
    return sched_min(over, device->sum.demand / device->party_count);
}

uint64_t sched_device_switch(const struct sched_device *device)
{
    if (device->switch_ns != 0)
        return device->switch_ns;
    return SWITCH_BASE + switch_bytes(device) * 1000 / (SWITCH_RATE / 1000000);
}

void sched_device_switched(struct sched_device *device, uint64_t ns)
{
    if (ns == 0)
        ns = 1;
    if (device->switch_ns == 0)
        device->switch_ns = ns;
    else
        device->switch_ns = device->switch_ns - device->switch_ns / 4 + ns / 4;
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
    return sched_device_quantum_by(device, &device->lock->settings);
}

uint64_t sched_device_idle(const struct sched_device *device)
{
    if (device->lock->settings.idle_ns != LOCKD_AUTO)
        return device->lock->settings.idle_ns;
    return sched_clamp(sched_device_switch(device), IDLE_MIN, IDLE_MAX);
}

bool sched_party_is_steady(const struct sched_party *party)
{
    return party->burst_usual != LOCKD_NEVER &&
           party->burst_off <= party->burst_usual / BURST_SPARE;
}

/* One whose bursts are steady, and worth a turn, has ended one when it pauses. */
uint64_t sched_party_idle(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t idle = sched_device_idle(device);

    if (device->lock->settings.idle_ns != LOCKD_AUTO || !sched_party_is_steady(party) ||
        party->burst_usual < sched_device_quantum(device) / 2)
        return idle;
    return sched_max(idle / 4, IDLE_MIN);
}

/* Room for the contexts of programs yet to come. With GPUSHARE_DEVICE_LIMIT nobody measures the
 * card, and the limit is meant to be used up. */
uint64_t sched_device_reserve(const struct sched_device *device)
{
    if (device->lock->settings.reserve != LOCKD_AUTO)
        return device->lock->settings.reserve;
    return device->measured ? sched_clamp(device->total / 64, 2 * MIB, GIB) : 0;
}

/* A shortage that the driver reported passes: it makes programs wait, and is no reason to
 * refuse them memory. */
uint64_t sched_device_most(const struct sched_device *device)
{
    /* what clients know to be pinned need not wait for a moment in which it can be measured;
     * none counts for more than it was ever given */
    const uint64_t external = sched_max(device->external, device->sum.pinned);

    return sched_less(sched_less(device->total, external), sched_device_reserve(device));
}

/* One that needs more than there is counts as all there is, the others with it. */
uint64_t sched_device_shortfall(const struct sched_device *device)
{
    return sched_less(device->sum.demand, device->capacity);
}

void sched_device_refresh(struct sched_device *device, uint64_t now)
{
    uint64_t capacity;

    sched_short_decay(device, now);
    /* never nothing: it would be room for any number of programs that need more */
    capacity = sched_max(sched_less(sched_device_most(device), device->short_bytes), 1);
    if (device->fell_at != 0 && now >= device->fell_at + RISE_PAUSE)
        device->fell_at = 0;
    if (capacity == device->capacity || (capacity > device->capacity && device->fell_at != 0))
        return;
    if (capacity < device->capacity)
        device->fell_at = now; /* not up and down with every word of somebody's */
    device->capacity = capacity;
    device->recount = true;
}
