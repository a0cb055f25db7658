/* SPDX-License-Identifier: Apache-2.0
 *
 * budget.c: how many bytes each member may hold on a device, and each client on the host.
 *
 * Invariant: sched_member_hold() is the most that a member can have on the device before it
 * has read and echoed everything sent. Nothing given here raises the sum of these above the
 * capacity. So a budget may be lowered at any time, and that counts when the member has echoed
 * and done it. A budget is raised only by what is free at that moment, and again as memory
 * leaves (credits).
 *
 * A program that has been stopped echoes nothing. A library with unread messages takes no memory
 * (gs_daemon_has_news() in runtime/base/daemon.h), so what a silent program may hold beyond what
 * it has ends with a target that it need not have read.
 *
 * Members whose turn has come get memory in the order of their admission. The first that does
 * not get all it needs ends the round: a member is complete early rather than all late.
 *
 * Host memory: programs keep there what is not on a device, and copies of what is. All together
 * stay below a total: a setting, or a part of what the machine has left. A client may have its
 * newest budget, or an older budget that it may still act on, or the bytes that it reports,
 * whichever is most; nothing given raises the sum of these above the total. As long as the memory
 * of all clients fits there as a whole, an event concerns one client. When it does not, bytes that
 * are off the devices come first, and the rest is divided in proportion to what each client could
 * still use: copies of memory that is on a device make way for memory that has to leave a device.
 * The division looks at all clients, and is made once every LOOK_PAUSE at most. A client is
 * believed up to the most that it was ever given; a new client up to the total; and a client that
 * an earlier daemon knew in full, while such clients come back.
 */
#include "lockd/sched/room.h"

static void change_budget(struct sched_member *member, uint64_t budget, uint64_t now)
{
    if (budget == member->budget)
        return;
    member->budget = budget;
    sched_books_member(member, now);
    sched_agenda_touch(member);
}

/* Takes up to so many bytes of a budget; returns what is still missing. */
static uint64_t take_budget(struct sched_member *member, uint64_t most, uint64_t missing,
                            uint64_t now)
{
    const uint64_t part = sched_min(missing, most);

    change_budget(member, member->budget - part, now);
    return missing - part;
}

/* Lowers the budgets of members that do not run until so many bytes are on their way out: first
 * budget that they do not use, then the memory of idle programs, least recently run first, then
 * that of waiting programs, furthest from its turn first. */
static void evict_members(struct sched_device *device, uint64_t missing, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->books.unused, books.unused) {
        if (missing == 0)
            return;
        missing = take_budget(member, member->budget - member->report.resident, missing, now);
    }
    while (missing > 0 &&
           device->books.victims_idle.count + device->books.victims_waiting.count != 0) {
        struct lockd_list *victim = device->books.victims_idle.count != 0
                                        ? device->books.victims_idle.nodes.next
                                        : device->books.victims_waiting.nodes.prev;
        struct sched_member *member = sched_member_of(victim, books.victim.link);

        missing = take_budget(member, member->budget - member->report.stays, missing, now);
    }
}

/* Takes spare bytes back that others need now. */
static void trim_spared(struct sched_device *device, uint64_t share, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->books.spared, books.spared) {
        const uint64_t most = member->report.demand + (member->party->turn.held ? share : 0);

        if (most < member->budget)
            member->trimmed_at = now;
        change_budget(member, sched_min(member->budget, most), now);
    }
}

/* Raises a budget towards goal by what is free, in steps worth a message; what a member may
 * hold anyway costs nothing. */
static void raise_budget(struct sched_member *member, uint64_t goal, uint64_t step,
                         uint64_t now)
{
    const struct sched_device *device = member->device;
    const uint64_t others =
        sched_less(device->books.sum.hold, sched_denial_passed(member->party).hold);
    const uint64_t most =
        sched_member_hold(member) + sched_less(device->space.capacity, others);
    const uint64_t to = sched_min(goal, most);

    if (member->sent.ended || to <= member->budget || (to < goal && to - member->budget < step))
        return;
    change_budget(member, to, now);
    sched_books_ahead(member, now);
}

/* A member that needs more than there is gets its demand only if no other has memory on the
 * device. */
