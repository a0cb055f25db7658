/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: the scheduler's state as gpusharectl shows it (figures.def). Reads only, but for the
 * places in a queue, which are numbered for one answer.
 */
#include "lockd/sched/room.h"

const struct sched_settings *sched_settings(const struct sched *sched)
{
    return &sched->settings;
}

bool sched_next_remark(struct sched *sched, struct sched_remark *remark)
{
    if (!sched->remarkable)
        return false;
    lockd_each (struct sched_client, client, &sched->clients, link) {
        struct sched_group *group = client->in_group;
        const bool apart = group != NULL && group->unsaid;

        if (!client->contradicted && !client->silent && !apart)
            continue;
        *remark =
            (struct sched_remark){client->owner, client->contradicted, client->silent,
                                  apart ? group->name : NULL, apart ? group->too_small : NULL};
        client->contradicted = client->silent = false;
        if (apart)
            group->unsaid = false;
        return true;
    }
    sched->remarkable = false;
    return false;
}

struct sched_client_info sched_client_info(const struct sched_client *client)
{
    return (struct sched_client_info){client->paused, client->member_count == 0, client->set};
}

uint64_t sched_client_resident(const struct sched_client *client, const uint8_t *uuid)
{
    const struct sched_member *member = sched_member_find(client, uuid);

    return member != NULL ? member->report.resident : 0;
}

uint64_t sched_client_demand(const struct sched_client *client, const uint8_t *uuid)
{
    const struct sched_member *member = sched_member_find(client, uuid);

    return member != NULL ? member->report.demand : 0;
}

static uint64_t bit_of(const struct sched_device *device)
{
    unsigned bit = 0;

    lockd_each (const struct sched_device, each, &device->sched->devices, link) {
        if (each == device || bit == 63)
            break;
        bit++;
    }
    return 1ull << bit;
}

struct sched_progress sched_client_progress(const struct sched_client *client, uint64_t now_ns)
{
    struct sched_progress progress = {
        .apart = client->in_group != NULL && client->in_group->apart,
    };

    lockd_each (const struct sched_member, member, &client->members, of_client) {
        progress.devices |= bit_of(member->device);
        progress.calls += member->report.calls;
        progress.turns += member->party->turn.count;
        progress.runs |= (member->report.flags & GS_STATE_RUNNING) != 0;
        progress.waits |= sched_member_wants(member) && !sched_member_run(member);
        progress.stuck |= sched_member_stuck(member, now_ns);
        progress.leases |= member->device->turns.leases;
    }
    return progress;
}

/* What it does by its last report counts, too. */
static bool is_waiting(const struct sched_member *member)
{
    return (member->report.flags & GS_STATE_RUNNING) == 0 && sched_member_wants(member);
}

static uint64_t member_wait_ns(const struct sched_member *member, uint64_t now)
{
    return member->time.wait_ns +
           (is_waiting(member) ? sched_less(now, member->time.counted_at) : 0);
}

bool sched_client_load(const struct sched_client *client, uint32_t number,
                       struct sched_load *load, uint64_t now_ns)
{
    const struct sched_member *member;
    bool works;

    if (number >= client->member_count)
        return false;
    member = sched_member_of(client->members.next, of_client);
    while (number-- != 0)
        member = sched_member_of(member->of_client.next, of_client);
    works = (~member->report.flags & (GS_STATE_RUNNING | GS_STATE_WANT)) == 0;
    *load = (struct sched_load){
        .alone = client->member_count == 1 && client->gang->client_count == 1 &&
                 (client->in_group == NULL || !client->in_group->apart),
        .waits = is_waiting(member),
        .turns = member->device->turns.leases,
        .class = sched_party_class(member->party, now_ns),
        .run_ns =
            member->time.works_ns + (works ? sched_less(now_ns, member->time.counted_at) : 0),
        .wait_ns = member_wait_ns(member, now_ns),
        .demand = member->report.demand,
        .resident = member->report.resident,
        .pinned = sched_member_pinned(member),
        .capacity = member->device->space.capacity,
    };
    memcpy(load->uuid, member->device->uuid, sizeof load->uuid);
    return true;
}

