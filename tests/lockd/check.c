/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c: recomputes the sums and sets that books.c and other files keep up to date, and tells
 * which one differs. For tests; reads only.
 */
#include "tests/lockd/check.h"
#include "lockd/sched/queue.h"

#include "lockd/sched/lease.h"

struct total {
    struct sched_share sum;
    uint64_t need_held, need_busy, lost, weights;
    uint32_t members, parties, holders, stopping, stuck;
    uint32_t queued, apart, idle, waiting, elsewhere;
};

static uint32_t length_of(const struct lockd_list *list)
{
    uint32_t count = 0;

    for (const struct lockd_list *at = lockd_list_first(list); at != list; at = at->next)
        count++;
    return count;
}

static const char *check_sets(const struct sched_member *member, bool busy)
{
    const uint64_t hold = sched_member_hold(member);
    const bool held = member->party->turn.held;

    if (lockd_list_empty(&member->books.hungry) ==
        (held && member->budget < member->report.demand))
        return "hungry";
    if (lockd_list_empty(&member->books.spared) ==
        (busy && member->budget > member->report.demand))
        return "spared";
    if (lockd_list_empty(&member->books.unused) ==
        (!busy && member->budget > member->report.resident))
        return "unused";
    if (lockd_list_empty(&member->books.stopping) ==
        ((member->report.echoed != member->sent.seq && hold > member->report.resident) ||
         (!held && (busy || member->books.owes != LOCKD_NEVER))))
        return "stopping";
    if ((member->books.victim.of != NULL) != (!busy && member->budget > 0))
        return "victims";
    return NULL;
}

static const char *check_member(const struct sched_member *member, struct total *total)
{
    const bool busy = sched_member_busy(member);
    const uint64_t need = sched_need(member), hold = sched_member_hold(member);

    total->members++;
    total->sum.demand += member->report.demand;
    total->sum.resident += member->report.resident;
    total->sum.pinned += sched_member_pinned(member);
    total->sum.hold += hold;
    total->sum.kept += member->books.share.kept; /* this and the next one change with time */
    total->sum.given += member->books.share.given;
    total->sum.beyond += member->books.share.beyond;
    total->sum.held += member->party->turn.held;
    if (member->books.share.kept != hold &&
        (member->books.share.kept != (busy ? need : member->budget) ||
         member->books.share.given != (busy ? sched_less(member->budget, need) : 0)))
        return "what a member keeps";
    if ((member->report.flags & GS_STATE_MOVING) != 0 ||
        (!member->sent.ended && member->report.echoed < member->sent.turn_seq)) {
        total->sum.unsure += member->report.resident;
        total->sum.unsure_most += hold;
    }
    total->idle += member->books.victim.of == &member->device->books.victims_idle;
    total->waiting += member->books.victim.of == &member->device->books.victims_waiting;
    return check_sets(member, busy);
}

static const char *check_turn(const struct sched_party *party)
{
    const struct sched_gang *gang = party->gang;
    const bool queued = party->wait.queued.of != NULL;

    if (party->turn.held == lockd_list_empty(&party->turn.holder))
        return "holders";
    if (queued && party->turn.held)
        return "queue";
    if (gang->runs != (gang->held_count == gang->party_count))
        return "a gang runs with all its places and only with them";
    if (!party->device->turns.leases ||
        party->device->measure.settle_until > party->device->sched->created)
        return NULL;
    if (queued && (!sched_gang_wants(gang) || sched_lease_next(gang) != party))
        return "queued out of order";
    if (!queued && sched_gang_wants(gang) && sched_lease_next(gang) == party)
        return "forgotten: it wants to run and is not in the queue";
    return NULL;
}

static const char *check_party(const struct sched_party *party, struct total *total)
{
    const struct sched_device *device = party->device;
    uint32_t busy = 0, members = 0;
    uint64_t demand = 0, beyond = 0, need;
    const char *wrong = NULL;

    lockd_each (const struct sched_member, member, &party->members, of_party) {
        members++;
        busy += sched_member_busy(member);
        demand += member->report.demand;
        beyond += member->books.share.beyond;
        wrong = wrong != NULL ? wrong : check_member(member, total);
    }
    need = device->sched->settings.exclusive
               ? device->space.capacity
               : sched_min(demand + beyond, device->space.capacity);
    total->parties++;
    total->holders += party->turn.held;
    total->weights += party->gang->weight;
    total->need_held += party->turn.held ? need : 0;
    total->need_busy += busy != 0 && !party->books.counted_stuck
                            ? sched_max(need, party->books.lost)
                            : party->books.lost;
    total->lost += party->books.lost;
    total->stuck += party->books.counted_stuck;
    total->stopping += !party->turn.held && busy != 0;
    total->elsewhere += party->wait.elsewhere;
    total->queued += party->wait.queued.of == &device->waiting.queue;
    total->apart += party->wait.queued.of == &device->waiting.apart;
    if (wrong != NULL)
        return wrong;
    if (members != party->member_count || busy != party->books.busy_members ||
        demand != party->books.demand || need != party->books.need)
        return "figures of a party";
    return check_turn(party);
}

