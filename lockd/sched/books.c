/* SPDX-License-Identifier: Apache-2.0
 *
 * books.c: the sums and sets that plans are made from. A member's share of its device's
 * sums is kept in it; after every change the old share is taken out and the new one put in, so
 * the sums are always those of all members (check.c says so in the tests). O(log n).
 */
#include "lockd/sched/books.h"

#include "lockd/sched/agenda.h"
#include "lockd/sched/lease.h"
#include "lockd/sched/policy.h"

/* It does not read its targets. */
static bool is_deaf(const struct sched_member *member, uint64_t now)
{
    return !member->party->held && member->echoed != member->seq &&
           sched_less(now, member->owes) >= GRACE;
}

bool sched_member_clings(const struct sched_member *member, uint64_t now)
{
    if (is_deaf(member, now))
        return true;
    return !member->party->held && sched_member_hold(member) > member->budget &&
           sched_less(now, sched_max(member->owes, member->stopped)) >= GRACE;
}

bool sched_member_stuck(const struct sched_member *member, uint64_t now)
{
    if (member->party->held || !sched_member_busy(member))
        return false;
    return (member->flags & GS_STATE_STUCK) != 0 || now - member->stopped >= GRACE ||
           is_deaf(member, now);
}

static void put(struct lockd_list *list, struct lockd_list *link, bool on)
{
    if (!on)
        lockd_list_remove(link);
    else if (lockd_list_empty(link))
        lockd_list_append(list, link);
}

/* A party of a gang that waits elsewhere: it is further away than all in the queue. */
static uint64_t queue_key(const struct sched_party *party)
{
    return party->queued.in ? party->queued.key : UINT64_MAX;
}

/* Memory of what has nothing to do goes before that of what waits; of those, who ran least
 * recently, of these, whose turn is furthest away. */
static void sort_victim(struct sched_member *member, bool busy)
{
    struct sched_device *device = member->device;
    struct sched_order *of = NULL;
    uint64_t key = member->last_run;

    if (!busy && member->budget > 0) {
        of = &device->victims_idle;
        if (sched_member_wants(member) || sched_gang_wants(member->party->gang)) {
            of = &device->victims_waiting;
            key = queue_key(member->party);
        }
    }
    if (of == member->victim_of && (of == NULL || key == member->victim.key))
        return;
    if (member->victim_of != NULL)
        sched_order_remove(member->victim_of, &member->victim);
    member->victim_of = of;
    if (of == NULL)
        return;
    member->victim.key = key;
    member->victim.number = of == &device->victims_waiting && member->party->queued.in
                                ? member->party->queued.number
                                : ++device->clock;
    sched_order_insert(of, &member->victim);
}

static struct sched_share share_of(const struct sched_member *member, bool busy, uint64_t now)
{
    const uint64_t need = sched_need(member);
    const bool clings = sched_member_clings(member, now),
               unsure =
                   (member->flags & GS_STATE_MOVING) != 0 || member->echoed < member->turn_seq;

    return (struct sched_share){
        .demand = member->demand,
        .resident = member->resident,
        .pinned = sched_member_pinned(member),
        .hold = sched_member_hold(member),
        .kept = clings ? sched_member_hold(member)
                : busy ? need
                       : member->budget,
        .held = member->party->held,
        .given = busy && !clings ? sched_less(member->budget, need) : 0,
        .unsure = unsure ? member->resident : 0,
        .unsure_most = unsure ? sched_member_hold(member) : 0,
    };
}

static void count(struct sched_member *member, const struct sched_share *share)
{
    struct sched_device *device = member->device;
    struct sched_share *sum = &device->sum, *old = &member->share;

    sum->demand += share->demand - old->demand;
    sum->resident += share->resident - old->resident;
    sum->pinned += share->pinned - old->pinned;
    sum->hold += share->hold - old->hold;
    sum->kept += share->kept - old->kept;
    sum->given += share->given - old->given;
    sum->held += share->held - old->held;
    sum->unsure += share->unsure - old->unsure;
    sum->unsure_most += share->unsure_most - old->unsure_most;
    member->party->demand += share->demand - old->demand;
    *old = *share;
}