static uint64_t required_bytes(const struct sched_member *member)
{
    const struct sched_device *device = member->device;
    const struct sched_party *party = member->party;
    uint64_t own = 0;

    if (party->books.demand > device->space.capacity &&
        party->books.demand <= device->measure.total && device->turns.holder_count == 1) {
        lockd_each (struct sched_member, each, &party->members, of_party)
            own += sched_member_hold(each);
        if (own == device->books.sum.hold)
            return member->report.demand;
    }
    return sched_need(member);
}

static void feed_hungry(struct sched_device *device, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->books.hungry, books.hungry) {
        const uint64_t goal = required_bytes(member);
        const bool has_read = (member->sent.flags & GS_TARGET_RUN) != 0 &&
                              member->report.echoed >= member->sent.run_seq;

        /* others wait for whatever it is given: a member that does not answer would keep it */
        if (member->sent.ended || (device->turns.leases && !has_read))
            continue;
        /* the promise on the sum holds as far as demand does */
        if (goal > device->space.capacity)
            change_budget(member, sched_max(member->budget, goal), now);
        else
            raise_budget(member, goal, sched_min(CREDIT_STEP, member->report.demand / 8), now);
        if (member->budget < goal)
            return;
    }
}

/* A member that runs may grow without asking by a share of the bytes that no other needs. */
static void spare_bytes(struct sched_device *device, uint64_t share, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->agenda.touched, agenda.touched) {
        const uint64_t limit = sched_max(sched_member_limit(member), member->report.demand);

        if (member->trimmed_at != 0 && now - member->trimmed_at < TELL_PAUSE)
            continue;
        if (member->party->turn.held && member->budget >= member->report.demand &&
            member->budget < member->report.demand + share / 4)
            raise_budget(member, sched_min(member->report.demand + share, limit), SHARE_STEP,
                         now);
    }
}

static void put_out_evicted(struct sched_device *device, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->agenda.touched, agenda.touched) {
        if (member->eviction.wanted && !sched_member_busy(member))
            change_budget(member, 0, now);
        else if ((member->books.refuses || sched_member_denied(member)) &&
                 !member->party->turn.held)
            change_budget(member, sched_min(member->budget, member->report.resident), now);
    }
}

/* From now on the budget of a silent program is no more than it holds, and counts although it has not
 * read it. */
static void end_silent(struct sched_device *device, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->books.stopping, books.stopping) {
        struct sched_member_sent *sent = &member->sent;

        if (sent->ended || member->report.echoed == sent->seq ||
            now - sent->unread_since < SILENT)
            continue;
        change_budget(member, sched_min(member->budget, member->report.resident), now);
        sent->ended = true;
        member->client->silent = member->client->sched->remarkable = true;
        sent->outstanding_count = 1;
        sent->outstanding[0] = (struct sched_outstanding){sent->seq, member->budget};
        sent->replaced.budget = 0;
        sched_books_member(member, now);
        sched_agenda_touch(member);
    }
}

void sched_budget_plan(struct sched_device *device, uint64_t now)
{
    uint64_t share; /* a runner's, of the bytes that nobody needs */

    put_out_evicted(device, now);
    if (!lockd_list_empty(&device->books.hungry) || device->turns.waiters ||
        device->books.sum.kept + device->books.sum.given > device->space.capacity)
        end_silent(device, now);
    if (device->books.sum.kept > device->space.capacity)
        evict_members(device, device->books.sum.kept - device->space.capacity, now);
    share = sched_less(device->space.capacity, device->books.sum.kept) /
            (device->books.sum.held + 1) / SHARE_STEP * SHARE_STEP;
    if (device->books.sum.kept + device->books.sum.given > device->space.capacity)
        trim_spared(device, share, now);
    feed_hungry(device, now);
    spare_bytes(device, share, now);
}

/* --- host memory --- */

#define HOST_PART     80 /* per cent of what is available that programs may have */
#define HOST_ROUNDING 8  /* blocks are larger than what is in them by up to this part */

/* The most that it may have. */
static uint64_t host_hold(const struct sched_client_host *host)
{
    return host->told == UINT64_MAX ? host->used : sched_max(host->told, host->used);
}

/* Takes a client's figures out of the sums (sign -1) before they change, and puts them in again (1). */
static void count_host(struct sched_client *client, int sign)
{
    const struct sched_client_host *host = &client->host;
    struct sched_host *sum = &client->sched->host;

    sum->said += (uint64_t)sign * host->said;
    sum->used += (uint64_t)sign * host->used;
    sum->hold += (uint64_t)sign * host_hold(host);
    sum->off += (uint64_t)sign * host->off;
    sum->goal += (uint64_t)sign * host->goal;
}