static bool is_equal(const struct sched_share *a, const struct sched_share *b)
{
    return a->demand == b->demand && a->resident == b->resident && a->pinned == b->pinned &&
           a->hold == b->hold && a->kept == b->kept && a->given == b->given &&
           a->beyond == b->beyond && a->held == b->held && a->unsure == b->unsure &&
           a->unsure_most == b->unsure_most;
}

/* A background program runs although another one that is not in the background wants the device. */
static bool is_not_nice(const struct sched_device *device)
{
    if (device->measure.settle_until > device->sched->created)
        return false; /* they come back to a new daemon as they were */
    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        if (device->wanting.weights != 0 && sched_party_is_background(party) &&
            party->gang->blocked == 0 && party->gang->closing.by == NULL)
            return true;
    }
    return false;
}

/* The next program has room and was not given a place. */
static bool overlooks_head(const struct sched_device *device)
{
    const struct sched_party *head = sched_queue_head(device);

    if (head != NULL && sched_party_is_background(head) && device->wanting.weights != 0)
        return false; /* it waits for all that are not */
    return head != NULL && device->turns.leases &&
           device->measure.settle_until <= device->sched->created &&
           device->books.need_busy - head->books.need_busy + sched_queue_takes(head) <=
               device->space.capacity;
}

static const char *check_device(const struct sched_device *device)
{
    struct total total = {0};
    const char *wrong = NULL;

    lockd_each (const struct sched_party, party, &device->parties, of_device)
        wrong = wrong != NULL ? wrong : check_party(party, &total);
    if (wrong != NULL)
        return wrong;
    if (is_not_nice(device))
        return "a background program keeps its place";
    if (overlooks_head(device))
        return "the head of the queue has room and does not get it";
    if (!is_equal(&total.sum, &device->books.sum))
        return "sums of memory";
    if (total.need_held != device->books.need_held ||
        total.need_busy != device->books.need_busy || total.lost != device->books.lost)
        return "sums of needs";
    if (total.members != device->member_count || total.parties != device->party_count ||
        total.holders != device->turns.holder_count ||
        total.stopping != device->books.stopping_parties ||
        total.stuck != device->books.stuck_parties || total.weights != device->books.weights ||
        total.elsewhere != device->turns.elsewhere)
        return "counts";
    if (length_of(&device->turns.holders) != device->turns.holder_count ||
        total.queued != device->waiting.queue.count ||
        total.apart != device->waiting.apart.count ||
        total.idle != device->books.victims_idle.count ||
        total.waiting != device->books.victims_waiting.count)
        return "lengths of sets";
    return NULL;
}

static const char *check_host(const struct sched *sched)
{
    uint64_t used = 0, hold = 0, off = 0, goal = 0;

    lockd_each (const struct sched_client, client, &sched->clients, link) {
        used += client->host.used;
        hold += client->host.told == UINT64_MAX
                    ? client->host.used
                    : sched_max(client->host.told, client->host.used);
        off += client->host.off;
        goal += client->host.goal;
    }
    return used != sched->host.used || hold != sched->host.hold || off != sched->host.off ||
                   goal != sched->host.goal
               ? "sums of host memory"
               : NULL;
}

static const char *check_giving_way(const struct sched *sched)
{
    uint32_t gangs = 0;

    lockd_each (const struct sched_device, device, &sched->devices, link) {
        lockd_each (const struct sched_party, party, &device->parties, of_device) {
            gangs += party->gang->gives_way && party->gang->parties.next == &party->of_gang;
        }
    }
    return gangs != sched->giving_way ? "how many gangs give way" : NULL;
}

static const char *check_background(const struct sched *sched)
{
    uint32_t clients = 0;

    lockd_each (const struct sched_client, client, &sched->clients, link)
        clients += client->set.class == GS_CLASS_BACKGROUND;
    return clients != sched->background ? "how many programs are background" : NULL;
}

const char *sched_check(const struct sched *sched)
{
    const char *wrong = check_host(sched);

    wrong = wrong != NULL ? wrong : check_background(sched);
    wrong = wrong != NULL ? wrong : check_giving_way(sched);
    lockd_each (const struct sched_device, device, &sched->devices, link)
        wrong = wrong != NULL ? wrong : check_device(device);
    return wrong;
}
