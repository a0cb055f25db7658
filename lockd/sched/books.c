/* SPDX-License-Identifier: Apache-2.0
 *
 * books.c: the sums and sets that plans are made from. Each member keeps its share of the
 * device's sums. After every change the old share is taken out and the new one put in, so the
 * sums are always those of all members (check.c proves that in the tests). O(1), but
 * for a place in a set.
 */
#include "lockd/sched/room.h"

/* The member does not read its targets. */
static bool is_deaf(const struct sched_member *member, uint64_t now)
{
    return !member->party->turn.held && member->report.echoed != member->sent.seq &&
           sched_less(now, member->books.owes) >= GRACE;
}

bool sched_member_clings(const struct sched_member *member, uint64_t now)
{
    if (is_deaf(member, now))
        return true;
    return !member->party->turn.held && sched_member_hold(member) > member->budget &&
           sched_less(now, sched_max(member->books.owes, member->stopped)) >= GRACE;
}

bool sched_member_stuck(const struct sched_member *member, uint64_t now)
{
    if (member->party->turn.held || !sched_member_busy(member))
        return false;
    return (member->report.flags & GS_STATE_STUCK) != 0 || now - member->stopped >= GRACE ||
           sched_member_denied(member) || is_deaf(member, now);
}

static void put_on_list(struct lockd_list *list, struct lockd_list *link, bool on)
{
    if (!on)
        lockd_list_remove(link);
    else if (lockd_list_empty(link))
        lockd_list_append(list, link);
}

/* Memory of idle members goes before that of waiting members: of idle members the least
 * recently run first, of waiting members that whose turn is furthest away. */
static void sort_victim(struct sched_member *member, bool busy)
{
    struct sched_device *device = member->device;
    const struct sched_node *place = &member->party->wait.queued;
    struct sched_node *victim = &member->books.victim;
    struct sched_order *of = NULL;
    uint64_t key = member->last_run;
    bool waits = false;

    if (!busy && member->budget > member->report.stays) {
        waits = sched_member_wants(member) || sched_gang_wants(member->party->gang);
        of = waits ? &device->books.victims_waiting : &device->books.victims_idle;
        if (waits) /* a party of a gang that waits elsewhere is further away than all */
            key = place->of != NULL ? place->key : UINT64_MAX;
    }
    if (of == victim->of && (of == NULL || key == victim->key))
        return;
    sched_order_remove(victim);
    if (of == NULL)
        return;
    victim->key = key;
    victim->number = waits && place->of != NULL ? place->number : ++device->clock;
    sched_order_insert(of, victim);
}

/* A false word could hide what somebody else has: beside programs of other users it counts as far as
 * the card shows more memory than is counted. */
static uint64_t loose_of(const struct sched_member *member)
{
    const uint64_t shown = member->evidence.shown == UINT64_MAX ? 0 : member->evidence.shown;

    return member->device->measure.several
               ? sched_min(member->report.loose, sched_less(shown, member->report.resident))
               : member->report.loose;
}

static struct sched_share share_of(const struct sched_member *member, bool busy, uint64_t now)
{
    const uint64_t need = sched_need(member);
    /* unsure: but a silent program has what it said last */
    const bool clings = sched_member_clings(member, now),
               unsure = (member->report.flags & GS_STATE_MOVING) != 0 ||
                        (!member->sent.ended && member->report.echoed < member->sent.turn_seq),
               beyond = member->beyond || (member->sent.flags & GS_TARGET_BEYOND) != 0 ||
                        member->report.echoed < member->sent.back_seq;

    return (struct sched_share){
        .demand = member->report.demand,
        .resident = member->report.resident,
        .pinned = sched_member_pinned(member),
        .hold = sched_member_hold(member),
        .kept = clings ? sched_member_hold(member)
                : busy ? need
                       : member->budget,
        .held = member->party->turn.held,
        .given = busy && !clings ? sched_less(member->budget, need) : 0,
        .beyond = beyond ? member->report.over : 0, /* until its demand counts them again */
        .unsure = unsure ? member->report.resident : 0,
        .unsure_most = unsure ? sched_member_hold(member) : 0,
        .loose = loose_of(member),
    };
}

