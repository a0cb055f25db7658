/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_queue.c: who waits for a device, in which order, and who of them is next. The order is
 * the policy's; what cannot stop before it got memory goes before all, and what can never fit
 * waits apart. No state of its own.
 */
#include "lockd/lock_parts.h"

uint64_t lockd_queue_place(const struct lockd_party *party)
{
    return party->queued.in ? party->queued.key : UINT64_MAX;
}

void lockd_queue_drop(struct lockd_party *party)
{
    if (party->queued_of == NULL)
        return;
    lockd_order_remove(party->queued_of, &party->queued);
    party->queued_of = NULL;
    if (party->device->cleared_for == party)
        party->device->cleared_for = NULL;
}

/* Is the one still waiting that its last turn was ended for? It was the head, so it is no
 * further back than the first. */
static bool still_yields(const struct lockd_party *party)
{
    const struct lockd_node *first = lockd_order_first(&party->device->queue);

    if (!party->yields || first == NULL)
        return false;
    return first->key < party->behind_key ||
           (first->key == party->behind_key && first->number <= party->behind_number);
}

/* By the policy, but behind that one. */
static void find_place(struct lockd_party *party)
{
    party->yields = still_yields(party);
    party->queued.key = lockd_device_policy(party->device)->place(party);
    party->queued.number = party->arrival;
    if (!party->yields || party->queued.key > party->behind_key)
        return;
    party->queued.key = party->behind_key;
    party->queued.number = lockd_max(party->queued.number, party->behind_number + 1);
}

void lockd_queue_enter(struct lockd_party *party, uint64_t now)
{
    struct lockd_device *device = party->device;
    struct lockd_order *of = lockd_party_hopeless(party) ? &device->hopeless : &device->queue;
    const bool first = lockd_party_blocked(party);

    if (party->queued_of == of && party->first == first)
        return;
    if (!party->keeps_place && party->queued_of == NULL)
        party->arrival = ++device->clock;
    lockd_queue_drop(party);
    lockd_books_ran(party, now);
    party->first = first;
    party->queued.key = party->queued.number = 0;
    if (!first)
        find_place(party);
    lockd_order_insert(of, &party->queued);
    party->queued_of = of;
    lockd_books_party(party, now);
}

void lockd_queue_leave(struct lockd_party *party, uint64_t now)
{
    const struct lockd_policy *policy = lockd_device_policy(party->device);

    if (party->queued_of == NULL)
        return;
    lockd_books_ran(party, now);
    if (party->interrupts && party->device->cleared_for == party && policy->gave_up != NULL)
        policy->gave_up(party);
    lockd_queue_drop(party);
    lockd_books_party(party, now);
}

/* What stuck ones leave of the device. */
static uint64_t room_for(const struct lockd_party *party)
{
    const struct lockd_device *device = party->device;

    return lockd_less(device->capacity, device->lost - party->lost);
}

/* What its turn takes. With exclusive turns that is all there is: stuck ones cannot be kept
 * off.
 */
uint64_t lockd_queue_takes(const struct lockd_party *party)
{
    const struct lockd_device *device = party->device;

    if (device->lock->settings.exclusive)
        return lockd_max(lockd_min(party->demand, device->capacity), room_for(party));
    return party->need;
}

/* The one to be served next; those that do not fit beside stuck ones keep their places in front
 * of it. What can never fit has its turn only when nobody else has work. */
struct lockd_party *lockd_queue_head(const struct lockd_device *device)
{
    struct lockd_node *first = lockd_order_first(&device->queue);

    for (struct lockd_node *at = first; at != NULL; at = lockd_order_next(at)) {
        struct lockd_party *party = lockd_party_of(at, queued);

        if (lockd_queue_takes(party) <= room_for(party) &&
            (at == first || !party->counted_stuck))
            return party;
    }
    if (first == NULL && device->holder_count == 0)
        first = lockd_order_first(&device->hopeless);
    return first != NULL ? lockd_party_of(first, queued) : NULL;
}
