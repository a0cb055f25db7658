/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_budget.c: how many bytes everybody may hold, and the targets that say so.
 *
 * Invariant: the sum over members of lockd_member_hold(), which is the most each can have on
 * the device before it has read and echoed everything sent, never exceeds the capacity by
 * anything given here. So lowering is always allowed and counts when it is echoed and done;
 * raising takes only what is free at that moment, and goes on as memory leaves (credits).
 *
 * Nothing is sent unless it changes something: a budget that leaves a runner a quarter of its
 * share of the spare bytes is left alone, and at most TARGETS_IN_FLIGHT targets are on the way
 * to a client that does not answer.
 */
#include "lockd/lock_state.h"

uint64_t lockd_member_hold(const struct lockd_member *member)
{
    return lockd_max(member->resident, member->outstanding[0].budget);
}

void lockd_budget_echo(struct lockd_member *member)
{
    uint32_t drop = 0;

    while (drop + 1 < member->outstanding_count &&
           member->outstanding[drop].seq < member->echoed)
        drop++;
    member->outstanding_count -= drop;
    for (uint32_t i = 0; i < member->outstanding_count; i++)
        member->outstanding[i] = member->outstanding[i + drop];
}

static void outstanding_push(struct lockd_member *member, uint32_t seq, uint64_t budget)
{
    uint32_t count = member->outstanding_count;

    while (count > 0 && (member->outstanding[count - 1].budget <= budget ||
                         member->outstanding[count - 1].seq == seq))
        count--;
    member->outstanding[count] = (struct lockd_outstanding){seq, budget};
    member->outstanding_count = count + 1;
}

static bool differs(uint64_t a, uint64_t b, uint64_t tolerance)
{
    return lockd_less(a, b) > tolerance || lockd_less(b, a) > tolerance;
}

/* The most that any one program can ever get. A shortage that the driver reported passes: it
 * makes programs wait, and is no reason to refuse them memory. */
static uint64_t most_of(const struct lockd_device *device)
{
    return lockd_less(lockd_less(device->total, device->external),
                      lockd_device_reserve(device));
}

/* Puts out a target if it would differ from the newest in something that matters. */
static void member_send(struct lockd_member *member, uint64_t now)
{
    struct lockd_device *device = member->device;
    const bool waiters = member->run && lockd_device_waiters(device);
    const uint32_t flags = (member->run ? GS_TARGET_RUN : 0) |
                           (waiters ? GS_TARGET_WAITERS : 0) |
                           (device->member_count == 1 ? GS_TARGET_SOLE : 0) |
                           (member->client->paused ? GS_TARGET_PAUSED : 0);
    const uint64_t idle = waiters ? lockd_device_idle(device) : 0;
    const bool again = lockd_member_stuck(member, now) && member->echoed == member->seq &&
                       now - member->sent_at >= ASK_AGAIN;

    if (member->seq != member->first_seq && flags == member->sent_flags &&
        member->next == member->budget && !again &&
        !differs(idle, member->sent_idle, idle / 2) &&
        !differs(most_of(device), member->sent_capacity, device->total / 64))
        return;
    if (lockd_list_empty(&member->unsent)) {
        if (member->seq - member->echoed >= TARGETS_IN_FLIGHT)
            return; /* its next report brings us here again */
        member->seq++;
        lockd_list_append(&device->lock->unsent, &member->unsent);
    }
    if ((flags & GS_TARGET_RUN) == 0 && (member->sent_flags & GS_TARGET_RUN) != 0)
        member->stop_seq = member->seq;
    outstanding_push(member, member->seq, member->next);
    member->sent_flags = flags;
    member->budget = member->next;
    member->sent_capacity = most_of(device);
    member->sent_idle = idle;
    member->sent_at = now;
}

/* Lowers the budgets of those that do not run until `shortfall` bytes are on their way out:
 * first what they do not use, then the memory of idle programs, least recently run first, then
 * of waiting ones, the one whose turn is furthest away first. */