static void count_share(struct sched_member *member, const struct sched_share *share)
{
    struct sched_share *sum = &member->device->books.sum, *old = &member->books.share;

    for (size_t i = 0; i < sizeof *share / sizeof(uint64_t); i++)
        ((uint64_t *)sum)[i] += ((const uint64_t *)share)[i] - ((const uint64_t *)old)[i];
    member->party->books.demand += share->demand - old->demand;
    *old = *share;
}

/* A gang that does not answer is asked for nothing more until it does; a gang with a blocked member
 * gets its turn also while it is paused or evicted. */
static void count_in_gang(struct sched_gang *gang, uint32_t *sum, uint32_t *own, uint32_t count)
{
    const bool before = *sum != 0;

    *sum += count - *own;
    *own = count;
    if (before != (*sum != 0))
        sched_agenda_settle_gang(gang);
}

/* The member says that it cannot stop before it gets more memory. It is believed for as long as
 * it takes the memory that there is for it. */
static bool is_blocked(const struct sched_member *member)
{
    return (member->report.flags & GS_STATE_STUCK) != 0 &&
           (member->report.flags & GS_STATE_WANT) != 0 &&
           member->report.demand > member->report.resident && !member->books.refuses &&
           !sched_member_denied(member);
}

static void count_members(struct sched_party *party, uint64_t now)
{
    struct sched_party_books *books = &party->books;
    const bool was_blocked = books->blocked_members != 0, ran = books->running_members != 0;
    uint32_t blocks = 0, deaf = 0;

    books->busy_members = books->running_members = 0;
    books->stuck_members = books->blocked_members = 0;
    lockd_each (const struct sched_member, member, &party->members, of_party) {
        const bool stuck = sched_member_stuck(member, now), blocked = is_blocked(member);

        books->busy_members += sched_member_busy(member);
        books->running_members += (member->report.flags & GS_STATE_RUNNING) != 0;
        books->stuck_members += stuck;
        books->blocked_members += stuck && blocked;
        blocks += blocked;
        deaf += is_deaf(member, now) || (!party->turn.held && member->sent.ended);
    }
    count_in_gang(party->gang, &party->gang->deaf, &books->deaf_members, deaf);
    count_in_gang(party->gang, &party->gang->blocked, &books->gang_blocked, blocks);
    if (was_blocked != (books->blocked_members != 0))
        sched_agenda_settle(party); /* its place changes */
    if (ran != (books->running_members != 0))
        party->device->turns.generation++;
}

/* Bytes that others cannot have, whatever the party is asked: its memory stays where it is. */
static uint64_t party_lost(const struct sched_party *party, uint64_t now)
{
    uint64_t lost = 0;

    lockd_each (const struct sched_member, member, &party->members, of_party) {
        if (sched_member_clings(member, now))
            lost += sched_member_hold(member);
        else if (party->books.stuck_members != 0 && sched_member_busy(member))
            lost += sched_need(member);
        else if (!party->turn.held)
            lost += member->report.stays;
    }
    return lost;
}

/* Whether its gang is split concerns all devices on which parties of it are. */
static void count_split(struct sched_gang *gang)
{
    bool computing = false, idling = false;

    if (gang->party_count < 2 && !gang->split)
        return;
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        computing |= sched_party_busy(party);
        idling |= !sched_party_busy(party) && party->books.demand != 0;
    }
    if (gang->split == (computing && idling))
        return;
    gang->split = computing && idling;
    lockd_each (struct sched_party, party, &gang->parties, of_gang)
        sched_agenda_plan(party->device);
}

