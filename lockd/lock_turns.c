/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_turns.c: decides who runs. When all demands fit, everybody does. When they do not, turns
 * are taken: holders keep theirs for a quantum while anybody waits, and the head of the queue
 * is who comes next.
 *
 * Invariants: the needs of all that run, or may not have stopped yet, never exceed the capacity
 * once a plan is done, except by what running programs have grown since they were admitted;
 * that is given back by stopping someone. The queue is in order of arrival; only the head makes
 * others stop, and what was admitted past it gives way to it at once, so the head waits for one
 * quantum at most. This is round robin; other policies replace queue_head() and revocable().
 */
#include "lockd/lock_state.h"

static void look_again(struct lockd_device *device, uint64_t when)
{
    device->deadline = lockd_min(device->deadline, when);
}

bool lockd_member_stuck(const struct lockd_member *member, uint64_t now)
{
    if (member->run || !lockd_member_busy(member))
        return false;
    return (member->flags & GS_STATE_STUCK) != 0 || now - member->stopped >= GRACE;
}

static void enqueue(struct lockd_member *member)
{
    if (!lockd_list_empty(&member->queued))
        return;
    lockd_list_append(&member->device->queue, &member->queued);
    member->device->queue_count++;
}

static void dequeue(struct lockd_member *member)
{
    if (lockd_list_empty(&member->queued))
        return;
    lockd_list_remove(&member->queued);
    member->device->queue_count--;
}

static void admit(struct lockd_member *member, bool backfilled, uint64_t now)
{
    dequeue(member);
    member->run = true;
    member->backfilled = backfilled;
    member->progress = now;
    member->started = (member->flags & GS_STATE_RUNNING) != 0 ? now : 0;
    lockd_list_append(&member->device->holders, &member->holder);
    member->device->holder_count++;
    if (member->device->leases)
        member->turns++;
}

static void stop(struct lockd_member *member, uint64_t now)
{
    member->run = false;
    member->stopped = now;
    member->backfilled = false;
    lockd_list_remove(&member->holder);
    member->device->holder_count--;
    if (lockd_member_wants(member))
        enqueue(member);
}

void lockd_turns_forget(struct lockd_member *member)
{
    dequeue(member);
    if (member->run) {
        lockd_list_remove(&member->holder);
        member->device->holder_count--;
    }
}

/* Must it give way when the head of the queue needs its room? */
static bool revocable(const struct lockd_member *member, uint64_t now)
{
    if (member->backfilled || lockd_member_hopeless(member))
        return true;
    return member->started != 0 &&
           now - member->started >= lockd_device_quantum(member->device);
}

bool lockd_device_waiters(const struct lockd_device *device)
{
    for (const struct lockd_list *at = device->queue.next; at != &device->queue;
         at = at->next) {
        if (!lockd_member_hopeless(lockd_entry(at, struct lockd_member, queued)))
            return true;
    }
    return false;
}

/* Everybody runs but the paused. */
static void turns_open(struct lockd_device *device, uint64_t now)
{
    device->leases = false;
    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        dequeue(member);
        if (member->client->paused && member->run)
            stop(member, now);
        else if (!member->client->paused && !member->run)
            admit(member, false, now);
        member->backfilled = false;
    }
}

static void turns_enqueue(struct lockd_device *device, uint64_t now)
{
    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if (member->run && member->client->paused)
            stop(member, now);
        if (lockd_member_wants(member) && !member->run)
            enqueue(member);
        else
            dequeue(member);
    }
}

/* Sum of what the holders need; with stopping, also of those that have not stopped yet. */
static uint64_t needs(const struct lockd_device *device, bool stopping)
{
    uint64_t sum = 0;

    for (const struct lockd_list *at = device->members.next; at != &device->members;
         at = at->next) {
        const struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if (member->run || (stopping && lockd_member_busy(member)))
            sum += lockd_need(member);
    }
    return sum;
}

/* How little is lost when it stops; -1: nothing is won. */
static int overflow_rank(const struct lockd_member *member)
{
    if (lockd_need(member) == 0)
        return -1;
    if (!lockd_member_wants(member))
        return 3;
    if (member->demand > member->budget)
        return 2;
    return (member->flags & GS_STATE_RUNNING) == 0 ? 1 : 0;
}

/* Programs grew, or the device shrank, until the holders no longer fit together: stop idle
 * ones, then the one that needs more than it was given (it cannot run anyway), then the one
 * that came last. */
static void turns_overflow(struct lockd_device *device, uint64_t now)
{
    uint64_t sum = needs(device, false);

    while (sum > device->capacity && device->holder_count > 1) {
        struct lockd_member *victim = NULL;
        int rank = -1;

        lockd_list_each (at, &device->holders) {
            struct lockd_member *member = lockd_entry(at, struct lockd_member, holder);
            const int mine = overflow_rank(member);

            if (mine >= rank && mine >= 0) {
                rank = mine;
                victim = member;
            }
        }
        if (victim == NULL)
            return;
        sum -= lockd_need(victim);
        stop(victim, now);
    }
}

/* How long a holder may get nowhere. Short when the driver itself has no memory for it and the
 * books agree: then something that cannot be moved is in the way. */
