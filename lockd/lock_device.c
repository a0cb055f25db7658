/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_device.c: devices come and go; a device's figures: what else is on it, what is left for
 * programs, what a switch costs and so how long a turn is. No state of its own; O(1) but for a
 * change of capacity, which lock_plan.c answers with a recount of all members.
 */
#include "lockd/lock_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct lockd_policy *const policies[GS_POLICY_COUNT] = {
    [GS_POLICY_FAIR] = &lockd_policy_fair,
    [GS_POLICY_FIFO] = &lockd_policy_fifo,
    [GS_POLICY_RR] = &lockd_policy_rr,
    [GS_POLICY_PRIORITY] = &lockd_policy_priority,
};

static struct lockd_device *device_new(struct lockd_lock *lock, const uint8_t *uuid,
                                       uint32_t user)
{
    struct lockd_device *device = calloc(1, sizeof *device);

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

int lockd_device_get(struct lockd_lock *lock, const uint8_t *uuid, uint32_t user,
                     struct lockd_device **found)
{
    uint32_t named = 0;

    lockd_list_each (at, &lock->devices) {
        *found = lockd_entry(at, struct lockd_device, link);
        if (memcmp((*found)->uuid, uuid, sizeof(*found)->uuid) == 0)
            return 0;
        named += (*found)->user == user;
    }
    if (named >= LOCKD_DEVICES_PER_USER)
        return -EMFILE;
    *found = device_new(lock, uuid, user);
    return *found != NULL ? 0 : -ENOMEM;
}

void lockd_device_free_unused(struct lockd_device *device)
{
    if (device->member_count != 0 || device->party_count != 0)
        return;
    lockd_list_remove(&device->pending);
    lockd_list_remove(&device->link);
    free(device);
}

const struct lockd_policy *lockd_device_policy(const struct lockd_device *device)
{
    return policies[device->lock->settings.policy];
}

/* What a switch is expected to move: the bytes that do not fit, but no more than an average
 * program has. */
static uint64_t switch_bytes(const struct lockd_device *device)
{
    const uint64_t over = lockd_less(device->sum.demand, device->capacity);

    if (device->party_count == 0)
        return 0;
    return lockd_min(over, device->sum.demand / device->party_count);
}

uint64_t lockd_device_switch(const struct lockd_device *device)
{
    if (device->switch_ns != 0)
        return device->switch_ns;
    return SWITCH_BASE + switch_bytes(device) * 1000 / (SWITCH_RATE / 1000000);
}

void lockd_device_switched(struct lockd_device *device, uint64_t ns)
{
    if (ns == 0)
        ns = 1;
    if (device->switch_ns == 0)
        device->switch_ns = ns;
    else
        device->switch_ns = device->switch_ns - device->switch_ns / 4 + ns / 4;
}

uint64_t lockd_device_quantum_by(const struct lockd_device *device,
                                 const struct lockd_settings *settings)
{
    const uint64_t low = lockd_settings_quantum_min(settings),
                   high = lockd_settings_quantum_max(settings),
                   per_cost = PPM / lockd_settings_share(settings);

    if (settings->quantum_ns != LOCKD_AUTO)
        return settings->quantum_ns;
    return lockd_clamp(lockd_min(lockd_device_switch(device), high) * lockd_max(per_cost, 1),
                       low, high);
}

uint64_t lockd_device_quantum(const struct lockd_device *device)
{
    return lockd_device_quantum_by(device, &device->lock->settings);
}

uint64_t lockd_device_idle(const struct lockd_device *device)
{
    if (device->lock->settings.idle_ns != LOCKD_AUTO)
        return device->lock->settings.idle_ns;
    return lockd_clamp(lockd_device_switch(device), IDLE_MIN, IDLE_MAX);
}

/* Room for the contexts of programs yet to come. With GPUSHARE_DEVICE_LIMIT nobody measures the
 * card, and the limit is meant to be used up. */
uint64_t lockd_device_reserve(const struct lockd_device *device)
{
    if (device->lock->settings.reserve != LOCKD_AUTO)
        return device->lock->settings.reserve;
    return device->measured ? lockd_clamp(device->total / 64, 2 * MIB, GIB) : 0;
}

/* A shortage that the driver reported passes: it makes programs wait, and is no reason to
 * refuse them memory. */
uint64_t lockd_device_most(const struct lockd_device *device)
{
    /* what clients know to be pinned need not wait for a moment in which it can be measured;
     * none counts for more than it was ever given */
    const uint64_t external = lockd_max(device->external, device->sum.pinned);

    return lockd_less(lockd_less(device->total, external), lockd_device_reserve(device));
}

/* One that needs more than there is counts as all there is, the others with it. */
uint64_t lockd_device_shortfall(const struct lockd_device *device)
{
    return lockd_less(device->sum.demand, device->capacity);
}

void lockd_device_refresh(struct lockd_device *device, uint64_t now)
{
    uint64_t capacity;

    if (device->short_bytes != 0 && now >= device->short_until) {
        device->short_bytes /= 2;
        device->short_until = now + SHORT_DECAY;
        if (device->short_bytes < 2 * MIB)
            device->short_bytes = 0;
    }
    /* never nothing: it would be room for any number of programs that need more */
    capacity = lockd_max(lockd_less(lockd_device_most(device), device->short_bytes), 1);
    if (capacity != device->capacity) {
        device->capacity = capacity;
        device->recount = true;
    }
}

/* A rise must be seen twice, because another client may have allocated and not yet said so.
 * What all clients together may hold explains a rise for much longer than a moment: one may
 * be in the middle of a large allocation. */
static void rise(struct lockd_device *device, uint64_t external, uint64_t now)
{
    const uint64_t unsaid = device->sum.hold - device->sum.resident;
    const uint64_t wait =
        lockd_less(external, device->external) > unsaid ? EXTERNAL_CONFIRM : EXTERNAL_UNSAID;

    if (device->candidate_at == 0) {
        device->candidate = external;
        device->candidate_at = now;
        return;
    }
    device->candidate = lockd_min(device->candidate, external);
    if (now - device->candidate_at < wait)
        return;
    device->external = device->candidate;
    device->candidate_at = 0;
}

/* What is on the card and is no client's movable memory: contexts, pinned memory, programs
 * without gpushare. It can be told only while nothing moves, and after a restart only when all
 * that held something from an earlier daemon have come back. */
static void measure(struct lockd_device *device, uint64_t device_free, uint64_t now)
{
    uint64_t external;

    if (device->restarted && now - device->lock->created < RESTART_WINDOW)
        return;
    external = lockd_less(device->total, lockd_min(device_free, device->total));
    if (device->moving != 0 || device->unechoed != 0) {
        device->external = lockd_min(device->external, external); /* what is free is nobody's */
        return;
    }
    external = lockd_less(external, device->sum.resident);
    external = lockd_min((external + SHARE_STEP - 1) / SHARE_STEP * SHARE_STEP, device->total);
    if (external <= device->external || !device->measured) {
        device->external = external;
        device->candidate_at = 0;
    } else {
        rise(device, external, now);
    }
    device->measured = true;
}

/* What is free does not change with what programs say of the total: the difference is what
 * something else has, until it is measured. */
static void set_total(struct lockd_device *device, uint64_t total)
{
    if (total == device->total)
        return;
    if (device->measured && total > device->total)
        device->external += total - device->total;
    else
        device->external = lockd_less(device->external, device->total - total);
    device->candidate_at = 0;
    device->total = total;
    device->recount = true;
    lockd_list_each (at, &device->parties) /* it may be hopeless, or not be any more */
        lockd_gang_settle(lockd_party_of(at, of_device)->gang);
}

void lockd_device_recount_total(struct lockd_device *device)
{
    uint64_t total = 0;
    bool measures = false;

    lockd_list_each (at, &device->members) {
        const struct lockd_member *member = lockd_member_of(at, of_device);

        if (member->total == device->total)
            return;
        total = lockd_max(total, member->total);
        measures = measures || member->measures;
    }
    if (total == 0)
        return;
    set_total(device, total);
    if (!measures) {
        device->measured = false;
        device->external = 0;
    }
}

/* The device is as large as the largest total that anybody says: a lower one is somebody's own
 * limit and bounds nobody else. */
static void take_total(struct lockd_member *member, uint64_t total)
{
    struct lockd_device *device = member->device;
    const uint64_t before = member->total;

    member->total = total;
    if (total > device->total)
        set_total(device, total);
    else if (before == device->total && total < before)
        lockd_device_recount_total(device);
}

void lockd_device_report(struct lockd_member *member, const struct gs_wire_state *state,
                         uint64_t now)
{
    struct lockd_device *device = member->device;

    member->measures = member->measures || state->device_free != UINT64_MAX;
    take_total(member, state->device_total);
    memcpy(device->name, state->device_name, sizeof device->name);
    device->name[sizeof device->name - 1] = '\0';
    if (state->device_free != UINT64_MAX)
        measure(device, state->device_free, now);
}

/* A client of an earlier daemon comes back: what it holds may have been measured before it said
 * so, and more may follow. */
void lockd_device_restarted(struct lockd_device *device, uint64_t resident, uint64_t now)
{
    device->restarted = true;
    device->external = lockd_less(device->external, resident);
    device->candidate_at = 0;
    if (device->settle_until == 0)
        device->settle_until = now + RESTART_SETTLE;
}
