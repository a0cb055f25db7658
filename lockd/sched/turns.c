/* SPDX-License-Identifier: Apache-2.0
 *
 * turns.c: the turns on a device. When all demands fit, every program runs. When they do not,
 * or turns were asked for, or background programs share the device with others, a holder keeps
 * its turn while others wait for as long as the policy says. Then the head of the queue comes
 * next.
 *
 * Invariants: once a plan is done, the needs of all parties that run, or may not have stopped
 * yet, exceed the capacity by nothing but the growth of running programs since their
 * admission; stopping one of them gives that back. Only the head makes others stop. A party
 * that was admitted past the head gives way to it at once, so the head waits for one turn at
 * most.
 *
 * A party that was asked to stop and cannot before it gets more memory is the head, whatever
 * the policy: no other party gets the room that it has. Holders that do not run give way to
 * it, since they may lack what it has; a holder that runs does so when its turn is over.
 *
 * The looks at all holders (which to stop for the head, which make no progress) are made only
 * when something changed since the last look, or when their time has come.
 */
#include "lockd/sched/room.h"

/* --- what one party does --- */

/* The party will want the device when it has its places on the devices before. Parties that run
 * here meanwhile do so at its cost. */
static void wait_elsewhere(struct sched_party *party, bool waits, uint64_t now)
{
    if (party->wait.elsewhere == waits)
        return;
    sched_books_device_ran(party->device, now);
    party->wait.elsewhere = waits;
    party->device->turns.elsewhere += waits ? 1 : UINT32_MAX;
}

static void settle_open(struct sched_party *party, uint64_t now)
{
    struct sched_gang *gang = party->gang;

    wait_elsewhere(party, false, now);
    sched_queue_leave(party, now);
    party->turn.backfilled = false;
    if (sched_gang_is_held_off(gang)) {
        if (party->turn.held)
            sched_lease_end(gang, now);
    } else if (!party->turn.held && sched_lease_next(gang) == party &&
               (!gang->out || gang->wanting != 0)) {
        sched_lease_admit(party, false, now);
    }
}

static void settle_leases(struct sched_party *party, uint64_t now)
{
    struct sched_gang *gang = party->gang;
    const struct sched_party *next = sched_lease_next(gang);
    const bool wants = sched_gang_wants(gang);

    wait_elsewhere(party, wants && !party->turn.held && next != party, now);
    if (party->turn.held) {
        /* or a party before it has no place: only a new daemon's clients come like that */
        if (sched_gang_is_held_off(gang) ||
            (!wants && (party->device->turns.waiters || !gang->runs)) ||
            (next != NULL &&
             memcmp(next->device->uuid, party->device->uuid, sizeof party->device->uuid) < 0))
            sched_lease_end(gang, now);
    } else if (wants && next == party) {
        sched_queue_enter(party, now);
    } else {
        sched_queue_leave(party, now);
    }
}

static void settle_parties(struct sched_device *device, uint64_t now)
{
    while (!lockd_list_empty(&device->agenda.settle)) {
        struct sched_party *party = sched_party_of(device->agenda.settle.next, settle);

        lockd_list_remove(&party->settle);
        if (device->turns.leases)
            settle_leases(party, now);
        else
            settle_open(party, now);
    }
}

/* --- the head of the queue and the holders --- */

/* A background program that cannot stop before it gets memory keeps the turn that it gets for
 * that, as any other program does: if others ended that turn, it would get the next turn at
 * once. */
static bool is_behind(const struct sched_party *party)
{
    return party->gang->blocked == 0 && sched_party_is_background(party);
}

/* A background program runs beside background programs only ... */
static bool stays_behind(const struct sched_device *device, const struct sched_party *party)
{
    return device->wanting.weights != 0 && is_behind(party);
}

/* ... and leaves at once when another program comes, also where there is room for both. So does a
 * gang whose forming turn is over. */
static void stop_early(struct sched_device *device, uint64_t now)
{
    if (device->sched->background == 0 && lockd_list_empty(&device->sched->forming.gangs))
        return;
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        if ((stays_behind(device, party) || party->gang->forming.over) &&
            sched_together_stop(party->gang, device, now))
            sched_lease_end(party->gang, now);
    }
}

