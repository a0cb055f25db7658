/* SPDX-License-Identifier: Apache-2.0
 *
 * host.c: host memory. Programs keep there what is not on a device, and copies of what is. The
 * scheduler says how much each may have, so that all together stay below a total: a setting,
 * or a part of what the machine has left.
 *
 * Invariant: a client may have its newest budget, or an older budget that it may still act on,
 * or the bytes that it reports, whichever is most. Nothing given here raises the sum of these
 * above the total. As long as the memory of all clients fits there as a whole, an event
 * concerns one client. When it does not, bytes that are off the devices come first, and the
 * rest is divided in proportion to what each client could still use: copies of memory that is
 * on a device make way for memory that has to leave a device. The division looks at all
 * clients, and is made once every HOST_PAUSE at most.
 *
 * A client is believed up to the most that it was ever given; a new client up to the total; and
 * a client that an earlier daemon knew in full, while such clients come back. No client has use
 * for more than the total.
 */
#include "lockd/sched/host.h"

#include "lockd/sched/device.h"

#define HOST_PART     80 /* per cent of what is available that programs may have */
#define HOST_PAUSE    (10 * NS_PER_MS)
#define HOST_STEP     (64 * MIB)
#define HOST_ROUNDING 8 /* blocks are larger than what is in them by up to this part */

static void count_share(struct sched_client *client)
{
    struct sched *sched = client->sched;
    const bool limited = client->host.told != UINT64_MAX;
    const uint64_t hold =
        limited ? sched_max(client->host.told, client->host.used) : client->host.used;

    sched->host.said += client->host.said - client->host.share.said;
    client->host.share.said = client->host.said;
    sched->host.used += client->host.used - client->host.share.used;
    sched->host.hold += hold - client->host.share.hold;
    sched->host.off += client->host.off - client->host.share.off;
    sched->host.goal += client->host.goal - client->host.share.goal;
    client->host.share.used = client->host.used;
    client->host.share.hold = hold;
    client->host.share.off = client->host.off;
    client->host.share.goal = client->host.goal;
}

static bool has_answered(const struct sched_client *client)
{
    lockd_each (const struct sched_member, member, &client->members, of_client) {
        if (member->report.echoed != member->sent.seq ||
            member->sent.host != client->host.budget)
            return false;
    }
    return true;
}

void sched_host_forget(struct sched_client *client)
{
    client->host.said = client->host.used = client->host.wanted = 0;
    client->host.off = client->host.goal = 0;
    client->host.told = UINT64_MAX;
    client->host.given = 0;
    count_share(client);
    client->sched->host.changed = true;
}

static void give_budget(struct sched_client *client, uint64_t budget)
{
    if (budget == client->host.budget)
        return;
    client->host.budget = budget;
    if (client->host.told == UINT64_MAX || budget > client->host.told)
        client->host.told = budget;
    client->host.given = sched_max(client->host.given, budget);
    count_share(client);
    lockd_each (struct sched_member, member, &client->members, of_client)
        sched_agenda_touch(member);
}

/* Changes a budget towards goal: up by what is free, and never for a trifle. */
static void steer_budget(struct sched_client *client, uint64_t goal)
{
    const struct sched *sched = client->sched;
    const uint64_t most =
        client->host.share.hold + sched_less(sched->host.total, sched->host.hold);
    const uint64_t to = sched_min(goal, most), now = client->host.budget;
    const uint64_t step = sched_max(HOST_STEP, goal / 16);

    if (now == UINT64_MAX || sched_less(now, to) >= step || sched_less(to, now) >= step ||
        (to > now && (to >= client->host.wanted || to == goal) && now < client->host.wanted))
        give_budget(client, to);
}

static uint64_t find_total(const struct sched *sched)
{
    const uint64_t set = sched->settings.host;

    if (set != 0 && set != LOCKD_AUTO)
        return set;
    if (sched->host.available == UINT64_MAX)
        return UINT64_MAX;
    return (sched->host.available + sched->host.used) / 100 * HOST_PART;
}

/* A client's share when not everything fits: the bytes that are off the devices, and a part of
 * the rest in proportion to what it could use. */
static uint64_t part_of_total(const struct sched_client *client)
{
    const struct sched *sched = client->sched;
    const uint64_t off = sched_min(client->host.off, client->host.goal);
    const uint64_t rest = sched_less(sched->host.total, sched->host.off);
    const double useful = (double)sched_less(sched->host.goal, sched->host.off);

    if (useful <= 0)
        return off;
    return off + (uint64_t)((double)rest * ((double)(client->host.goal - off) / useful));
}

static uint64_t goal_of(const struct sched_client *client)
{
    const struct sched *sched = client->sched;

    return sched->host.goal <= sched->host.total ? client->host.goal : part_of_total(client);
}

void sched_host_report(struct sched_member *member, const struct gs_wire_state *state,
                       uint64_t now)
{
    struct sched_client *client = member->client;
    const bool back = state->target_seq != 0 && now - client->sched->created < RETURN_WINDOW;
    uint64_t demand = 0, off = 0;

    lockd_each (const struct sched_member, each, &client->members, of_client) {
        demand += each->report.demand;
        off += each->report.demand - sched_min(each->report.demand, each->report.resident);
    }
    if (client->host.budget == UINT64_MAX) /* it was not limited before */
        client->host.given = sched_max(client->sched->host.total, back ? state->host_used : 0);
    client->host.said = state->host_used;
    client->host.used = sched_min(state->host_used, client->host.given);
    client->host.wanted = sched_min(state->host_wanted, client->sched->host.total);
    client->host.goal = sched_max(demand + demand / HOST_ROUNDING + HOST_STEP,
                                  sched_max(client->host.wanted, client->host.used));
    client->host.goal =
        sched_min(client->host.goal, sched_max(client->sched->host.total, client->host.used));
    client->host.off = sched_min(off, client->host.goal);
    if (has_answered(client))
        client->host.told = client->host.budget;
    count_share(client);
    if (client->sched->host.total == UINT64_MAX)
        return;
    client->sched->host.changed = true;
    if (client->host.budget == UINT64_MAX)
        steer_budget(
            client,
            goal_of(client)); /* its first target has it, whichever client was looked at last */
}

void sched_host_plan(struct sched *sched, uint64_t now)
{
    if (!sched->host.changed)
        return;
    if (sched->host.at != 0 && now - sched->host.at < HOST_PAUSE) {
        sched->host.deadline = sched->host.at + HOST_PAUSE;
        return;
    }
    sched->host.changed = false;
    sched->host.deadline = LOCKD_NEVER;
    sched->host.at = now;
    sched->host.total = find_total(sched);
    lockd_each (struct sched_client, client, &sched->clients, link) {
        if (lockd_list_empty(&client->members))
            continue;
        if (sched->host.total == UINT64_MAX)
            give_budget(client, UINT64_MAX);
        else
            steer_budget(client, goal_of(client));
    }
}