/* The party's own sums, from those of its members. */
static void count_party(struct sched_party *party, uint64_t now)
{
    struct sched_device *device = party->device;
    uint64_t need = party->books.demand, held, busy, lost;
    bool stopping, stuck;

    device->books.changes++;
    count_members(party, now);
    lockd_each (const struct sched_member, member, &party->members, of_party)
        need += member->books.share.beyond;
    party->books.need = device->sched->settings.exclusive
                            ? device->space.capacity
                            : sched_min(need, device->space.capacity);
    held = party->turn.held ? party->books.need : 0;
    lost = party_lost(party, now);
    stopping = !party->turn.held && sched_party_busy(party);
    stuck = stopping && party->books.stuck_members != 0;
    busy = sched_party_busy(party) && !stuck ? sched_max(party->books.need, lost) : lost;
    if (held != party->books.need_held)
        device->turns.generation++;
    device->books.need_held += held - party->books.need_held;
    device->books.need_busy += busy - party->books.need_busy;
    device->books.lost += lost - party->books.lost;
    device->books.stuck_parties += stuck - (uint32_t)party->books.counted_stuck;
    device->books.stopping_parties += stopping - (uint32_t)party->books.counted_stopping;
    party->books.need_held = held;
    party->books.need_busy = busy;
    party->books.lost = lost;
    if (stuck && !party->books.counted_stuck)
        device->books.stuck_at = now;
    party->books.counted_stopping = stopping;
    party->books.counted_stuck = stuck;
    count_split(party->gang);
}

static void note_offer(struct sched_member *member, bool busy, uint64_t now)
{
    if (!busy || member->report.resident >= member->report.demand) {
        member->books.offered = LOCKD_NEVER;
        member->books.refuses = false;
    } else if (!member->party->turn.held && (member->report.flags & GS_STATE_STUCK) == 0 &&
               now - member->stopped >= GRACE) {
        member->books.refuses = true; /* it runs on, and asks for none */
    } else if (member->report.resident >= member->budget) {
        member->books.offered = LOCKD_NEVER;
    } else if (member->books.offered == LOCKD_NEVER &&
               (member->report.flags & GS_STATE_STUCK) != 0) {
        member->books.offered = now;
    } else if (sched_less(now, member->books.offered) >= GRACE) {
        member->books.refuses = true;
    }
}

static void sort_member(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    const bool busy = sched_member_busy(member), held = member->party->turn.held,
               unread = member->report.echoed != member->sent.seq,
               owes = unread || sched_member_hold(member) > member->budget,
               keeps = unread && sched_member_hold(member) > member->report.resident;
    struct sched_share share;

    if (!owes)
        member->books.owes = LOCKD_NEVER;
    else if (member->books.owes == LOCKD_NEVER)
        member->books.owes = now;
    note_offer(member, busy, now);
    share = share_of(member, busy, now);

    count_share(member, &share);
    put_on_list(&device->books.hungry, &member->books.hungry,
                held && member->budget < member->report.demand);
    put_on_list(&device->books.spared, &member->books.spared,
                busy && member->budget > member->report.demand);
    put_on_list(&device->books.unused, &member->books.unused,
                !busy && member->budget > member->report.resident);
    if (lockd_list_empty(&member->books.stopping))
        member->books.leaves = now;
    put_on_list(&device->books.stopping, &member->books.stopping,
                keeps || (!held && (busy || owes)));
    if (keeps)
        sched_sooner(&device->stop_at, now + SILENT);
    if (!held && owes)
        sched_sooner(&device->stop_at, now + GRACE);
    sort_victim(member, busy);
}

void sched_books_member(struct sched_member *member, uint64_t now)
{
    sort_member(member, now);
    count_party(member->party, now);
}

void sched_books_party(struct sched_party *party, uint64_t now)
{
    lockd_each (struct sched_member, member, &party->members, of_party)
        sort_member(member, now);
    count_party(party, now);
}

void sched_books_stays(struct sched_member *member, uint64_t stays)
{
    if (stays == member->report.stays)
        return;
    member->device->books.stays += stays - member->report.stays;
    member->device->agenda.recount = true; /* others fit, or do not any more */
    member->report.stays = stays;
}

bool sched_party_has(const struct sched_party *party, uint32_t facts)
{
    lockd_each (const struct sched_member, member, &party->members, of_party) {
        const uint32_t has = member->report.flags |
                             (lockd_list_empty(&member->books.hungry) ? 0 : SCHED_HUNGRY) |
                             (member->report.demand > member->sent.budget ? SCHED_GROWN : 0) |
                             (member->sent.ended ? SCHED_SILENT : 0) |
                             (member->beyond ? SCHED_BEYOND : 0);

        if ((has & facts) != 0)
            return true;
    }
    return false;
}