/* Admits from the head of the queue as long as it fits beside all others. Returns the head that
 * does not, or NULL. */
static struct sched_party *serve_queue(struct sched_device *device, uint64_t now)
{
    struct sched_party *head;

    while ((head = sched_queue_head(device)) != NULL) {
        if (!sched_queue_has_room(head) || stays_behind(device, head))
            return head;
        sched_lease_admit(head, false, now);
        settle_parties(device, now);
    }
    return NULL;
}

/* From when on `head` may end its turn before its time. */
static uint64_t ahead_at(const struct sched_party *party, const struct sched_party *head,
                         uint64_t now)
{
    const struct sched_policy *policy = sched_policy_of(party->device);

    if (policy->ahead == NULL || party->wait.first)
        return LOCKD_NEVER;
    return policy->ahead(head, party, now);
}

/* Must it give way when the head of the queue needs its room, whatever else happens? */
static bool is_over(const struct sched_party *party, const struct sched_party *head,
                    uint64_t now)
{
    const struct sched_policy *policy = sched_policy_of(party->device);

    if (party->turn.backfilled || sched_party_hopeless(party) ||
        (is_behind(party) && !sched_party_is_background(head)))
        return true;
    if (sched_party_blocked(head) && party->books.running_members == 0)
        return true; /* it may itself wait for what the head has */
    if (now >= party->turn.until && !party->gang->runs)
        return true;
    return now >= party->turn.until &&
           (policy->stays == NULL || head->wait.first || !policy->stays(party, head));
}

/* ... or because the policy lets the head end its turn before its time? */
static bool is_revocable(const struct sched_party *party, const struct sched_party *head,
                         uint64_t now)
{
    if (is_over(party, head, now))
        return true;
    if (now >= party->turn.until)
        return false;
    /* A member that was stuck before this turn, and has not said otherwise since, would free nothing
     * if the turn ended now. */
    return now >= ahead_at(party, head, now) && !sched_party_has(party, GS_STATE_STUCK);
}

uint64_t sched_turn_ends_at(const struct sched_party *holder, const struct sched_party *head,
                            uint64_t now)
{
    const struct sched_policy *policy = sched_policy_of(holder->device);
    const bool stays = policy->stays != NULL && holder->gang->runs && !head->wait.first &&
                       policy->stays(holder, head);

    if (is_over(holder, head, now))
        return now;
    return stays || holder->turn.until <= now ? LOCKD_NEVER : holder->turn.until;
}

/* The holder to stop when so many bytes are missing: the first in order that is enough alone,
 * else the holder that frees most. */
static struct sched_party *revoke_pick(struct sched_device *device,
                                       const struct sched_party *head, uint64_t missing,
                                       uint64_t now)
{
    struct sched_party *pick = NULL;

    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        if (sched_party_leaves(party) == 0 || !is_revocable(party, head, now))
            continue;
        if (sched_party_leaves(party) >= missing)
            return party;
        if (pick == NULL || sched_party_leaves(party) > sched_party_leaves(pick))
            pick = party;
    }
    return pick;
}

/* Is a party on the way out, so that there will be room? */
static bool is_anybody_leaving(const struct sched_device *device,
                               const struct sched_party *head)
{
    uint32_t count = device->books.stopping_parties - device->books.stuck_parties;

    count -= sched_party_runs_on(head);
    return count != 0;
}

/* The bytes that all revocable holders would free. Notes when there will be more of them. */
static uint64_t freeable_bytes(struct sched_device *device, const struct sched_party *head,
                               uint64_t now)
{
    uint64_t sum = 0;

    device->revoke.at = LOCKD_NEVER;
    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        if (is_revocable(party, head, now))
            sum += sched_party_leaves(party);
        else if (now < party->turn.until) /* an estimate may move on as the time does */
            sched_sooner(&device->revoke.at,
                         sched_min(party->turn.until,
                                   sched_max(ahead_at(party, head, now), now + LOOK_PAUSE)));
    }
    return sum;
}

/* Ends the turn of the victim's gang for the head. Where its time was not over it comes back to
 * its old place, on all its devices; but here behind the head, whatever the policy says: else
 * it would be served first, and stopped again at once, for ever. */
