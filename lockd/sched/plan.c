/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: decides anew after an event: first which gang may form (together.c), then the turns
 * (turns.c), then the budgets (budget.c), then the targets of the members concerned. A decision on
 * one device may concern parties of a gang on others; these devices are planned before the event
 * ends.
 *
 * A target is sent only if it changes something that matters. At most TARGETS_IN_FLIGHT are on the
 * way to a client that does not answer, and one more which ends its budget. Its next report touches
 * it, and what was decided meanwhile is sent then.
 */
#include "lockd/sched/room.h"

/* --- targets --- */

void sched_send_echo(struct sched_member *member, uint64_t now)
{
    uint32_t drop = 0;

    member->sent.ended = false;
    member->sent.unread_since = now;
    while (drop + 1 < member->sent.outstanding_count &&
           member->sent.outstanding[drop].seq < member->report.echoed)
        drop++;
    member->sent.outstanding_count = (uint16_t)(member->sent.outstanding_count - drop);
    for (uint32_t i = 0; i < member->sent.outstanding_count; i++)
        member->sent.outstanding[i] = member->sent.outstanding[i + drop];
}

/* The budgets that a target replaces are kept aside until it is sent: it may yet change, and what
 * counts then is what was really sent before it. */
static void outstanding_push(struct sched_member *member, uint32_t seq, uint64_t budget)
{
    struct sched_outstanding *list = member->sent.outstanding;
    struct sched_member_sent *sent = &member->sent;
    uint32_t count = sent->outstanding_count;

    if (sent->replaced.seq != seq)
        sent->replaced = (struct sched_outstanding){seq, 0};
    if (count > 0 && list[count - 1].seq == seq)
        count--;
    if (sent->replaced.budget > budget) {
        list[count++] = (struct sched_outstanding){seq - 1, sent->replaced.budget};
        sent->replaced.budget = 0;
    }
    for (; count > 0 && list[count - 1].budget <= budget; count--)
        sent->replaced.budget = sched_max(sent->replaced.budget, list[count - 1].budget);
    list[count] = (struct sched_outstanding){seq, budget};
    sent->outstanding_count = (uint16_t)(count + 1);
}

static bool is_different(uint64_t a, uint64_t b, uint64_t tolerance)
{
    return sched_less(a, b) > tolerance || sched_less(b, a) > tolerance;
}

static uint64_t most_for(const struct sched_member *member)
{
    return sched_min(member->sent.told_capacity, sched_member_limit(member));
}

/* External that only another user's programs have said is no reason to refuse the member memory. */
static void tell_capacity(struct sched_member *member, uint64_t most)
{
    const struct sched_device *device = member->device;

    member->sent.doubts = sched_measure_is_word(member);
    member->sent.told_capacity =
        member->sent.doubts ? sched_less(device->measure.total, sched_device_reserve(device))
                            : most;
}

/* A member that is asked to stop keeps its flag for waiters: an idle member that was stopped
 * because others wait would say WANT again until it has stopped, if it heard that no party
 * waits. */
static uint32_t flags_for(const struct sched_member *member)
{
    const bool run = sched_member_run(member);
    const bool waiters =
        run ? member->device->told.waiters : (member->sent.flags & GS_TARGET_WAITERS) != 0;

    return (run ? GS_TARGET_RUN : 0) | (waiters ? GS_TARGET_WAITERS : 0) |
           (member->beyond ? GS_TARGET_BEYOND : 0) |
           (!run && sched_party_shut_out(member->party) ? GS_TARGET_FULL : 0) |
           (member->device->member_count == 1 ? GS_TARGET_SOLE : 0) |
           (member->party->gang->paused != 0 ? GS_TARGET_PAUSED : 0);
}

/* Where no turns are taken and programs may move to other devices: how long a program has done
 * nothing when it says so. */
static uint64_t idle_in_open(const struct sched_device *device)
{
    return device->sched->settings.balance ? TELL_PAUSE : 0;
}

