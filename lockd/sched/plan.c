/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: decides anew after an event: first who runs (turns.c), then who holds how
 * much (budget.c), then the targets of those whom it concerns. A decision on one device
 * may concern a gang's parties on others; these devices are planned before the event ends.
 */
#include "lockd/sched/parts.h"

/* More rounds than any chain of gangs takes; what is left then is looked at a little later. */
#define ROUNDS 64
#define LATER  NS_PER_MS

void lockd_plan_also(struct lockd_device *device)
{
    if (lockd_list_empty(&device->pending))
        lockd_list_append(&device->lock->pending, &device->pending);
}

void lockd_plan_touch(struct lockd_member *member)
{
    if (lockd_list_empty(&member->touched))
        lockd_list_append(&member->device->touched, &member->touched);
    lockd_plan_also(member->device);
}

void lockd_plan_settle(struct lockd_party *party)
{
    if (lockd_list_empty(&party->settle))
        lockd_list_append(&party->device->settle, &party->settle);
    lockd_plan_also(party->device);
}

/* Capacity or the meaning of needs changed: everybody's share did. */
static void recount(struct lockd_device *device, uint64_t now)
{
    device->recount = false;
    device->generation++;
    lockd_list_each (at, &device->parties) {
        struct lockd_party *party = lockd_party_of(at, of_device);

        lockd_books_party(party, now);
        lockd_group_mark(party->gang->group);
        if (party->queued_of != NULL)
            lockd_plan_settle(party); /* it may have become hopeless, or not be any more */
    }
}

static void note_deadline(struct lockd_device *device)
{
    device->deadline = lockd_min(device->grace_at, device->stop_at);
    if (device->queue.count + device->hopeless.count != 0)
        device->deadline = lockd_min(device->deadline, device->revoke_at);
    if (device->short_bytes != 0)
        device->deadline = lockd_min(device->deadline, device->short_until);
    device->deadline = lockd_min(device->deadline, device->exact_at);
    device->deadline = lockd_min(device->deadline, device->evict_at);
    if (device->told_waiters && !device->waiters)
        device->deadline = lockd_min(device->deadline, device->quiet_at);
    if (device->fell_at != 0)
        device->deadline = lockd_min(device->deadline, device->fell_at + RISE_PAUSE);
    device->deadline = lockd_min(device->deadline, lockd_measure_deadline(device));
    if (device->doubt.by != NULL && !device->doubt.asked)
        device->deadline = lockd_min(device->deadline, device->doubt.ask_at);
}

static void plan_one(struct lockd_device *device, uint64_t now)
{
    lockd_device_refresh(device, now);
    if (device->recount)
        recount(device, now);
    if (now < device->settle_until) {
        lockd_list_remove(&device->pending);
        device->deadline = device->settle_until;
        if (device->short_bytes != 0)
            device->deadline = lockd_min(device->deadline, device->short_until);
        return;
    }
    lockd_turns_plan(device, now);
    lockd_budget_plan(device, now);
    lockd_measure_ask(device, now);
    lockd_send_broadcast(device, now);
    while (!lockd_list_empty(&device->touched)) {
        struct lockd_member *member = lockd_member_of(device->touched.next, touched);

        lockd_list_remove(&member->touched);
        lockd_send_member(member, now);
    }
    if (lockd_list_empty(&device->settle))
        lockd_list_remove(&device->pending); /* what put it there again has been done */
    note_deadline(device);
}

static void plan_devices(struct lockd_lock *lock, uint64_t now)
{
    for (int round = 0;; round++) {
        struct lockd_device *device;

        lockd_group_plan(lock, now); /* what is planned next may have made one too large */
        if (lockd_list_empty(&lock->pending))
            return;
        device = lockd_entry(lock->pending.next, struct lockd_device, pending);
        if (round == ROUNDS) {
            device->deadline = now + LATER;
            return;
        }
        lockd_list_remove(&device->pending);
        plan_one(device, now);
    }
}

void lockd_plan_pending(struct lockd_lock *lock, uint64_t now)
{
    lockd_host_plan(lock, now); /* first: what it decides goes out with the same targets */
    plan_devices(lock, now);
}

void lockd_plan(struct lockd_device *device, uint64_t now)
{
    lockd_plan_also(device);
    lockd_plan_pending(device->lock, now);
}

void lockd_plan_all(struct lockd_lock *lock, uint64_t now)
{
    lockd_list_each (at, &lock->devices)
        lockd_plan_also(lockd_entry(at, struct lockd_device, link));
    lockd_plan_pending(lock, now);
}