/* What a party takes of its device's capacity while it runs. */
static uint64_t party_need(const struct sched_party *party)
{
    const struct sched_device *device = party->device;

    return device->lock->settings.exclusive ? device->capacity
                                            : sched_min(party->demand, device->capacity);
}

/* Who does not answer is asked for nothing more until it does. */
static void count_deaf(struct sched_party *party, uint32_t deaf)
{
    struct sched_gang *gang = party->gang;
    const bool before = gang->deaf != 0;

    gang->deaf += deaf - party->deaf_members;
    party->deaf_members = deaf;
    if (before != (gang->deaf != 0))
        sched_agenda_settle_gang(gang);
}

/* It says that it cannot stop before it got more memory. That is so for as long as it takes
 * what there is for it. */
static bool blocked(const struct sched_member *member)
{
    return (member->flags & GS_STATE_STUCK) != 0 && sched_member_wants(member) &&
           member->demand > member->resident && !member->refuses;
}

static void party_counts(struct sched_party *party, uint64_t now)
{
    uint32_t busy = 0, running = 0, stuck = 0, blocks = 0, deaf = 0;

    lockd_list_each (at, &party->members) {
        const struct sched_member *member = sched_member_of(at, of_party);

        busy += sched_member_busy(member);
        running += (member->flags & GS_STATE_RUNNING) != 0;
        deaf += is_deaf(member, now);
        if (sched_member_stuck(member, now)) {
            stuck++;
            blocks += blocked(member);
        }
    }
    count_deaf(party, deaf);
    if ((blocks != 0) != sched_party_blocked(party))
        sched_agenda_settle(party); /* its place is another one */
    if ((running != 0) != (party->running_members != 0))
        party->device->generation++;
    party->blocked_members = blocks;
    party->busy_members = busy;
    party->running_members = running;
    party->stuck_members = stuck;
}

/* What others cannot have, whatever is asked of it: its memory is where it is. */
static uint64_t party_lost(const struct sched_party *party, uint64_t now)
{
    uint64_t lost = 0;

    lockd_list_each (at, &party->members) {
        const struct sched_member *member = sched_member_of(at, of_party);

        if (sched_member_clings(member, now))
            lost += sched_member_hold(member);
        else if (party->stuck_members != 0 && sched_member_busy(member))
            lost += sched_need(member);
    }
    return lost;
}

/* The party's own sums, from those of its members. */
static void party_sums(struct sched_party *party, uint64_t now)
{
    struct sched_device *device = party->device;
    uint64_t held, busy, lost;
    bool stopping, stuck;

    party_counts(party, now);
    party->need = party_need(party);
    held = party->held ? party->need : 0;
    lost = party_lost(party, now);
    stopping = !party->held && sched_party_busy(party);
    stuck = stopping && party->stuck_members != 0;
    busy = sched_party_busy(party) && !stuck ? sched_max(party->need, lost) : lost;
    if (held != party->need_held)
        device->generation++;
    device->need_held += held - party->need_held;
    device->need_busy += busy - party->need_busy;
    device->lost += lost - party->lost;
    device->stuck_parties += stuck - (uint32_t)party->counted_stuck;
    device->stopping_parties += stopping - (uint32_t)party->counted_stopping;
    party->need_held = held;
    party->need_busy = busy;
    party->lost = lost;
    party->counted_stopping = stopping;
    party->counted_stuck = stuck;
    /* what is still stopping, and what waits on other devices too, runs past nobody */
    sched_order_value(&party->queued, sched_party_busy(party) || party->gang->party_count > 1
                                          ? UINT64_MAX
                                          : party->need);
}

