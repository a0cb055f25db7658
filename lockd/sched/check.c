/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c: adds up from scratch what books.c and the others keep up to date, and says
 * what differs. For tests; reads only.
 */
#include "lockd/sched/check.h"

#include "lockd/sched/lease.h"

struct total {
    struct sched_share sum;
    uint64_t need_held, need_busy, lost, weights;
    uint32_t members, parties, holders, stopping, stuck;
    uint32_t queued, hopeless, idle, waiting, elsewhere;
};

static uint32_t length_of(const struct lockd_list *list)
{
    uint32_t count = 0;

    for (const struct lockd_list *at = list->next; at != list; at = at->next)
        count++;
    return count;
}

static const char *check_sets(const struct sched_member *member, bool busy)
{
    const bool held = member->party->held;

    if (lockd_list_empty(&member->hungry) == (held && member->budget < member->demand))
        return "hungry";
    if (lockd_list_empty(&member->spared) == (busy && member->budget > member->demand))
        return "spared";
    if (lockd_list_empty(&member->unused) == (!busy && member->budget > member->resident))
        return "unused";
    if (lockd_list_empty(&member->stopping) == (!held && (busy || member->owes != LOCKD_NEVER)))
        return "stopping";
    if ((member->victim_of != NULL) != (!busy && member->budget > 0))
        return "victims";
    if (member->victim.in != (member->victim_of != NULL))
        return "place among the victims";
    return NULL;
}

static const char *check_member(const struct sched_member *member, struct total *total)
{
    const bool busy = sched_member_busy(member);
    const uint64_t need = sched_need(member), hold = sched_member_hold(member);

    total->members++;
    total->sum.demand += member->demand;
    total->sum.resident += member->resident;
    total->sum.pinned += sched_member_pinned(member);
    total->sum.hold += hold;
    total->sum.kept += member->share.kept; /* it and the next change as time passes */
    total->sum.given += member->share.given;
    total->sum.held += member->party->held;
    if (member->share.kept != hold &&
        (member->share.kept != (busy ? need : member->budget) ||
         member->share.given != (busy ? sched_less(member->budget, need) : 0)))
        return "what a member keeps";
    if ((member->flags & GS_STATE_MOVING) != 0 || member->echoed < member->turn_seq) {
        total->sum.unsure += member->resident;
        total->sum.unsure_most += hold;
    }
    total->idle += member->victim_of == &member->device->victims_idle;
    total->waiting += member->victim_of == &member->device->victims_waiting;
    return check_sets(member, busy);
}

static const char *check_turn(const struct sched_party *party)
{
    const struct sched_gang *gang = party->gang;
    const bool queued = party->queued_of != NULL;

    if (party->held == lockd_list_empty(&party->holder))
        return "holders";
    if (queued != party->queued.in || (queued && party->held))
        return "queue";
    if (gang->runs != (gang->held_count == gang->party_count))
        return "a gang runs with all its places and only with them";
    if (!party->device->leases || party->device->settle_until > party->device->lock->created)
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
    uint64_t demand = 0, need;
    const char *wrong = NULL;

    lockd_list_each (at, &party->members) {
        const struct sched_member *member = sched_member_of(at, of_party);

        members++;
        busy += sched_member_busy(member);
        demand += member->demand;
        wrong = wrong != NULL ? wrong : check_member(member, total);
    }
    need = device->lock->settings.exclusive ? device->capacity
                                            : sched_min(demand, device->capacity);
    total->parties++;
    total->holders += party->held;
    total->weights += party->weight;
    total->need_held += party->held ? need : 0;
    total->need_busy +=
        busy != 0 && !party->counted_stuck ? sched_max(need, party->lost) : party->lost;
    total->lost += party->lost;
    total->stuck += party->counted_stuck;
    total->stopping += !party->held && busy != 0;
    total->elsewhere += party->elsewhere;
    total->queued += party->queued_of == &device->queue;
    total->hopeless += party->queued_of == &device->hopeless;
    if (wrong != NULL)
        return wrong;
    if (members != party->member_count || busy != party->busy_members ||
        demand != party->demand || need != party->need)
        return "figures of a party";
    return check_turn(party);
}

static bool equal(const struct sched_share *a, const struct sched_share *b)
{
    return a->demand == b->demand && a->resident == b->resident && a->pinned == b->pinned &&
           a->hold == b->hold && a->kept == b->kept && a->given == b->given &&
           a->held == b->held && a->unsure == b->unsure && a->unsure_most == b->unsure_most;
}

static const char *check_device(const struct sched_device *device)
{
    struct total total = {0};
    const char *wrong = NULL;

    lockd_list_each (at, &device->parties) {
        if (wrong == NULL)
            wrong = check_party(sched_party_of(at, of_device), &total);
    }
    if (wrong != NULL)
        return wrong;
    if (!equal(&total.sum, &device->sum))
        return "sums of memory";
    if (total.need_held != device->need_held || total.need_busy != device->need_busy ||
        total.lost != device->lost)
        return "sums of needs";
    if (total.members != device->member_count || total.parties != device->party_count ||
        total.holders != device->holder_count || total.stopping != device->stopping_parties ||
        total.stuck != device->stuck_parties || total.weights != device->weights ||
        total.elsewhere != device->elsewhere)
        return "counts";
    if (length_of(&device->holders) != device->holder_count ||
        total.queued != device->queue.count || total.hopeless != device->hopeless.count ||
        total.idle != device->victims_idle.count ||
        total.waiting != device->victims_waiting.count)
        return "lengths of sets";
    return NULL;
}

static const char *check_host(const struct sched *lock)
{
    uint64_t used = 0, hold = 0, off = 0, goal = 0;

    lockd_list_each (at, &lock->clients) {
        const struct sched_client *client = lockd_entry(at, struct sched_client, link);

        used += client->host_used;
        hold += client->host_told == UINT64_MAX
                    ? client->host_used
                    : sched_max(client->host_told, client->host_used);
        off += client->host_off;
        goal += client->host_goal;
    }
    return used != lock->host_used || hold != lock->host_hold || off != lock->host_off ||
                   goal != lock->host_goal
               ? "sums of host memory"
               : NULL;
}

static const char *check_giving_way(const struct sched *lock)
{
    uint32_t gangs = 0;

    lockd_list_each (at, &lock->devices) {
        const struct sched_device *device = lockd_entry(at, struct sched_device, link);

        lockd_list_each (of, &device->parties) {
            const struct sched_party *party = sched_party_of(of, of_device);

            gangs += party->gang->gives_way && party->gang->parties.next == &party->of_gang;
        }
    }
    return gangs != lock->giving_way ? "how many gangs give way" : NULL;
}

const char *sched_check(const struct sched *lock)
{
    const char *wrong = check_host(lock);

    wrong = wrong != NULL ? wrong : check_giving_way(lock);
    lockd_list_each (at, &lock->devices) {
        if (wrong == NULL)
            wrong = check_device(lockd_entry(at, struct sched_device, link));
    }
    return wrong;
}
