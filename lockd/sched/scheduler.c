/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.c: the events of the scheduler. Owns all clients and members (a client on a
 * device). Takes in what clients report and then lets plan.c decide. Every event ends with a
 * plan of the devices that it concerns, so no decision is ever owed between two events. For one
 * thread; no I/O, no clock.
 */
#include "lockd/sched/room.h"

/* The member comes from another device. Its time there was counted there, and is not counted
 * once more here. */
static void member_settle_in(struct sched_member *member, uint64_t now)
{
    struct sched_client_left *left = member->client->left;
    struct sched_party *party = member->party;

    member->time = left->time;
    member->time.counted_at = now;
    member->time.waits_since = 0;
    member->time.held_off_then = member->device->turns.held_off_ns;
    member->device->books.gpu_ns_gone -= left->time.gpu_ns;
    if (party->member_count == 1) {
        sched_share_arrive(party, &left->party);
        party->turn.count = left->party.turn.count;
        party->time.last_ran = left->party.time.last_ran;
    }
    free(left);
    member->client->left = NULL;
}

/* A client that comes with the number of a target of an earlier connection goes on counting
 * from there, so that an old number in its next report cannot be taken for ours. */
static struct sched_member *member_new(struct sched_client *client, struct sched_device *device,
                                       const struct gs_wire_state *state, uint64_t now)
{
    struct sched_member *member = calloc(1, sizeof *member);
    const bool moved_here = client->left != NULL;

    if (member == NULL)
        return NULL;
    member->party = sched_gang_join(client, device);
    if (member->party == NULL) {
        free(member);
        return NULL;
    }
    member->client = client;
    member->device = device;
    lockd_list_append(&client->members, &member->of_client);
    lockd_list_append(&device->members, &member->of_device);
    lockd_list_append(&member->party->members, &member->of_party);
    client->member_count++;
    device->member_count++;
    member->party->member_count++;
    member->time.counted_at = now;
    if (moved_here)
        member_settle_in(member, now);
    sched_wanting_note(member->party); /* it may have another class with it */
    if (state->target_seq < UINT32_MAX / 2)
        member->sent.seq = member->report.echoed = member->sent.first_seq = state->target_seq;
    if (state->target_seq == 0 || moved_here)
        device->totals->sum.programs++;
    if (state->target_seq != 0) { /* it comes back: what it moved until now was counted */
        member->report.moved_out = state->moved_out;
        member->report.moved_in = state->moved_in;
        member->report.saved = state->saved;
    }
    member->quota = client->quota_next;
    client->quota_next = UINT64_MAX;
    member->sent.host = UINT64_MAX;
    member->evidence.shown = member->evidence.least = member->evidence.most = UINT64_MAX;
    member->books.owes = member->books.offered = LOCKD_NEVER;
    member->last_run = ++device->clock;
    member->sent.given = member->budget = sched_measure_came_with(device, state, now);
    /* it runs as an earlier daemon allowed it, or says so; after the restart window it must stop,
     * like any member whose turn it is not */
    if ((state->flags & GS_STATE_RUNNING) != 0) {
        member->sent.flags = GS_TARGET_RUN;
        member->stopped = now;
        if (now - client->sched->created < RETURN_WINDOW && !member->party->turn.held)
            sched_lease_admit(member->party, false, now);
    }
    member->sent.budget = member->sent.had = member->budget;
    member->sent.outstanding_count = 1;
    member->sent.outstanding[0] = (struct sched_outstanding){member->sent.seq, member->budget};
    sched_measure_came(member, state->target_seq != 0 && !moved_here, now);
    return member;
}

/* Its device, too, if nobody else is on it. */
static void member_free(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;

    sched_agenda_plan(device);
    sched_plan_last(member, false, now);
    sched_books_forget(member, now);
    device->books.gpu_ns_gone += member->time.gpu_ns;
    lockd_list_remove(&member->of_client);
    lockd_list_remove(&member->of_device);
    member->client->member_count--;
    device->member_count--;
    sched_measure_forget(member, now);
    sched_gang_leave(member, now);
    free(member);
    sched_device_free_unused(device);
}

static void take_want(struct sched_member *member, bool wants, bool runs, uint64_t now)
{
    struct sched_gang *gang = member->party->gang;
    const bool before = (member->report.flags & GS_STATE_WANT) != 0;

    if (before == wants)
        return;
    gang->wanting += wants - (uint32_t)before;
    if (!wants)
        member->party->turn.measured =
            false; /* what comes is no switch: nobody is in a hurry */
    if (gang->wanting <= (uint32_t)wants)
        sched_agenda_settle_gang(gang);
    if (gang->wanting > (uint32_t)wants)
        return;
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (wants)
            sched_burst_begun(party, now);
        else
            sched_burst_ended(party, runs, now);
    }
}

