/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c: the events of the lock. Owns all clients, devices and members (a client on a device);
 * takes in what clients report, keeps the device's figures (capacity, what else is on the card,
 * cost of a switch) and then lets lock_turns.c decide who runs and lock_budget.c who holds how
 * much. Every event ends with both, so there is no state in which a decision is still owed. One
 * thread; no I/O, no clock.
 */
#include "lockd/lock_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t lockd_device_quantum(const struct lockd_device *device)
{
    if (device->lock->settings.quantum_ns != LOCKD_AUTO)
        return device->lock->settings.quantum_ns;
    if (device->switch_ns == 0)
        return QUANTUM_DEFAULT;
    return lockd_clamp(lockd_min(device->switch_ns, QUANTUM_MAX) * QUANTUM_PER_COST,
                       QUANTUM_MIN, QUANTUM_MAX);
}

uint64_t lockd_device_idle(const struct lockd_device *device)
{
    if (device->lock->settings.idle_ns != LOCKD_AUTO)
        return device->lock->settings.idle_ns;
    return device->switch_ns == 0 ? IDLE_DEFAULT
                                  : lockd_clamp(device->switch_ns, IDLE_MIN, IDLE_MAX);
}

/* Room for the contexts of programs yet to come. With GPUSHARE_DEVICE_LIMIT nobody measures the
 * card, and the limit is meant to be used up. */
uint64_t lockd_device_reserve(const struct lockd_device *device)
{
    if (device->lock->settings.reserve != LOCKD_AUTO)
        return device->lock->settings.reserve;
    return device->measured ? lockd_clamp(device->total / 64, 2 * MIB, GIB) : 0;
}

static void device_recount(struct lockd_device *device)
{
    device->demand = 0;
    lockd_list_each (at, &device->members)
        device->demand += lockd_entry(at, struct lockd_member, of_device)->demand;
    device->capacity = lockd_less(device->total, device->external);
    device->capacity = lockd_less(device->capacity, lockd_device_reserve(device));
    device->capacity = lockd_less(device->capacity, device->short_bytes);
}

void lockd_device_plan(struct lockd_device *device, uint64_t now)
{
    device->deadline = LOCKD_NEVER;
    if (device->short_bytes != 0 && now >= device->short_until) {
        device->short_bytes /= 2;
        device->short_until = now + SHORT_DECAY;
        if (device->short_bytes < 2 * MIB)
            device->short_bytes = 0;
    }
    if (device->short_bytes != 0)
        device->deadline = device->short_until;
    device_recount(device);
    if (now < device->settle_until) {
        device->deadline = lockd_min(device->deadline, device->settle_until);
        return;
    }
    lockd_turns_plan(device, now);
    lockd_budget_plan(device, now);
}

static struct lockd_device *device_get(struct lockd_lock *lock, const uint8_t *uuid)
{
    struct lockd_device *device;

    lockd_list_each (at, &lock->devices) {
        device = lockd_entry(at, struct lockd_device, link);
        if (memcmp(device->uuid, uuid, sizeof device->uuid) == 0)
            return device;
    }
    device = calloc(1, sizeof *device);
    if (device == NULL)
        return NULL;
    device->lock = lock;
    lockd_list_init(&device->members);
    lockd_list_init(&device->holders);
    lockd_list_init(&device->queue);
    memcpy(device->uuid, uuid, sizeof device->uuid);
    device->deadline = LOCKD_NEVER;
    lockd_list_append(&lock->devices, &device->link);
    return device;
}

static void device_free_unused(struct lockd_device *device)
{
    if (device->member_count != 0)
        return;
    lockd_list_remove(&device->link);
    free(device);
}

/* A rise must be seen twice, because another client may have allocated and not yet said so.
 * What all clients together may hold explains a rise for much longer than a moment: one may
 * be in the middle of a large allocation. */
static void device_rise(struct lockd_device *device, uint64_t external, uint64_t now)
{
    uint64_t unsaid = 0, wait;

    lockd_list_each (at, &device->members) {
        const struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        unsaid += lockd_less(lockd_member_hold(member), member->resident);
    }
    wait = lockd_less(external, device->external) > unsaid ? EXTERNAL_CONFIRM : EXTERNAL_UNSAID;
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
static void device_measure(struct lockd_device *device, uint64_t device_free, uint64_t now)
{
    uint64_t resident = 0, external;

    if (device->restarted && now - device->lock->created < RESTART_WINDOW)
        return;

    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if ((member->flags & GS_STATE_MOVING) != 0 || member->echoed != member->seq)
            return;
        resident += member->resident;
    }
    external = lockd_less(device->total, lockd_min(device_free, device->total));
    external = lockd_less(external, resident);
    external = lockd_min((external + SHARE_STEP - 1) / SHARE_STEP * SHARE_STEP, device->total);
    if (external <= device->external || !device->measured) {
        device->external = external;
        device->candidate_at = 0;
    } else {
        device_rise(device, external, now);
    }
    device->measured = true;
}

