/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: decides anew after an event: first which gang may form (together.c), then the turns (turns.c), then the budgets (budget.c),
 * then the targets of the members concerned. A decision on one device may concern parties of a
 * gang on others; these devices are planned before the event ends.
 */
#include "lockd/sched/plan.h"

#include "lockd/sched/device.h"
#include "lockd/sched/books.h"
#include "lockd/sched/budget.h"
#include "lockd/sched/capacity.h"
#include "lockd/sched/group.h"
#include "lockd/sched/host.h"
#include "lockd/sched/lease.h"
#include "lockd/sched/measure.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/send.h"
#include "lockd/sched/together.h"
#include "lockd/sched/turns.h"

/* More rounds than any chain of gangs takes; what is left then is looked at a little later. */
#define PLAN_ROUNDS 64

/* Capacity or the meaning of needs changed: everybody's share did. */
static void recount_device(struct sched_device *device, uint64_t now)
{
    device->agenda.recount = false;
    device->turns.generation++;
    lockd_each (struct sched_party, party, &device->parties, of_device) {
        sched_books_party(party, now);
        sched_agenda_mark(party->gang->group);
        if (party->wait.queued_of != NULL)
            sched_agenda_settle(party); /* it may have become hopeless, or not be any more */
    }
}

static void note_deadline(struct sched_device *device)
{
    device->deadline = sched_min(device->grace_at, device->stop_at);
    if (device->waiting.queue.count + device->waiting.hopeless.count != 0)
        device->deadline = sched_min(
            sched_min(device->deadline, device->revoke.at),
            sched_min(device->waiting.again_at, sched_policy_of(device)->back_until(device)));
    if (device->space.short_bytes != 0)
        device->deadline = sched_min(device->deadline, device->space.short_until);
    device->deadline = sched_min(device->deadline, device->told.exact_at);
    device->deadline = sched_min(device->deadline, device->evict_at);
    if (device->told.waiters && !device->turns.waiters)
        device->deadline = sched_min(device->deadline, device->told.quiet_at);
    if (device->space.fell_at != 0)
        device->deadline = sched_min(device->deadline, device->space.fell_at + RISE_PAUSE);
    device->deadline = sched_min(device->deadline, sched_measure_deadline(device));
}

/* A denied program goes last, with all its parties. */
static void put_last(struct sched_client *client, bool last, uint64_t now)
{
    if (client->goes_last == last)
        return;
    client->goes_last = last;
    if (client->class != GS_CLASS_BACKGROUND)
        client->sched->background += last ? 1 : UINT32_MAX;
    lockd_each (struct sched_party, party, &client->gang->parties, of_gang) {
        sched_wanting_note(party);
        party->device->turns.generation++;
    }
    sched_lease_requeue_gang(client->gang, now);
    sched_agenda_settle_gang(client->gang);
}

/* A program of which the card shows nothing goes last with a denied program of its user: else each of
 * many could hold the others up for as long as it takes to deny it. */
static bool is_distrusted(const struct sched_member *member)
{
    const struct sched_device *device = member->device;

    if (member->client->denied != 0)
        return true;
    if (member->evidence.shown != 0 || device->measure.denied == 0)
        return false;
    lockd_each (const struct sched_member, other, &device->members, of_device) {
        if (sched_member_denied(other) && other->client->user == member->client->user)
            return true;
    }
    return false;
}

static void settle_trust(struct sched_device *device, uint64_t now)
{
    if (!device->measure.trust_changed)
        return;
    device->measure.trust_changed = false;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        put_last(member->client, is_distrusted(member), now);
    }
}

static void plan_device(struct sched_device *device, uint64_t now)
{
    settle_trust(device, now);
    sched_device_refresh(device, now);
    if (device->agenda.recount)
        recount_device(device, now);
    if (now < device->measure.settle_until) {
        lockd_list_remove(&device->agenda.pending);
        device->deadline = device->measure.settle_until;
        if (device->space.short_bytes != 0)
            device->deadline = sched_min(device->deadline, device->space.short_until);
        return;
    }
    sched_turns_plan(device, now);
    sched_budget_plan(device, now);
    sched_measure_ask(device, now);
    sched_send_broadcast(device, now);
    while (!lockd_list_empty(&device->agenda.touched)) {
        struct sched_member *member =
            sched_member_of(device->agenda.touched.next, agenda.touched);

        lockd_list_remove(&member->agenda.touched);
        sched_send_member(member, now);
    }
    if (lockd_list_empty(&device->agenda.settle))
        lockd_list_remove(&device->agenda.pending); /* what put it there again has been done */
    note_deadline(device);
}

static void plan_devices(struct sched *sched, uint64_t now)
{
    for (int round = 0;; round++) {
        struct sched_device *device;

        sched_group_plan(sched, now); /* what is planned next may have made one too large */
        sched_together_let_next(sched, now);
        if (lockd_list_empty(&sched->pending))
            return;
        device = lockd_entry(sched->pending.next, struct sched_device, agenda.pending);
        if (round == PLAN_ROUNDS) {
            device->deadline = now + LOOK_AGAIN;
            return;
        }
        lockd_list_remove(&device->agenda.pending);
        plan_device(device, now);
    }
}

void sched_plan_pending(struct sched *sched, uint64_t now)
{
    sched_host_plan(sched, now); /* first: what it decides goes out with the same targets */
    plan_devices(sched, now);
}

void sched_plan(struct sched_device *device, uint64_t now)
{
    sched_agenda_plan(device);
    sched_plan_pending(device->sched, now);
}

void sched_plan_all(struct sched *sched, uint64_t now)
{
    lockd_each (struct sched_device, device, &sched->devices, link)
        sched_agenda_plan(device);
    sched_plan_pending(sched, now);
}