static void take_running(struct sched_member *member, bool runs, uint64_t now)
{
    struct sched_party *party = member->party;
    struct sched_device *device = member->device;

    if (((member->report.flags & GS_STATE_RUNNING) != 0) == runs)
        return;
    if (!runs) {
        member->last_run = ++device->clock; /* no other ran more recently */
        sched_sooner(&device->grace_at, now + sched_device_look(device));
        return;
    }
    party->turn.skipped = 0;
    if (!sched_member_run(member) || party->turn.started != 0)
        return;
    party->turn.started = now;
    if (device->turns.leases && party->turn.measured) {
        /* at first it has no memory that must come in: that switch is cheaper than any after it */
        if (party->time.last_ran != 0)
            sched_device_switched(device,
                                  now - sched_max(party->turn.cleared, device->books.stuck_at));
        lockd_totals_count(&device->totals->sum.hand_offs, now - party->turn.cleared);
    }
    party->turn.measured = false;
}

/* Between two reports no more than all of the device can have moved, whatever it says. */
static void count_moved(struct sched_member *member, const struct gs_wire_state *state)
{
    const uint64_t most = member->device->measure.total;
    struct gs_wire_totals *sum = &member->device->totals->sum;

    sum->moved_out += sched_min(sched_less(state->moved_out, member->report.moved_out), most);
    sum->moved_in += sched_min(sched_less(state->moved_in, member->report.moved_in), most);
    sum->saved_equal +=
        sched_min(sched_less(state->saved.equal, member->report.saved.equal), most);
    sum->saved_zero +=
        sched_min(sched_less(state->saved.zero, member->report.saved.zero), 2 * most);
    sum->saved_unchanged +=
        sched_min(sched_less(state->saved.unchanged, member->report.saved.unchanged), most);
    member->report.moved_out = state->moved_out;
    member->report.moved_in = state->moved_in;
    member->report.saved = state->saved;
}

static void take_figures(struct sched_member *member, const struct gs_wire_state *state,
                         uint64_t now)
{
    /* it cannot have more than it was ever given, whatever it says */
    const uint64_t claimed = sched_min(state->resident, member->sent.given),
                   resident = sched_min(claimed, member->evidence.most);

    if (resident < member->report.resident || state->target_seq > member->report.echoed)
        member->books.owes = LOCKD_NEVER; /* it is at it */
    member->report.flags = state->flags;
    if (member->report.demand != sched_max(state->demand, resident))
        sched_agenda_mark(member->client->in_group);
    if (member->report.demand < sched_max(state->demand, resident))
        member->party->gang->forming.left = GRACE;
    member->report.demand = sched_max(state->demand, resident);
    member->report.resident = resident;
    member->report.claimed = claimed;
    sched_books_ahead(member, now);
    member->evidence.least = sched_min(member->evidence.least, claimed);
    member->report.pinned = state->pinned;
    member->report.shared = state->shared;
    member->report.pinned_graphs = state->pinned_graphs;
    member->report.pinned_arrays = state->pinned_arrays;
    member->report.over = state->over;
    member->report.loose = state->loose;
    sched_books_stays(member, sched_min(state->stays, resident));
    sched_short_used(member);
    count_moved(member, state);
    member->report.calls = state->calls;
    member->report.switch_ns = state->switch_ns;
    if (state->target_seq > member->report.echoed && state->target_seq <= member->sent.seq) {
        member->report.echoed = state->target_seq;
        sched_send_echo(member, now);
    }
}

static void member_report(struct sched_member *member, const struct gs_wire_state *state,
                          uint64_t now)
{
    const bool hopeless = sched_party_hopeless(member->party);

    sched_books_time(member, now);
    take_want(member, (state->flags & GS_STATE_WANT) != 0,
              (state->flags & GS_STATE_RUNNING) != 0, now);
    take_running(member, (state->flags & GS_STATE_RUNNING) != 0, now);
    take_figures(member, state, now);
    sched_books_member(member, now);
    sched_lease_look_complete(member->party->gang, now);
    if ((state->flags & GS_STATE_SHORT) != 0)
        sched_short_report(member, state->short_bytes, now);
    else
        member->shortage.at = 0;
    if ((state->flags & GS_STATE_STUCK) != 0)
        sched_sooner(&member->device->stop_at, now);
    if (hopeless != sched_party_hopeless(member->party))
        sched_agenda_settle_gang(member->party->gang);
    sched_evict_check(member, now);
    if (member->party->gang->closing.by != NULL)
        sched_agenda_plan(member->party->gang->closing.by);
    sched_agenda_touch(member);
}