static void device_report(struct lockd_device *device, const struct gs_wire_state *state,
                          uint64_t now)
{
    if (device->total != state->device_total) {
        device->total = state->device_total;
        device->measured = false;
        device->external = 0;
    }
    memcpy(device->name, state->device_name, sizeof device->name);
    device->name[sizeof device->name - 1] = '\0';
    if (state->device_free != UINT64_MAX)
        device_measure(device, state->device_free, now);
}

static struct lockd_member *member_find(struct lockd_client *client, const uint8_t *uuid)
{
    lockd_list_each (at, &client->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_client);

        if (memcmp(member->device->uuid, uuid, sizeof member->device->uuid) == 0)
            return member;
    }
    return NULL;
}

/* A client of an earlier daemon comes back: what it holds may have been measured before it said
 * so, and more may follow. */
static void device_restarted(struct lockd_device *device, uint64_t resident, uint64_t now)
{
    device->restarted = true;
    device->external = lockd_less(device->external, resident);
    device->candidate_at = 0;
    if (device->settle_until == 0)
        device->settle_until = now + RESTART_SETTLE;
}

/* A client that comes with the number of a target of an earlier connection goes on counting
 * from there, so that an old number in its next report cannot be taken for ours. */
static struct lockd_member *member_new(struct lockd_client *client, struct lockd_device *device,
                                       const struct gs_wire_state *state, uint64_t now)
{
    struct lockd_member *member = calloc(1, sizeof *member);

    if (member == NULL)
        return NULL;
    member->client = client;
    member->device = device;
    lockd_list_init(&member->holder);
    lockd_list_init(&member->queued);
    lockd_list_init(&member->unsent);
    lockd_list_append(&client->members, &member->of_client);
    lockd_list_append(&device->members, &member->of_device);
    client->member_count++;
    device->member_count++;
    if (state->target_seq < UINT32_MAX / 2)
        member->seq = member->echoed = member->first_seq = state->target_seq;
    member->switch_ns =
        state->switch_ns; /* measured in another life: no sample of this device's state */
    member->budget = state->resident;
    if ((state->flags & GS_STATE_RUNNING) !=
        0) { /* it runs on what an earlier daemon allowed it */
        member->budget = lockd_max(state->resident, state->demand);
        member->run = true;
        member->started = member->progress = now;
        lockd_list_append(&device->holders, &member->holder);
        device->holder_count++;
    }
    member->outstanding_count = 1;
    member->outstanding[0] = (struct lockd_outstanding){member->seq, member->budget};
    if (state->target_seq != 0 && now - device->lock->created < RESTART_WINDOW)
        device_restarted(device, state->resident, now);
    return member;
}

static void member_free(struct lockd_member *member)
{
    if (member == NULL)
        return;
    lockd_turns_forget(member);
    lockd_list_remove(&member->unsent);
    lockd_list_remove(&member->of_client);
    lockd_list_remove(&member->of_device);
    member->client->member_count--;
    member->device->member_count--;
    free(member);
}

/* The driver had no memory for it, although the books say there is: others are made to leave,
 * by lowering the capacity for a while. Never so far that the reporter itself would not fit:
 * when all others have left there is nothing more to be had. */
static void member_short(struct lockd_member *member, uint64_t bytes, uint64_t now)
{
    struct lockd_device *device = member->device;
    const uint64_t others = lockd_less(
        lockd_less(lockd_less(device->total, device->external), lockd_device_reserve(device)),
        member->demand);

    if (!member->run || !lockd_member_wants(member))
        return;
    if (member->short_at != 0 && now - member->short_at < SHORT_REPEAT)
        return;
    member->short_at = now;
    device->short_bytes = lockd_min(device->short_bytes + lockd_min(bytes, device->total),
                                    lockd_min(others, device->total / 2));
    device->short_until = now + SHORT_DECAY;
}

/* Somebody's memory moved: whoever waits for that room is getting ahead too. */
static void device_progress(struct lockd_device *device, uint64_t now)
{
    lockd_list_each (at, &device->holders)
        lockd_entry(at, struct lockd_member, holder)->progress = now;
}

static void member_report(struct lockd_member *member, const struct gs_wire_state *state,
                          uint64_t now)
{
    struct lockd_device *device = member->device;
    const uint32_t before = member->flags;

    if (state->resident != member->resident ||
        ((before ^ state->flags) & GS_STATE_RUNNING) != 0)
        device_progress(device, now);
    member->flags = state->flags;
    member->demand = lockd_max(state->demand, state->resident);
    member->resident = state->resident;
    member->moved_out = state->moved_out;
    member->moved_in = state->moved_in;
    member->calls = state->calls;
    if (state->target_seq > member->echoed && state->target_seq <= member->seq) {
        member->echoed = state->target_seq;
        lockd_budget_echo(member);
    }
    if (state->switch_ns != 0 && state->switch_ns != member->switch_ns)
        device->switch_ns = device->switch_ns == 0 ? state->switch_ns
                                                   : device->switch_ns - device->switch_ns / 4 +
                                                         state->switch_ns / 4;
    member->switch_ns = state->switch_ns;
    if ((state->flags & GS_STATE_RUNNING) != 0) {
        if (member->run && member->started == 0)
            member->started = now;
        member->skipped = false;
    } else if ((before & GS_STATE_RUNNING) != 0) {
        lockd_list_remove(&member->of_device); /* now the one that ran most recently */
        lockd_list_append(&device->members, &member->of_device);
    }
    if ((state->flags & GS_STATE_SHORT) != 0)
        member_short(member, state->short_bytes, now);
    else
        member->short_at = 0;
}