/* Puts out a target if it would differ from the newest in something that matters. */
static void send_member(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    const bool first = member->sent.seq == member->sent.first_seq;
    const uint32_t flags = flags_for(member);
    /* how long it may idle before it says so: its turn ends by that while others wait, and its
     * bursts are known by it in any case; 0: not asked */
    const uint64_t idle = device->turns.leases || (flags & GS_TARGET_WAITERS) != 0
                              ? sched_party_idle(member->party)
                              : idle_in_open(device);
    const bool answers =
        member->report.asked != member->sent.answered && member->report.asked_at == 0;
    const bool again =
        answers || member->agenda.asked ||
        (sched_member_stuck(member, now) && member->report.echoed == member->sent.seq &&
         now - member->sent.at >= 2 * SILENT);

    if (first || /* it allocates by that: not what the others have still to hear */
        (answers && sched_device_most(device) > member->sent.told_capacity) ||
        member->sent.doubts != sched_measure_is_word(member))
        tell_capacity(member, sched_device_most(device));
    if (!first && !again && flags == member->sent.flags &&
        member->budget == member->sent.budget &&
        member->client->host.budget == member->sent.host &&
        !is_different(idle, member->sent.idle, idle / 2) &&
        device->told.shortfall == member->sent.shortfall &&
        most_for(member) == member->sent.capacity)
        return;
    if (lockd_list_empty(&member->sent.unsent)) {
        if (member->sent.seq - member->report.echoed >=
            (member->sent.ended ? TARGETS_IN_FLIGHT + 1 : TARGETS_IN_FLIGHT))
            return;
        if (member->sent.seq == member->report.echoed)
            member->sent.unread_since = now;
        member->sent.seq++;
        member->sent.had = member->sent.outstanding[0].budget;
        lockd_list_append(&device->sched->unsent, &member->sent.unsent);
    }
    member->agenda.asked = false;
    if (((flags ^ member->sent.flags) & GS_TARGET_RUN) != 0 ||
        member->budget != member->sent.budget)
        member->sent.turn_seq = member->sent.seq;
    if ((flags & GS_TARGET_RUN) == 0 && (member->sent.flags & GS_TARGET_RUN) != 0)
        member->sent.stop_seq = member->sent.seq;
    if ((flags & ~member->sent.flags & GS_TARGET_RUN) != 0)
        member->sent.run_seq = member->sent.seq;
    if ((~flags & member->sent.flags & GS_TARGET_BEYOND) != 0)
        member->sent.back_seq = member->sent.seq;
    outstanding_push(member, member->sent.seq, member->budget);
    member->sent.flags = flags;
    member->sent.budget = member->budget;
    member->sent.given = sched_max(member->sent.given, member->budget);
    member->sent.capacity = most_for(member);
    if (answers)
        member->sent.answered = member->report.asked;
    member->sent.idle = idle;
    member->sent.host = member->client->host.budget;
    member->sent.shortfall = device->told.shortfall;
    member->sent.at = now;
    sched_books_member(member, now);
    if (sched_member_busy(member) && !member->party->turn.held)
        sched_sooner(&device->stop_at, now + 2 * SILENT);
}

/* When changes are to be told: small changes wait a little for more of them, and none comes so
 * soon after the last that a program which says something else each time keeps all others busy. */
static uint64_t time_to_tell(const struct sched_device *device, uint64_t idle, uint64_t most,
                             uint64_t shortfall, uint64_t now)
{
    if (device->told.at == 0 || (device->member_count == 1) != device->told.sole)
        return now;
    if (is_different(idle, device->told.idle, idle / 2) ||
        is_different(most, device->told.capacity, device->measure.total / 64) ||
        is_different(shortfall, device->told.shortfall, device->measure.total / 16))
        return device->told.at + TELL_PAUSE;
    return most != device->told.capacity || shortfall != device->told.shortfall ? now + REPEAT
                                                                                : LOCKD_NEVER;
}

/* Touches all members that must be told of a change to the device. */
static void send_broadcast(struct sched_device *device, uint64_t now)
{
    const uint64_t idle = device->turns.leases || device->turns.waiters
                              ? sched_device_idle(device)
                              : idle_in_open(device);
    const uint64_t most = sched_device_most(device);
    const uint64_t shortfall = sched_less(device->books.sum.demand, device->space.capacity);
    const uint64_t at = time_to_tell(device, idle, most, shortfall, now);

    /* holders hear at once that a party waits; that none does can wait, since waiters come and go */
    if (device->turns.waiters != device->told.waiters &&
        (!device->told.waiters || now >= device->told.quiet_at)) {
        device->told.waiters = device->turns.waiters;
        lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
            lockd_each (struct sched_member, member, &party->members, of_party)
                sched_agenda_touch(member);
        }
    }
    device->told.exact_at = at == LOCKD_NEVER ? at : sched_min(at, device->told.exact_at);
    if (now < device->told.exact_at)
        return;
    device->told.exact_at = LOCKD_NEVER;
    device->told.at = now;
    device->told.idle = idle;
    device->told.capacity = most;
    device->told.shortfall = shortfall;
    device->told.sole = device->member_count == 1;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        tell_capacity(member, most);
        sched_agenda_touch(member);
    }
}