void sched_books_ran(struct sched_party *party, uint64_t now)
{
    const uint64_t ns = sched_less(now, party->time.counted_at);
    /* beside another user's programs a turn that has begun to run is had, whatever is made of it */
    const bool had = party->device->measure.several && party->turn.started != 0,
               contended = party->device->turns.waiters || party->device->turns.elsewhere != 0,
               keeps = party->turn.held && party->gang->runs &&
                       (had || !sched_party_has(party, GS_STATE_WANT));

    party->time.counted_at = now;
    if (ns == 0 || (party->books.running_members == 0 && !keeps))
        return;
    party->time.last_ran = now;
    party->time.ran += ns;
    if (contended)
        sched_vain_had(party->device, party->wanting.user,
                       ns / sched_max(party->device->turns.holder_count, 1));
    sched_policy_of(party->device)->ran(party, ns, contended, now);
}

void sched_books_device_ran(struct sched_device *device, uint64_t now)
{
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder)
        sched_books_ran(party, now);
}

void sched_books_ahead(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    struct sched_party_turn *turn = &member->party->turn;
    const uint64_t asked = member->books.asked,
                   has = sched_min(member->report.resident, asked) +
                         sched_min(member->budget, asked),
                   came = sched_less(has, member->books.came);

    if (came == 0)
        return;
    member->books.came = has;
    turn->progress = device->measure.several
                         ? sched_min(now, turn->progress + came * 1000 / (SLOWEST / 1000000))
                         : now;
    if (device->books.hungry.next == &member->books.hungry)
        device->books.progress = turn->progress; /* the others wait for it to be complete */
}

static void end_wait(struct sched_member *member, uint64_t at)
{
    if (member->time.waits_since != 0)
        lockd_totals_count(&member->device->totals->sum.waits,
                           sched_less(at, member->time.waits_since));
    member->time.waits_since = 0;
}

void sched_books_time(struct sched_member *member, uint64_t now)
{
    const uint64_t ns = sched_less(now, member->time.counted_at);
    struct gs_wire_totals *sum = &member->device->totals->sum;
    uint64_t held_off;

    sched_books_ran(member->party, now);
    sched_vain_count(member->device, now);
    sched_share_count(member->device, now);
    held_off = member->device->turns.held_off_ns - member->time.held_off_then;
    member->time.held_off_then = member->device->turns.held_off_ns;
    member->time.counted_at = now;
    if ((member->report.flags & GS_STATE_RUNNING) != 0) {
        member->time.gpu_ns += ns;
        member->time.works_ns += (member->report.flags & GS_STATE_WANT) != 0 ? ns : 0;
        sum->gpu_ns += ns;
        end_wait(member, now - ns);
    } else if (sched_member_wants(member)) {
        if (member->time.waits_since == 0)
            member->time.waits_since = now - ns;
        member->time.wait_ns += ns;
        sum->wait_ns += ns;
        if (!sched_share_is_first(member->party) && !sched_party_is_background(member->party))
            member->time.yielded_ns += sched_min(held_off, ns);
        member->time.wait_longest_ns =
            sched_max(member->time.wait_longest_ns, now - member->time.waits_since);
    } else {
        end_wait(member, now - ns);
    }
}

void sched_books_forget(struct sched_member *member, uint64_t now)
{
    const struct sched_share nothing = {0};

    sched_books_time(member, now);
    end_wait(member, now);
    sched_books_stays(member, 0);
    count_share(member, &nothing);
    lockd_list_remove(&member->books.hungry);
    lockd_list_remove(&member->books.spared);
    lockd_list_remove(&member->books.unused);
    lockd_list_remove(&member->books.stopping);
    lockd_list_remove(&member->agenda.touched);
    lockd_list_remove(&member->sent.unsent);
    sched_order_remove(&member->books.victim);
}