int lockd_lock_state(struct lockd_lock *lock, struct lockd_client *client,
                     const struct gs_wire_state *state, uint64_t now_ns)
{
    struct lockd_member *member = member_find(client, state->uuid);
    struct lockd_device *device;

    if (member == NULL) {
        if (client->member_count == LOCKD_DEVICES_PER_CLIENT)
            return -EMFILE;
        device = device_get(lock, state->uuid);
        if (device == NULL)
            return -ENOMEM;
        member = member_new(client, device, state, now_ns);
        if (member == NULL) {
            device_free_unused(device);
            return -ENOMEM;
        }
    }
    member_report(member, state, now_ns);
    device_report(member->device, state, now_ns);
    lockd_device_plan(member->device, now_ns);
    return 0;
}

struct lockd_client *lockd_lock_client_add(struct lockd_lock *lock, void *owner)
{
    struct lockd_client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return NULL;
    client->owner = owner;
    client->weight = GS_WEIGHT_DEFAULT;
    client->limit = UINT64_MAX;
    lockd_list_init(&client->members);
    lockd_list_append(&lock->clients, &client->link);
    return client;
}

void lockd_lock_client_gone(struct lockd_lock *lock, struct lockd_client *client,
                            uint64_t now_ns)
{
    (void)lock;
    lockd_list_each (at, &client->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_client);
        struct lockd_device *device = member->device;

        member_free(member);
        device_progress(device, now_ns);
        if (device->member_count != 0)
            lockd_device_plan(device, now_ns);
        device_free_unused(device);
    }
    lockd_list_remove(&client->link);
    free(client);
}

void lockd_lock_pause(struct lockd_lock *lock, struct lockd_client *client, bool paused,
                      uint64_t now_ns)
{
    lockd_list_each (at, &lock->clients) {
        struct lockd_client *each = lockd_entry(at, struct lockd_client, link);

        if (client == NULL || each == client)
            each->paused = paused;
    }
    lockd_list_each (device, &lock->devices)
        lockd_device_plan(lockd_entry(device, struct lockd_device, link), now_ns);
}

void lockd_lock_tick(struct lockd_lock *lock, uint64_t now_ns)
{
    lockd_list_each (at, &lock->devices) {
        struct lockd_device *device = lockd_entry(at, struct lockd_device, link);

        if (now_ns >= device->deadline)
            lockd_device_plan(device, now_ns);
    }
}

uint64_t lockd_lock_deadline(const struct lockd_lock *lock)
{
    uint64_t deadline = LOCKD_NEVER;

    for (const struct lockd_list *at = lock->devices.next; at != &lock->devices; at = at->next)
        deadline = lockd_min(deadline, lockd_entry(at, struct lockd_device, link)->deadline);
    return deadline;
}

bool lockd_lock_next_send(struct lockd_lock *lock, struct lockd_send *send)
{
    struct lockd_member *member;

    if (lockd_list_empty(&lock->unsent))
        return false;
    member = lockd_entry(lock->unsent.next, struct lockd_member, unsent);
    lockd_list_remove(&member->unsent);
    memset(send, 0, sizeof *send);
    send->owner = member->client->owner;
    memcpy(send->target.uuid, member->device->uuid, sizeof send->target.uuid);
    send->target.seq = member->seq;
    send->target.flags = member->sent_flags;
    send->target.budget = member->budget;
    send->target.capacity = member->sent_capacity;
    send->target.idle_ns = member->sent_idle;
    send->target.host_budget = UINT64_MAX;
    return true;
}

struct lockd_lock *lockd_lock_new(const struct lockd_settings *settings, uint64_t now_ns)
{
    struct lockd_lock *lock = calloc(1, sizeof *lock);

    if (lock == NULL)
        return NULL;
    lock->settings = *settings;
    lock->created = now_ns;
    lock->host_available = lock->host_total = UINT64_MAX;
    lockd_list_init(&lock->clients);
    lockd_list_init(&lock->devices);
    lockd_list_init(&lock->unsent);
    return lock;
}

void lockd_lock_free(struct lockd_lock *lock)
{
    if (lock == NULL)
        return;
    while (!lockd_list_empty(&lock->clients))
        lockd_lock_client_gone(lock, lockd_entry(lock->clients.next, struct lockd_client, link),
                               0);
    free(lock);
}