/* While memory is missing its gate is shut, whether it has stopped or not. */
static bool is_open(const struct sched_member *member)
{
    return (member->report.flags & (GS_STATE_RUNNING | GS_STATE_MOVING)) == GS_STATE_RUNNING;
}

static enum gs_condition member_condition(const struct sched_member *member, uint64_t now)
{
    if (sched_member_stuck(member, now) || sched_member_clings(member, now))
        return GS_CONDITION_STUCK;
    if (!member->party->turn.held && sched_member_busy(member))
        return GS_CONDITION_STOPPING;
    if (member->party->gang->paused != 0)
        return GS_CONDITION_PAUSED;
    if (member->report.demand > sched_party_room(member->party) && !is_open(member))
        return GS_CONDITION_DOES_NOT_FIT;
    if ((member->report.flags & GS_STATE_WANT) == 0)
        return GS_CONDITION_IDLE;
    if (!sched_member_run(member))
        return GS_CONDITION_WAITS;
    return is_open(member) ? GS_CONDITION_RUNS : GS_CONDITION_MOVING;
}

static uint64_t member_gpu_ns(const struct sched_member *member, uint64_t now)
{
    const bool runs = (member->report.flags & GS_STATE_RUNNING) != 0;

    return member->time.gpu_ns + (runs ? sched_less(now, member->time.counted_at) : 0);
}

static struct gs_wire_device describe_device(const struct sched_device *device, uint64_t now)
{
    struct gs_wire_device wire = {
        .total = device->measure.total,
        .capacity = device->space.capacity,
        .external = device->measure.external,
        .reserve = sched_device_reserve(device),
        .short_bytes = device->space.short_bytes + device->space.claimed,
        .demand = device->books.sum.demand,
        .resident = device->books.sum.resident,
        .pinned = device->books.sum.pinned,
        .clients = device->member_count,
        .waiting = device->waiting.queue.count + device->waiting.apart.count,
        .leases = device->turns.leases,
        .exclusive = device->turns.leases && !sched_device_crowded(device),
        .quantum_ns = sched_device_quantum(device),
        .switch_ns = sched_device_switch(device),
        .switches = device->turns.switches,
        .gpu_ns = device->books.gpu_ns_gone,
    };

    memcpy(wire.uuid, device->uuid, sizeof wire.uuid);
    memcpy(wire.name, device->name, sizeof wire.name);
    lockd_each (const struct sched_member, member, &device->members, of_device)
        wire.gpu_ns += member_gpu_ns(member, now);
    return wire;
}

static struct gs_wire_client describe_member(const struct sched_member *member, uint64_t now)
{
    const struct sched_client *client = member->client;
    /* waits_since is of what it did until its last report */
    const bool waits = is_waiting(member);
    const uint64_t since =
        member->time.waits_since != 0 ? member->time.waits_since : member->time.counted_at;
    struct gs_wire_client wire = {
        .condition = member_condition(member, now),
        .flags = (sched_member_run(member) ? GS_CLIENT_LEASE : 0) |
                 (member->party->turn.skipped != 0 ? GS_CLIENT_SKIPPED : 0) |
                 ((member->report.flags & GS_STATE_PARTIAL) != 0 ? GS_CLIENT_PARTIAL : 0) |
                 (client->paused ? GS_CLIENT_PAUSED : 0) |
                 (client->in_group != NULL && client->in_group->apart ? GS_CLIENT_APART : 0),
        .priority = client->set.priority,
        .demand = member->report.demand,
        .resident = member->report.resident,
        .on_host = sched_less(member->report.demand, member->report.resident),
        .budget = member->budget,
        .moved_out = member->report.moved_out,
        .moved_in = member->report.moved_in,
        .saved = member->report.saved.equal + member->report.saved.zero +
                 member->report.saved.unchanged,
        .saved_equal = member->report.saved.equal,
        .saved_zero = member->report.saved.zero,
        .saved_unchanged = member->report.saved.unchanged,
        .calls = member->report.calls,
        .turns = member->party->turn.count,
        .switch_ns = member->report.switch_ns,
        .pinned = member->report.pinned,
        .shared = member->report.shared,
        .pinned_graphs = member->report.pinned_graphs,
        .pinned_arrays = member->report.pinned_arrays,
        .stays = member->report.stays,
        .over = member->report.over,
        .limit = sched_min(client->set.limit, member->quota),
        .host_used = client->host.said,
        .host_budget = client->host.budget,
        .gpu_ns = member_gpu_ns(member, now),
        .wait_ns = member_wait_ns(member, now),
        .wait_longest_ns =
            sched_max(member->time.wait_longest_ns, waits ? sched_less(now, since) : 0),
        .weight = client->set.weight,
        .yielded_ns = member->time.yielded_ns,
        .class = sched_party_class(member->party, now),
        .used_ppm = (uint64_t)(sched_share_used(member->party, now) * (double)PPM),
        .waits_most_ns = UINT64_MAX,
        .queue_place = waits ? member->party->wait.place : 0,
    };