static void note_offer(struct sched_member *member, bool busy, uint64_t now)
{
    if (!busy || member->resident >= member->demand) {
        member->offered = LOCKD_NEVER;
        member->refuses = false;
    } else if (member->resident >= member->budget) {
        member->offered = LOCKD_NEVER;
    } else if (member->offered == LOCKD_NEVER && (member->flags & GS_STATE_STUCK) != 0) {
        member->offered = now;
    } else if (sched_less(now, member->offered) >= GRACE) {
        member->refuses = true;
    }
}

static void sort_member(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    const bool busy = sched_member_busy(member), held = member->party->held,
               owes =
                   member->echoed != member->seq || sched_member_hold(member) > member->budget;
    struct sched_share share;

    if (!owes)
        member->owes = LOCKD_NEVER;
    else if (member->owes == LOCKD_NEVER)
        member->owes = now;
    note_offer(member, busy, now);
    share = share_of(member, busy, now);

    count(member, &share);
    put(&device->hungry, &member->hungry, held && member->budget < member->demand);
    put(&device->spared, &member->spared, busy && member->budget > member->demand);
    put(&device->unused, &member->unused, !busy && member->budget > member->resident);
    put(&device->stopping, &member->stopping, !held && (busy || owes));
    if (!held && owes)
        device->stop_at = sched_min(device->stop_at, now + GRACE);
    sort_victim(member, busy);
}

void sched_books_member(struct sched_member *member, uint64_t now)
{
    sort_member(member, now);
    party_sums(member->party, now);
}

void sched_books_party(struct sched_party *party, uint64_t now)
{
    lockd_list_each (at, &party->members)
        sort_member(sched_member_of(at, of_party), now);
    party_sums(party, now);
}

void sched_books_forget(struct sched_member *member)
{
    const struct sched_share nothing = {0};

    count(member, &nothing);
    lockd_list_remove(&member->hungry);
    lockd_list_remove(&member->spared);
    lockd_list_remove(&member->unused);
    lockd_list_remove(&member->stopping);
    lockd_list_remove(&member->touched);
    lockd_list_remove(&member->unsent);
    if (member->victim_of != NULL)
        sched_order_remove(member->victim_of, &member->victim);
    member->victim_of = NULL;
}

bool sched_party_works(const struct sched_party *party)
{
    lockd_list_each (at, &party->members) {
        if ((sched_member_of(at, of_party)->flags & GS_STATE_WANT) != 0)
            return true;
    }
    return false;
}

void sched_books_ran(struct sched_party *party, uint64_t now)
{
    const struct sched_policy *policy = sched_policy_of(party->device);
    const uint64_t ns = sched_less(now, party->counted_at);

    const bool keeps = party->held && party->gang->runs && !sched_party_works(party);

    party->counted_at = now;
    if (ns == 0 || (party->running_members == 0 && !keeps))
        return;
    party->last_ran = now;
    party->level_then = party->device->level;
    party->ran += ns;
    if (party->gang->wanting != 0) /* else it keeps a place that nobody wants */
        party->burst += ns;
    if ((party->device->waiters || party->device->elsewhere != 0) && policy->ran != NULL)
        policy->ran(party, ns);
}

void sched_books_device_ran(struct sched_device *device, uint64_t now)
{
    lockd_list_each (at, &device->holders)
        sched_books_ran(sched_party_of(at, holder), now);
}

void sched_books_ahead(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;

    member->party->progress = now;
    if (device->hungry.next == &member->hungry)
        device->progress = now; /* the others wait for it to be complete */
}

void sched_books_time(struct sched_member *member, uint64_t now)
{
    const uint64_t ns = sched_less(now, member->counted_at);

    sched_books_ran(member->party, now);
    member->counted_at = now;
    if ((member->flags & GS_STATE_RUNNING) != 0) {
        member->gpu_ns += ns;
        member->waits_since = 0;
    } else if (sched_member_wants(member)) {
        if (member->waits_since == 0)
            member->waits_since = now - ns;
        member->wait_ns += ns;
        member->wait_longest_ns = sched_max(member->wait_longest_ns, now - member->waits_since);
    } else {
        member->waits_since = 0;
    }
}
