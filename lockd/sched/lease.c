/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.c: the turn of a gang begins and ends. A gang runs when all its parties are held, a
 * party for each device that its clients use; until then none of it does.
 *
 * Places are taken one after the other in the order of the devices' UUIDs. The order is the
 * same for all gangs, so no two gangs can each hold what the other one waits for. A party is
 * not even queued before its predecessor in that order has its place. A turn that ends on one
 * device ends on all. No state of its own.
 */
#include "lockd/sched/room.h"

struct sched_party *sched_lease_next(const struct sched_gang *gang)
{
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (!party->turn.held)
            return party;
    }
    return NULL;
}

static void begin_party(struct sched_party *party, uint64_t length, uint64_t now)
{
    party->turn.begun = true;
    party->turn.interrupted = party->wait.keeps_place = false;
    party->wait.yields = false;
    if (!party->turn.measured)
        party->turn.cleared = now;
    party->turn.measured = true;
    party->device->turns.generation++; /* there is a time now when it must stop */
    party->turn.progress = now;
    lockd_each (struct sched_member, member, &party->members, of_party) {
        member->books.asked = member->report.demand;
        member->books.came = 0;
        sched_books_ahead(member, now);
    }
    party->time.ran = party->turn.vain = 0;
    party->time.counted_at = now;
    /* a party that only keeps its place for the others of the gang has begun */
    party->turn.started =
        party->books.running_members != 0 || !sched_party_has(party, GS_STATE_WANT) ? now : 0;
    party->turn.until = LOCKD_NEVER;
    party->turn.length = 0;
    if (party->device->turns.leases) {
        party->turn.length = length;
        party->turn.count++;
        party->device->turns.switches++;
        party->device->totals->sum.switches++;
        sched_sooner(&party->device->grace_at, now + sched_device_look(party->device));
        if (party->gang->complete != 0 && length != LOCKD_NEVER)
            party->turn.until = now + length;
    }
}

void sched_lease_set_complete(struct sched_gang *gang, uint64_t now)
{
    gang->complete = now;
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (party->device->turns.leases && party->turn.length != LOCKD_NEVER)
            party->turn.until = now + party->turn.length;
        party->device->turns.generation++; /* there is a time now when it must stop */
        sched_agenda_plan(party->device);
    }
}

void sched_lease_anew(struct sched_party *party, uint64_t from)
{
    const struct sched_policy *policy = sched_policy_of(party->device);

    policy->place(party);
    party->turn.length = policy->length(party);
    party->time.ran = 0;
    party->turn.until = party->turn.length == LOCKD_NEVER || party->gang->complete == 0
                            ? LOCKD_NEVER
                            : from + party->turn.length;
}

/* A program that came to run early, since its memory was there, may not use up the time of
 * programs that wait for their memory. */
void sched_lease_look_complete(struct sched_gang *gang, uint64_t now)
{
    if (!gang->runs || gang->complete != 0 || gang->wanting == 0)
        return;
    sched_each_of_gang (member, gang) {
        const uint32_t flags = member->report.flags;

        if ((flags & GS_STATE_WANT) != 0 && (flags & GS_STATE_RUNNING) == 0)
            return;
    }
    sched_lease_set_complete(gang, now);
}

void sched_lease_begin(struct sched_gang *gang, uint64_t now)
{
    const uint64_t back = gang->out ? now : 0;
    uint64_t length = 0;

    /* The turn lasts as long everywhere as on the device where it is due for longest. The surplus
     * on the other devices is made up for there. */
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (party->turn.begun)
            length = sched_max(length, party->turn.length);
        else if (party->device->turns.leases)
            length = sched_max(length, sched_policy_of(party->device)->length(party));
    }
    sched_together_forget(gang);
    gang->runs = true;
    gang->out = false;
    sched_lease_give_way(gang, false);
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (!party->turn.begun)
            begin_party(party, length, now);
        lockd_each (struct sched_member, member, &party->members, of_party) {
            member->eviction.back = back;
            sched_agenda_touch(member);
        }
        sched_books_party(party, now);
        sched_agenda_plan(party->device);
    }
    sched_lease_look_complete(gang, now);
}

/* Its places are of no use before it has all of them, and are kept for no longer than the turns
 * of all others on the device that it waits for should take. */
static uint64_t patience_of(const struct sched_gang *gang)
{
    const struct sched_device *device = sched_lease_next(gang)->device;
    const uint64_t turns = device->waiting.queue.count + device->turns.holder_count + 1ull;

    return GRACE + turns * sched_device_quantum(device);
}