static void end_turn(struct sched_party *victim, struct sched_party *head, uint64_t now)
{
    const bool cut = now < victim->turn.until; /* it has none before it has come to run */
    const bool interrupted = cut && !victim->turn.backfilled;
    const struct sched_policy *policy = sched_policy_of(victim->device);

    lockd_each (struct sched_party, party, &victim->gang->parties, of_gang) {
        party->wait.keeps_place = cut;
        party->turn.interrupted = interrupted;
    }
    victim->wait.yields = true;
    victim->wait.behind_key = head->wait.queued.key;
    victim->wait.behind_number = head->wait.queued.number;
    victim->wait.behind_arrival = head->wait.arrival;
    if (interrupted) {
        victim->device->waiting.back = victim;
        if (policy->cut != NULL)
            policy->cut(victim);
    }
    head->turn.interrupts = head->turn.interrupts || interrupted;
    sched_lease_end(victim->gang, now);
}

/* Stops those whose time is over, if that makes room for the head. Returns whether somebody is
 * on the way out. */
static bool revoke_holders(struct sched_device *device, struct sched_party *head, uint64_t now)
{
    const uint64_t needs = sched_queue_lost(head) + sched_queue_takes(head);
    uint64_t staying = device->books.need_held + needs;
    struct sched_party *victim;

    if (device->revoke.head == head && device->revoke.generation == device->turns.generation &&
        device->revoke.need == needs && now < device->revoke.at)
        return is_anybody_leaving(device, head);
    if (staying - sched_min(staying, freeable_bytes(device, head, now)) >
        device->space.capacity) {
        device->revoke.head = head;
        device->revoke.generation = device->turns.generation;
        device->revoke.need = needs;
        return is_anybody_leaving(device, head);
    }
    if (device->cleared.party != head && staying > device->space.capacity) {
        device->cleared.party = head;
        device->cleared.at = now;
    }
    while (staying > device->space.capacity) {
        victim = revoke_pick(device, head, staying - device->space.capacity, now);
        if (victim == NULL)
            return is_anybody_leaving(device, head);
        if (!sched_together_stop(victim->gang, device, now)) {
            device->revoke.head = NULL; /* look again with each plan */
            return true;
        }
        end_turn(victim, head, now);
        staying = device->books.need_held + sched_queue_lost(head) + sched_queue_takes(head);
    }
    return true;
}

/* The first in the queue that needs no more than that. A party that is still stopping, or waits on
 * other devices, too, runs past nobody. */
static struct sched_party *find_small(const struct sched_device *device, uint64_t most)
{
    sched_each_queued (party, &device->waiting.queue) {
        if (!sched_party_busy(party) && party->gang->party_count == 1 &&
            party->books.need <= most)
            return party;
    }
    return NULL;
}

/* The head has to wait: a party that fits beside the holders, and leaves the head's own memory
 * where it is, may run meanwhile. */
static void backfill_queue(struct sched_device *device, const struct sched_party *head,
                           uint64_t now)
{
    uint64_t used = device->books.need_busy;
    struct sched_party *party;

    if (!sched_party_busy(head)) {
        lockd_each (const struct sched_member, member, &head->members, of_party) {
            used += sched_min(member->report.resident, member->budget);
        }
    }
    while (used <= device->space.capacity &&
           (party = find_small(device, device->space.capacity - used)) != NULL) {
        if (party == head || stays_behind(device, party))
            return;
        used += party->books.need;
        sched_lease_admit(party, true, now);
    }
}

/* Does a party wait that can ever be served? Acts on a change of that. */
static void note_waiters(struct sched_device *device, uint64_t now)
{
    /* A shortage of memory that cannot move does not queue, and neither does a program that is about
     * to come from another device; idle holders make room for them all the same. A claim may last:
     * once there is room for it, turns end for other reasons only. */
    const bool is_room_wanted =
        device->turns.leases &&
        (device->space.short_bytes != 0 ||
         (device->space.claimed != 0 && device->books.sum.hold > device->space.capacity));
    const bool waiters = device->waiting.queue.count != 0 || is_room_wanted ||
                         sched_together_is_awaited(device, false);

    if (waiters == device->turns.waiters)
        return;
    sched_books_device_ran(device, now); /* it counts only while others wait */
    device->turns.waiters = waiters;
    device->told.quiet_at = now + TELL_PAUSE;
    device->grace_at = waiters ? now : LOCKD_NEVER;
}