int sched_state(struct sched_client *client, const struct gs_wire_state *state, uint64_t now_ns)
{
    struct sched_member *member = sched_member_find(client, state->uuid);
    struct sched_device *device;
    struct sched_gang *gang;
    int code;

    if (member == NULL) {
        if (client->member_count == LOCKD_DEVICES_PER_CLIENT)
            return -EMFILE;
        code = sched_device_get(client->sched, state->uuid, client->user, now_ns, &device);
        if (code != 0)
            return code;
        member = member_new(client, device, state, now_ns);
        if (member == NULL) {
            sched_device_free_unused(device);
            return -ENOMEM;
        }
        member_report(member, state, now_ns);
        gang = member->party->gang;
        sched_together_came(gang, now_ns);
        /* a gang that runs cannot have a party without a place: the party gets its place at once or
         * all stop */
        if (gang->runs && !member->party->turn.held) {
            gang->runs = false; /* not all are held any more */
            if (!device->turns.leases ||
                (device->waiting.queue.count == 0 && device->books.need_busy == 0))
                sched_lease_admit(member->party, false, now_ns);
            else
                sched_lease_end(gang, now_ns);
        }
        if (gang->client_count > 1)
            sched_lease_requeue_gang(gang, now_ns);
        sched_agenda_settle_gang(gang);
    } else {
        member_report(member, state, now_ns);
    }
    sched_measure_report(member, state, now_ns);
    sched_measure_asked(member, state, now_ns);
    sched_host_report(member, state, now_ns);
    sched_agenda_plan(member->device);
    sched_plan(client->sched, now_ns);
    return 0;
}

struct sched_client *sched_client_add(struct sched *sched, void *owner)
{
    struct sched_client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return NULL;
    client->owner = owner;
    client->sched = sched;
    client->set.weight = GS_WEIGHT_DEFAULT;
    client->set.limit = client->quota_next = UINT64_MAX;
    client->host.budget = client->host.told = UINT64_MAX;
    lockd_list_append(&sched->clients, &client->link);
    return client;
}

void sched_client_gone(struct sched_client *client, uint64_t now_ns)
{
    struct sched *sched = client->sched;

    lockd_each (struct sched_member, member, &client->members, of_client)
        member_free(member, now_ns);
    sched->background -= client->set.class == GS_CLASS_BACKGROUND;
    sched_host_forget(client);
    sched_gang_client_gone(client);
    lockd_list_remove(&client->link);
    free(client->left);
    free(client);
    sched_plan(sched, now_ns);
}

void sched_left(struct sched_client *client, const uint8_t *uuid, uint64_t now_ns)
{
    struct sched_member *member = sched_member_find(client, uuid);

    if (member == NULL)
        return;
    sched_books_time(member, now_ns);
    if (client->left == NULL)
        client->left = malloc(sizeof *client->left);
    if (client->left != NULL) { /* else it is as new where it comes to */
        *client->left = (struct sched_client_left){
            .time = member->time,
            .party = *member->party,
        };
    }
    sched_agenda_mark(client->in_group);
    member_free(member, now_ns);
    sched_plan(client->sched, now_ns);
}

void sched_kin(struct sched_client *client, uint64_t kin, uint64_t now_ns)
{
    sched_group_kin(client, kin, now_ns);
    sched_plan(client->sched, now_ns);
}

void sched_rank(struct sched_client *client, uint32_t ranks, uint64_t now_ns)
{
    ranks = ranks > 1 ? ranks : 1;
    if (ranks <= client->ranks)
        return;
    client->ranks = ranks;
    if (client->gang != NULL)
        sched_together_came(client->gang, now_ns);
    sched_plan(client->sched, now_ns);
}

void sched_tick(struct sched *sched, uint64_t now_ns)
{
    lockd_each (struct sched_device, device, &sched->devices, link) {
        sched_evict_watch(device, now_ns);
        if (now_ns >= device->deadline)
            sched_agenda_plan(device);
    }
    sched_plan(sched, now_ns);
}

uint64_t sched_deadline(const struct sched *sched)
{
    uint64_t deadline = sched_min(sched->host.deadline, sched->groups_at);

    deadline = sched_min(deadline, sched->forming.at);
    lockd_each (const struct sched_device, device, &sched->devices, link)
        deadline = sched_min(deadline, device->deadline);
    return deadline;
}

struct sched *sched_new(const struct sched_settings *settings, uint64_t now_ns)
{
    struct sched *sched = calloc(1, sizeof *sched);

    if (sched == NULL)
        return NULL;
    sched->settings = sched_settings_in_force(settings);
    sched->created = now_ns;
    sched->host.available = sched->host.total = UINT64_MAX;
    sched->host.deadline = sched->groups_at = sched->forming.at = LOCKD_NEVER;
    return sched;
}

void sched_free(struct sched *sched)
{
    if (sched == NULL)
        return;
    lockd_each (struct sched_client, client, &sched->clients, link)
        sched_client_gone(client, 0);
    lockd_each (struct sched_claim, claim, &sched->claims, link)
        free(claim);
    lockd_totals_free(&sched->totals);
    free(sched);
}