void sched_lease_give_way(struct sched_gang *gang, bool gives)
{
    gang->sched->giving_way += (uint32_t)gives - (uint32_t)gang->gives_way;
    gang->gives_way = gives;
}

static void retry_gang(struct sched_gang *gang)
{
    sched_lease_give_way(gang, false);
    sched_agenda_settle_gang(gang);
}

static bool nobody_wants(const struct sched_device *device, const struct sched_gang *but)
{
    if (device->waiting.queue.count != 0)
        return false;
    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        const struct sched_gang *gang = party->gang;

        if (gang != but && sched_gang_wants(gang))
            return false;
    }
    return true;
}

void sched_lease_retry(struct sched_device *device, uint64_t now)
{
    sched_each_queued (party, &device->waiting.apart) {
        if (party->gang->gives_way && now >= party->gang->retry_at)
            retry_gang(party->gang);
        else if (party->gang->gives_way)
            sched_sooner(&device->stop_at, party->gang->retry_at);
    }
    if (device->sched->giving_way == 0 || !nobody_wants(device, NULL))
        return;
    lockd_each (struct sched_party, party, &device->parties, of_device) {
        struct sched_gang *gang = party->gang;
        bool alone = gang->gives_way && sched_gang_wants(gang); /* it could give way to none */

        lockd_each (const struct sched_party, each, &gang->parties, of_gang)
            alone = alone && nobody_wants(each->device, gang);
        if (alone)
            retry_gang(gang);
    }
}

void sched_lease_admit(struct sched_party *party, bool backfilled, uint64_t now)
{
    struct sched_device *device = party->device;

    party->turn.cleared = device->cleared.at;
    party->turn.measured =
        device->cleared.party == party &&
        party->gang->held_count + 1 ==
            party->gang->party_count; /* else it waits for others of its gang */
    if (device->cleared.party == party || !backfilled)
        device->cleared.party = NULL; /* a party that lost its place to this one clears anew */
    sched_queue_drop(party);
    party->turn.held = true;
    party->turn.backfilled = backfilled;
    lockd_list_append(&device->turns.holders, &party->turn.holder);
    device->turns.holder_count++;
    device->turns.generation++;
    party->gang->held_count++;
    sched_wanting_note(party);
    sched_books_party(party, now);
    sched_queue_served(party, now);
    if (party->gang->held_count == party->gang->party_count) {
        sched_lease_begin(party->gang, now);
    } else {
        const uint64_t until = now + patience_of(party->gang);

        lockd_each (struct sched_party, each, &party->gang->parties, of_gang)
            each->turn.until = until;
        sched_agenda_settle_gang(party->gang);
    }
}

static void end_party(struct sched_party *party, uint64_t now)
{
    struct sched_device *device = party->device;
    const struct sched_policy *policy = sched_policy_of(device);

    sched_books_ran(party, now);
    sched_vain_ended(party, now);
    if (device->turns.leases && party->gang->runs && policy->ended != NULL)
        policy->ended(party);
    party->turn.held = party->turn.begun = false;
    party->turn.backfilled = false;
    party->turn.started = party->turn.knotted = 0;
    lockd_list_remove(&party->turn.holder);
    device->turns.holder_count--;
    device->turns.generation++;
    party->gang->held_count--;
    sched_wanting_note(party);
    sched_sooner(&device->stop_at, now + GRACE);
    lockd_each (struct sched_member, member, &party->members, of_party) {
        member->stopped = now;
        member->shortage.had = 0;
        member->beyond = false;
        sched_agenda_touch(member);
    }
}

void sched_lease_end(struct sched_gang *gang, uint64_t now)
{
    const struct sched_party *next = sched_lease_next(gang);

    sched_together_forget(gang);
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        if (party->turn.held && next != NULL && now >= party->turn.until &&
            sched_gang_wants(gang)) {
            /* something is stuck where it waits, or goes first for ever: for a while it gives way
             * to all others where it has a place, twice as long as it kept them waiting */
            sched_lease_give_way(gang, true);
            gang->retry_at = now + 2 * patience_of(gang);
        }
        if (party->turn.held)
            end_party(party, now);
        else
            sched_queue_drop(party);
    }
    gang->runs = false;
    gang->complete = 0;
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        sched_books_party(party, now);
        sched_agenda_settle(party);
    }
}

void sched_lease_requeue_gang(struct sched_gang *gang, uint64_t now)
{
    if (gang->gives_way)
        retry_gang(gang);
    lockd_each (struct sched_party, party, &gang->parties, of_gang) {
        sched_wanting_note(party);
        party->device->turns.generation++; /* a holder may have to give way now */
        sched_queue_renew(party, now);
        sched_agenda_settle(party);
    }
}