/* Are there background programs, and others that they must not run beside? */
static bool is_mixed(const struct sched_device *device)
{
    bool background = false, others = false;

    if (device->sched->background == 0)
        return false;
    lockd_each (const struct sched_party, party, &device->parties, of_device) {
        const bool is = sched_party_is_background(party);

        background |= is;
        others |= !is;
        if (background && others)
            return true;
    }
    return false;
}

static void change_mode(struct sched_device *device, uint64_t now)
{
    const bool apart = is_mixed(device) || sched_together_is_awaited(device, true) ||
                       (device->sched->settings.exclusive && device->party_count > 1);
    const bool leases = sched_device_crowded(device) || apart;
    const struct sched_policy *policy = sched_policy_of(device);

    if (leases == device->turns.leases)
        return;
    device->turns.leases = leases;
    device->cleared.party = NULL;
    lockd_each (struct sched_party, party, &device->parties, of_device) {
        sched_books_ran(party, now);
        sched_agenda_settle(party);
        if (leases && party->turn.held && party->gang->runs)
            sched_lease_anew(party, party->gang->complete);
        /* no turn is ended any more; a party that ended others' turns pays as if its own was over */
        if (!leases && party->turn.interrupts && party->turn.held && policy->ended != NULL)
            policy->ended(party);
        party->turn.interrupts &= leases || party->wait.queued.of != NULL;
        party->turn.interrupted = false;
    }
}

/* Returns whether another look is due: there is another head, or room for the head, since a
 * holder that only kept a place had nothing to stop. */
static bool plan_leases(struct sched_device *device, uint64_t now)
{
    struct sched_party *head;

    sched_stop_overflow(device, now);
    settle_parties(device, now);
    stop_early(device, now);
    settle_parties(device, now);
    note_waiters(device, now);
    sched_stop_idle(device, now);
    settle_parties(device, now);
    head = serve_queue(device, now);
    if (head == NULL || stays_behind(device, head)) {
        device->revoke.head = NULL; /* nobody is to stop for a head */
        if (head != NULL || device->waiting.queue.count == 0) {
            device->revoke.at = LOCKD_NEVER;
        } else if (device->revoke.at == LOCKD_NEVER || device->revoke.at <= now) {
            sched_books_device_ran(device, now); /* that pays for turns in vain */
            device->revoke.at = now + TELL_PAUSE;
        }
    } else if (!revoke_holders(device, head, now)) {
        settle_parties(device, now);
        if (sched_queue_head(device) == head)
            backfill_queue(device, head, now);
    }
    settle_parties(device, now);
    note_waiters(device, now);
    if (head != NULL && sched_queue_head(device) == head && sched_queue_has_room(head))
        return !stays_behind(device, head);
    return sched_queue_head(device) != head ||
           (device->turns.waiters && device->grace_at <= now);
}

void sched_turns_plan(struct sched_device *device, uint64_t now)
{
    sched_vain_count(device, now);
    device->turns.plans++;
    sched_share_count(device, now);
    sched_stop_watch(device, now);
    change_mode(device, now);
    sched_queue_look_again(device, now);
    settle_parties(device, now);
    sched_stop_knots(device, now);
    settle_parties(device, now);
    if (device->turns.leases) {
        int rounds = 0;

        while (plan_leases(device, now)) {
            if (++rounds == PLAN_ROUNDS) { /* go on a little later */
                sched_sooner(&device->revoke.at, now + LOOK_AGAIN);
                device->grace_at = sched_max(device->grace_at, now + LOOK_AGAIN);
                break;
            }
        }
    } else {
        note_waiters(device, now);
        device->grace_at = LOCKD_NEVER;
        device->revoke.head = NULL; /* nobody is to stop for a head */
        device->revoke.at = LOCKD_NEVER;
    }
    sched_together_end_plan(device);
    sched_lease_retry(device, now);
    sched_share_settle(device, now);
}