static void budget_evict(struct lockd_device *device, uint64_t shortfall)
{
    struct lockd_member *member;
    uint64_t part;

    for (int pass = 0; pass < 2 && shortfall > 0; pass++) {
        lockd_list_each (at, &device->members) {
            member = lockd_entry(at, struct lockd_member, of_device);
            if (lockd_member_busy(member) || (pass == 1 && !lockd_list_empty(&member->queued)))
                continue;
            part = lockd_min(shortfall, pass == 0 ? lockd_less(member->next, member->resident)
                                                  : member->next);
            member->next -= part;
            shortfall -= part;
        }
    }
    for (struct lockd_list *at = device->queue.prev; at != &device->queue && shortfall > 0;
         at = at->prev) {
        member = lockd_entry(at, struct lockd_member, queued);
        if (lockd_member_busy(member))
            continue;
        part = lockd_min(shortfall, member->next);
        member->next -= part;
        shortfall -= part;
    }
}

/* Raises next towards goal by what is free, in steps worth a message; what a member may hold
 * anyway costs nothing. */
static void budget_raise(struct lockd_member *member, uint64_t goal, uint64_t step,
                         int64_t *free_bytes)
{
    const uint64_t hold = lockd_max(lockd_member_hold(member), member->next);
    const uint64_t most = hold + (*free_bytes > 0 ? (uint64_t)*free_bytes : 0);
    const uint64_t to = lockd_min(goal, most);

    if (to <= member->next || (to < goal && to - member->next < step))
        return;
    if (to > hold)
        *free_bytes -= (int64_t)(to - hold);
    member->next = to;
}

/* One that needs more than there is gets the demand only when nobody else has anything on the
 * device. */
static uint64_t required(const struct lockd_member *member, uint64_t held_by_all)
{
    const struct lockd_device *device = member->device;

    if (member->demand > device->capacity && member->demand <= device->total &&
        device->holder_count == 1 && held_by_all == lockd_member_hold(member))
        return member->demand;
    return lockd_need(member);
}

/* What a member keeps in any case: all of its memory while it may be running. */
static uint64_t kept(const struct lockd_member *member)
{
    return lockd_member_busy(member) ? lockd_need(member) : member->budget;
}

/* Sets next for all: returns a runner's share of the bytes that nobody needs. */
static uint64_t budget_lower(struct lockd_device *device)
{
    uint64_t used = 0, given = 0, share;

    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        member->next = member->budget;
        used += kept(member);
        given += lockd_less(member->budget, kept(member));
    }
    if (used > device->capacity)
        budget_evict(device, used - device->capacity);
    share = lockd_less(device->capacity, used) / ((uint64_t)device->holder_count + 1);
    share -= share % SHARE_STEP;
    if (used + given <= device->capacity)
        return share;
    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if (lockd_member_busy(member))
            member->next = lockd_min(member->next, member->demand + (member->run ? share : 0));
    }
    return share;
}

void lockd_budget_plan(struct lockd_device *device, uint64_t now)
{
    const uint64_t share = budget_lower(device);
    uint64_t held = 0;
    int64_t free_bytes;

    lockd_list_each (at, &device->members)
        held += lockd_member_hold(lockd_entry(at, struct lockd_member, of_device));
    free_bytes = (int64_t)device->capacity - (int64_t)held;
    lockd_list_each (at, &device->holders) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, holder);
        const uint64_t goal = required(member, held);

        if (goal >
            device->capacity) /* the promise on the sum holds as far as the demand does */
            member->next = lockd_max(member->next, goal);
        else
            budget_raise(member, goal, lockd_min(CREDIT_STEP, member->demand / 8), &free_bytes);
    }
    lockd_list_each (at, &device->holders) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, holder);

        if (member->next >= member->demand && member->next < member->demand + share / 4)
            budget_raise(member, member->demand + share, SHARE_STEP, &free_bytes);
    }
    lockd_list_each (at, &device->members)
        member_send(lockd_entry(at, struct lockd_member, of_device), now);
}