bool sched_next_send(struct sched *sched, struct sched_send *send)
{
    struct sched_member *member;

    if (lockd_list_empty(&sched->unsent))
        return false;
    member = lockd_entry(sched->unsent.next, struct sched_member, sent.unsent);
    lockd_list_remove(&member->sent.unsent);
    memset(send, 0, sizeof *send);
    send->owner = member->client->owner;
    memcpy(send->target.uuid, member->device->uuid, sizeof send->target.uuid);
    send->target.seq = member->sent.seq;
    send->target.flags = member->sent.flags;
    send->target.budget = member->sent.budget;
    send->target.capacity = member->sent.capacity;
    send->target.answered = member->sent.answered;
    send->target.idle_ns = member->sent.idle;
    send->target.host_budget = member->sent.host;
    send->target.shortfall = member->sent.shortfall;
    send->rise =
        sched_less(member->sent.budget, sched_max(member->sent.had, member->report.claimed));
    return true;
}

/* --- plans --- */

/* Capacity or the meaning of needs changed: everybody's share did. */
static void recount_device(struct sched_device *device, uint64_t now)
{
    device->agenda.recount = false;
    device->turns.generation++;
    lockd_each (struct sched_party, party, &device->parties, of_device) {
        sched_books_party(party, now);
        sched_agenda_mark(party->gang->group);
        if (party->wait.queued.of == NULL)
            continue;
        sched_agenda_settle(party); /* it may have become hopeless, or not be any more */
        lockd_each (struct sched_member, member, &party->members, of_party)
            sched_agenda_touch(member);
    }
}

static void note_deadline(struct sched_device *device, uint64_t now)
{
    device->deadline = sched_min(device->grace_at, device->stop_at);
    sched_sooner(&device->deadline, device->told.exact_at);
    sched_sooner(&device->deadline, device->evict_at);
    /* what this plan stopped may have been due to be asked about before it */
    sched_sooner(&device->deadline,
                 sched_max(sched_measure_deadline(device), now + LOOK_AGAIN));
    if (device->waiting.queue.count + device->waiting.apart.count != 0) {
        sched_sooner(&device->deadline, device->revoke.at);
        sched_sooner(&device->deadline, device->waiting.again_at);
        sched_sooner(&device->deadline, sched_policy_of(device)->back_until(device));
    }
    if (device->space.short_bytes != 0)
        sched_sooner(&device->deadline, device->space.short_until);
    if (device->told.waiters && !device->turns.waiters)
        sched_sooner(&device->deadline, device->told.quiet_at);
    if (device->space.fell_at != 0)
        sched_sooner(&device->deadline, device->space.fell_at + REPEAT / 2);
}

void sched_plan_last(struct sched_member *member, bool last, uint64_t now)
{
    struct sched_client *client = member->client;
    const bool before = client->last != 0;

    if (member->evidence.last == last)
        return;
    member->evidence.last = last;
    client->last += last ? 1 : UINT32_MAX;
    if (before == (client->last != 0))
        return;
    if (client->set.class != GS_CLASS_BACKGROUND)
        client->sched->background += last ? 1 : UINT32_MAX;
    sched_lease_requeue_gang(client->gang, now);
}

/* A program that the card contradicts goes last, and with it those of its user of which the card shows
 * nothing: else each of many could hold the others up for as long as it takes to deny it. The word of
 * another user's program costs it no turn. */
static bool is_distrusted(const struct sched_member *member)
{
    const struct sched_device_measure *measure = &member->device->measure;

    if (measure->card_at == 0 || measure->denied == 0)
        return false;
    lockd_each (const struct sched_member, other, &member->device->members, of_device) {
        if (sched_member_denied(other) &&
            (other == member ||
             (member->evidence.shown == 0 && other->client->user == member->client->user)))
            return true;
    }
    return false;
}

static void plan_device(struct sched_device *device, uint64_t now)
{
    if (device->measure.trust_changed) {
        device->measure.trust_changed = false;
        lockd_each (struct sched_member, member, &device->members, of_device)
            sched_plan_last(member, is_distrusted(member), now);
    }
    sched_device_refresh(device, now);
    if (device->agenda.recount)
        recount_device(device, now);
    if (now < device->measure.settle_until) {
        lockd_list_remove(&device->agenda.pending);
        device->deadline = device->measure.settle_until;
        if (device->space.short_bytes != 0)
            sched_sooner(&device->deadline, device->space.short_until);
        return;
    }
    do {
        sched_turns_plan(device, now);
        sched_budget_plan(device, now);
    } while (sched_measure_ask(device, now));
    sched_measure_answer(device, now);
    send_broadcast(device, now);
    while (!lockd_list_empty(&device->agenda.touched)) {
        struct sched_member *member =
            sched_member_of(device->agenda.touched.next, agenda.touched);

        lockd_list_remove(&member->agenda.touched);
        send_member(member, now);
    }
    if (lockd_list_empty(&device->agenda.settle))
        lockd_list_remove(&device->agenda.pending); /* what put it there again has been done */
    note_deadline(device, now);
}

void sched_plan(struct sched *sched, uint64_t now)
{
    sched_host_plan(sched, now); /* first: what it decides goes out with the same targets */
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