    if (client->in_group != NULL && client->in_group->client_count > 1) {
        wire.gang = client->in_group->number;
        wire.gang_programs = client->in_group->client_count;
        wire.gang_why = client->kin == 0 ? GS_KIN_GROUP : GS_KIN_NONE;
    }
    memcpy(wire.uuid, member->device->uuid, sizeof wire.uuid);
    memcpy(wire.group, client->group, sizeof wire.group);
    return wire;
}

void sched_visit_totals(const struct sched *sched, sched_visit_total *visit, void *context,
                        uint64_t now_ns)
{
    lockd_each (const struct sched_device, each, &sched->devices, link) {
        struct gs_wire_totals totals = each->totals->sum;

        memcpy(totals.name, each->name, sizeof totals.name);
        lockd_each (const struct sched_member, member, &each->members, of_device) {
            totals.gpu_ns += member_gpu_ns(member, now_ns) - member->time.gpu_ns;
            totals.wait_ns += member_wait_ns(member, now_ns) - member->time.wait_ns;
        }
        visit(context, &totals);
    }
    lockd_each (const struct lockd_totals, each, &sched->totals, link) {
        if (!each->used)
            visit(context, &each->sum);
    }
}

void sched_visit(const struct sched *sched, sched_visit_device *visit_device,
                 sched_visit_member *visit_member, void *context, uint64_t now_ns)
{
    lockd_each (const struct sched_device, each, &sched->devices, link) {
        const struct gs_wire_device device = describe_device(each, now_ns);
        uint64_t place = 0; /* first parties that can get a turn */

        lockd_each (struct sched_party, party, &each->parties, of_device)
            party->wait.place = 0;
        sched_each_queued (party, &each->waiting.queue)
            party->wait.place = ++place;
        sched_each_queued (party, &each->waiting.apart)
            party->wait.place = ++place;
        visit_device(context, &device);
        lockd_each (const struct sched_member, member, &each->members, of_device) {
            const struct gs_wire_client client = describe_member(member, now_ns);

            visit_member(context, member->client->owner, &client);
        }
    }
}

void sched_visit_client(const struct sched_client *client, sched_visit_member *visit,
                        void *context, uint64_t now_ns)
{
    lockd_each (const struct sched_member, member, &client->members, of_client) {
        const struct gs_wire_client wire = describe_member(member, now_ns);

        visit(context, client->owner, &wire);
    }
}

/* --- why a program waits ---
 *
 * The bound is that of a turn, which no event makes longer: if the waiting program stays the
 * next, the turn that it waits for has ended by then. Other events, such as a younger
 * program that comes, may only end that turn earlier. */

static struct sched_why make_why(enum gs_why why, const struct sched_party *of,
                                 uint64_t most_ns)
{
    void *owner = of != NULL ? sched_party_first(of)->client->owner : NULL;

    return (struct sched_why){.why = why, .owner = owner, .most_ns = most_ns};
}