void sched_host_forget(struct sched_client *client)
{
    count_host(client, -1);
    client->sched->host.changed = true;
}

static void set_host(struct sched_client *client, uint64_t budget)
{
    struct sched_client_host *host = &client->host;

    if (budget == host->budget)
        return;
    count_host(client, -1);
    host->budget = budget;
    if (host->told == UINT64_MAX || budget > host->told)
        host->told = budget;
    host->given = sched_max(host->given, budget);
    count_host(client, 1);
    lockd_each (struct sched_member, member, &client->members, of_client)
        sched_agenda_touch(member);
}

/* Changes a budget towards goal: up by what is free, and never for a trifle. */
static void steer_budget(struct sched_client *client, uint64_t goal)
{
    const struct sched_host *all = &client->sched->host;
    const uint64_t most = host_hold(&client->host) + sched_less(all->total, all->hold),
                   to = sched_min(goal, most), now = client->host.budget,
                   step = sched_max(4 * CREDIT_STEP, goal / 16);

    if (now == UINT64_MAX || sched_less(now, to) >= step || sched_less(to, now) >= step ||
        (to > now && (to >= client->host.wanted || to == goal) && now < client->host.wanted))
        set_host(client, to);
}

/* A client's share when not everything fits: the bytes that are off the devices, and a part of
 * the rest in proportion to what it could use. */
static uint64_t goal_of(const struct sched_client *client)
{
    const struct sched_host *host = &client->sched->host;
    const uint64_t goal = client->host.goal, off = sched_min(client->host.off, goal);
    const double useful = (double)sched_less(host->goal, host->off);

    if (host->goal <= host->total)
        return goal;
    if (useful <= 0)
        return off;
    return off + (uint64_t)((double)sched_less(host->total, host->off) *
                            ((double)(goal - off) / useful));
}

void sched_host_report(struct sched_member *member, const struct gs_wire_state *state,
                       uint64_t now)
{
    struct sched_client *client = member->client;
    struct sched_client_host *host = &client->host;
    const uint64_t total = client->sched->host.total;
    const bool back = state->target_seq != 0 && now - client->sched->created < RETURN_WINDOW;
    uint64_t demand = 0, off = 0;
    bool heard = true; /* of its budget, on all devices */

    lockd_each (const struct sched_member, each, &client->members, of_client) {
        demand += each->report.demand;
        off += sched_less(each->report.demand, each->report.resident);
        heard =
            heard && each->report.echoed == each->sent.seq && each->sent.host == host->budget;
    }
    count_host(client, -1);
    if (host->budget == UINT64_MAX) /* it was not limited before */
        host->given = sched_max(total, back ? state->host_used : 0);
    host->said = state->host_used;
    host->used = sched_min(state->host_used, host->given);
    host->wanted = sched_min(state->host_wanted, total);
    host->goal = sched_max(demand + demand / HOST_ROUNDING + 4 * CREDIT_STEP,
                           sched_max(host->wanted, host->used));
    host->goal = sched_min(host->goal, sched_max(total, host->used));
    host->off = sched_min(off, host->goal);
    if (heard)
        host->told = host->budget;
    count_host(client, 1);
    if (total == UINT64_MAX)
        return;
    client->sched->host.changed = true;
    if (host->budget ==
        UINT64_MAX) /* its first target has it, whenever the last look at all was */
        steer_budget(client, goal_of(client));
}

void sched_host_plan(struct sched *sched, uint64_t now)
{
    const uint64_t set = sched->settings.host;
    struct sched_host *host = &sched->host;

    if (!host->changed)
        return;
    if (host->at != 0 && now - host->at < LOOK_PAUSE) {
        host->deadline = host->at + LOOK_PAUSE;
        return;
    }
    host->changed = false;
    host->deadline = LOCKD_NEVER;
    host->at = now;
    if (set != 0 && set != LOCKD_AUTO)
        host->total = set;
    else if (host->available == UINT64_MAX)
        host->total = UINT64_MAX;
    else
        host->total = (host->available + host->used) / 100 * HOST_PART;
    lockd_each (struct sched_client, client, &sched->clients, link) {
        if (lockd_list_empty(&client->members))
            continue;
        if (host->total == UINT64_MAX)
            set_host(client, UINT64_MAX);
        else
            steer_budget(client, goal_of(client));
    }
}