static uint64_t patience(const struct lockd_member *member)
{
    const bool lacks = (member->flags & GS_STATE_SHORT) != 0;

    return lacks && member->demand > member->device->capacity ? GRACE_SHORT : GRACE;
}

/* While others wait: an idle holder gives back at once, and one that does not get ahead is
 * passed over. */
static void turns_grace(struct lockd_device *device, uint64_t now)
{
    if (!lockd_device_waiters(device))
        return;
    lockd_list_each (at, &device->holders) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, holder);

        if (!lockd_member_wants(member)) {
            stop(member, now);
        } else if ((member->flags & GS_STATE_RUNNING) == 0) {
            if (now - member->progress >= patience(member)) {
                member->skipped = true;
                stop(member, now);
            } else {
                look_again(device, member->progress + patience(member));
            }
        }
    }
}

/* The one to be served next. What can never fit has its turn only when nobody else has work. */
static struct lockd_member *queue_head(struct lockd_device *device)
{
    struct lockd_member *hopeless = NULL;

    lockd_list_each (at, &device->queue) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, queued);

        if (!lockd_member_hopeless(member))
            return member;
        if (hopeless == NULL)
            hopeless = member;
    }
    return device->holder_count == 0 ? hopeless : NULL;
}

/* Admits from the head of the queue as long as it fits beside all others. Returns the head that
 * does not, or NULL. */
static struct lockd_member *turns_serve(struct lockd_device *device, uint64_t now)
{
    uint64_t sum = needs(device, true);
    struct lockd_member *head;

    while ((head = queue_head(device)) != NULL) {
        const uint64_t own = lockd_member_busy(head) ? lockd_need(head) : 0;

        if (sum - own + lockd_need(head) > device->capacity)
            return head;
        sum = sum - own + lockd_need(head);
        admit(head, false, now);
    }
    return NULL;
}

/* The one to stop when so many bytes are missing: the first in order that is enough alone, else
 * the one that frees most. */
static struct lockd_member *revoke_pick(struct lockd_device *device, uint64_t missing,
                                        uint64_t now)
{
    struct lockd_member *pick = NULL;

    lockd_list_each (at, &device->holders) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, holder);

        if (lockd_need(member) == 0 || !revocable(member, now))
            continue;
        if (lockd_need(member) >= missing)
            return member;
        if (pick == NULL || lockd_need(member) > lockd_need(pick))
            pick = member;
    }
    return pick;
}

/* Stops those whose time is over, if that makes room for the head. Returns whether somebody is
 * on the way out. */
static bool turns_revoke(struct lockd_device *device, struct lockd_member *head, uint64_t now)
{
    uint64_t staying = lockd_need(head), freeable = 0;
    struct lockd_member *victim;
    bool leaving = false;

    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if (member == head || !lockd_member_busy(member))
            continue;
        if (member->run || lockd_member_stuck(member, now))
            staying += lockd_need(member);
        else
            leaving = true;
        if (member->run && revocable(member, now))
            freeable += lockd_need(member);
        else if (member->run && member->started != 0)
            look_again(device, member->started + lockd_device_quantum(device));
    }
    if (staying - freeable > device->capacity)
        return leaving;
    while (staying > device->capacity) {
        victim = revoke_pick(device, staying - device->capacity, now);
        if (victim == NULL)
            return leaving;
        staying -= lockd_need(victim);
        stop(victim, now);
    }
    return true;
}

/* The head has to wait: who fits beside the holders, and leaves the head's own memory where it
 * is, may run meanwhile. */
static void turns_backfill(struct lockd_device *device, struct lockd_member *head, uint64_t now)
{
    uint64_t sum = needs(device, true);

    if (!lockd_member_busy(head))
        sum += lockd_min(head->resident, head->budget);
    lockd_list_each (at, &device->queue) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, queued);

        if (member == head || lockd_member_busy(member) || lockd_member_hopeless(member) ||
            sum + lockd_need(member) > device->capacity)
            continue;
        sum += lockd_need(member);
        admit(member, true, now);
    }
}

/* A stuck program is asked again, as long as it still listens; lock_budget.c sends when sent_at
 * is old enough. */
static void turns_stopping(struct lockd_device *device, uint64_t now)
{
    lockd_list_each (at, &device->members) {
        struct lockd_member *member = lockd_entry(at, struct lockd_member, of_device);

        if (member->run || !lockd_member_busy(member))
            continue;
        if (!lockd_member_stuck(member, now))
            look_again(device, member->stopped + GRACE);
        else if (member->echoed == member->seq && member->sent_at + ASK_AGAIN > now)
            look_again(device, member->sent_at + ASK_AGAIN);
    }
}

void lockd_turns_plan(struct lockd_device *device, uint64_t now)
{
    struct lockd_member *head;

    if (device->demand <= device->capacity) {
        turns_open(device, now);
    } else {
        device->leases = true;
        turns_enqueue(device, now);
        turns_overflow(device, now);
        turns_grace(device, now);
        head = turns_serve(device, now);
        if (head != NULL && !turns_revoke(device, head, now))
            turns_backfill(device, head, now);
    }
    turns_stopping(device, now);
}