/* A party that was asked to stop and has not yet, or whose gang was; NULL: none. */
static const struct sched_party *find_stopping(const struct sched_device *device,
                                               const struct sched_party *but)
{
    lockd_each (const struct sched_party, party, &device->parties, of_device) {
        if (party != but && party->member_count != 0 &&
            (party->books.counted_stopping || party->gang->closing.by != NULL))
            return party;
    }
    return NULL;
}

/* The holder with whose turn there is enough room for `head`: of those whose turns end early
 * enough, the last. */
static const struct sched_party *find_holder(const struct sched_device *device,
                                             const struct sched_party *head, uint64_t now)
{
    const uint64_t needs =
        device->books.need_held + sched_queue_lost(head) + sched_queue_takes(head);
    const struct sched_party *found = NULL;
    uint64_t found_at = 0;

    lockd_each (const struct sched_party, holder, &device->turns.holders, turn.holder) {
        const uint64_t at = sched_turn_ends_at(holder, head, now);
        uint64_t freed = 0; /* by turns that must end by then */

        if (found != NULL && at >= found_at)
            continue;
        lockd_each (const struct sched_party, each, &device->turns.holders, turn.holder)
            freed += sched_turn_ends_at(each, head, now) <= at ? sched_party_leaves(each) : 0;
        if (sched_less(needs, freed) <= device->space.capacity) {
            found = holder;
            found_at = at;
        }
    }
    return found;
}

/* Why `party` does not have the turn of `holder`. */
static enum gs_why why_behind(const struct sched_party *party, const struct sched_party *holder)
{
    if (sched_share_is_first(holder) && !sched_share_is_first(party))
        return GS_WHY_GOES_FIRST;
    if (sched_share_is_first(party) && !sched_share_is_first(holder) &&
        sched_share_now(party) == SCHED_TURN_WAITS)
        return GS_WHY_FLOOR;
    return GS_WHY_TURN;
}

static struct sched_why why_queued(const struct sched_party *party, uint64_t now)
{
    const struct sched_device *device = party->device;
    const struct sched_party *head = sched_queue_head(device),
                             *stops = find_stopping(device, party), *holder;
    uint64_t at;

    if (stops != NULL)
        return make_why(GS_WHY_STOPS, stops, LOCKD_NEVER);
    if (head == NULL) /* the place is kept for a party that was interrupted */
        return make_why(GS_WHY_QUEUE, device->waiting.back, LOCKD_NEVER);
    holder = find_holder(device, head, now);
    if (holder == NULL)
        return make_why(GS_WHY_QUEUE, head != party ? head : NULL, LOCKD_NEVER);
    at = sched_turn_ends_at(holder, head, now);
    return make_why(head == party ? why_behind(party, holder) : GS_WHY_QUEUE, holder,
                    at == LOCKD_NEVER ? at : sched_less(at, now));
}

struct sched_why sched_client_why(const struct sched_client *client, const uint8_t *uuid,
                                  uint64_t now_ns)
{
    const struct sched_member *member = sched_member_find(client, uuid);
    const struct sched_party *party = member != NULL ? member->party : NULL, *stops;

    if (member == NULL || !sched_member_wants(member) || is_open(member) ||
        party->gang->paused != 0)
        return make_why(GS_WHY_NONE, NULL, LOCKD_NEVER);
    if (member->sent.ended)
        return make_why(GS_WHY_SILENT, NULL, LOCKD_NEVER);
    if (party->gang->forming.waits)
        return make_why(GS_WHY_FORMS, NULL, LOCKD_NEVER);
    if (sched_party_hopeless(party))
        return make_why(GS_WHY_TOO_LARGE, NULL, LOCKD_NEVER);
    if (party->wait.queued.of != NULL)
        return why_queued(party, now_ns);
    if (party->gang->held_count != party->gang->party_count)
        return make_why(GS_WHY_ELSEWHERE, NULL, LOCKD_NEVER);
    stops = find_stopping(party->device, party);
    return make_why(stops != NULL ? GS_WHY_STOPS : GS_WHY_MEMORY, stops, LOCKD_NEVER);
}
