/* SPDX-License-Identifier: Apache-2.0
 *
 * stop.c: holders that stop for their own reasons, whatever the head of the queue is: together
 * they have outgrown the device, or they have nothing to do, or they make no progress. Also
 * the fate of members that were asked to stop and have not yet. No state of its own. A look at
 * all holders is made only when its time has come (device->grace_at, stop_at) or when needs
 * exceed the capacity. Owns struct sched_member_eviction.
 */
#include "lockd/sched/room.h"

/* Programs of the gang that run may be in a collective, which ends once the programs that lack
 * memory, or a place, have come to run. */
static bool is_blocked(const struct sched_gang *gang)
{
    bool runs = false, lacks = !gang->runs;

    if (gang->client_count < 2 || gang->party_count < 2)
        return false;
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        runs = runs || party->books.running_members != 0;
        lacks = lacks || sched_party_has(party, SCHED_HUNGRY);
    }
    return runs && lacks;
}

/* How little is lost when it stops; -1: nothing is won. The memory of a silent program does not
 * come at once. */
static int overflow_rank(const struct sched_party *party)
{
    const bool more = sched_party_has(party, SCHED_GROWN),
               silent = sched_party_has(party, SCHED_SILENT);

    if (party->books.need == 0)
        return -1;
    if (!sched_gang_wants(party->gang) && !silent)
        return 6;
    if (party->gang->forming.turn)
        return more ? 0 : 1;
    if (silent || party->gang->closing.by != NULL)
        return 5; /* closing: another gang would have to be asked from the beginning */
    if (more)
        return 4;
    return party->books.running_members == 0 ? 3 : 2;
}

/* Programs grew, or the device shrank, until the holders no longer fit together: stop idle
 * holders, then those that do not answer, then holders that need more than they were given
 * (they cannot run anyway), then the last that came. A gang that is forming is the last to
 * stop, all the more if it needs more: the others of it may wait for that program, and cannot
 * stop before it has come to run. */
void sched_stop_overflow(struct sched_device *device, uint64_t now)
{
    while (device->books.need_held + device->books.lost > device->space.capacity &&
           device->turns.holder_count > 1) {
        struct sched_party *victim = NULL;
        int rank = -1;

        lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
            const uint64_t passed = sched_denial_passed(party).lost;
            const int mine = device->books.need_held + sched_less(device->books.lost, passed) >
                                     device->space.capacity
                                 ? overflow_rank(party)
                                 : -1;

            if (mine >= rank && mine >= 0) {
                rank = mine;
                victim = party;
            }
        }
        if (victim == NULL)
            return;
        sched_together_outgrew(victim->gang, now);
        if (!sched_together_stop(victim->gang, device, now))
            return;
        sched_lease_end(victim->gang, now);
    }
}

/* --- gangs that wait for each other's memory --- */

/* All other gangs that could leave it memory here lack some elsewhere, or are stuck and wait
 * for their places. Memory of a gang of a single program can always be taken. */
static bool is_knotted(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    bool knotted = false;

    if (!sched_party_has(party, SCHED_HUNGRY) || !is_blocked(party->gang))
        return false;
    lockd_each (const struct sched_party, other, &device->parties, of_device) {
        if (other->gang == party->gang || other->gang->client_count < 2 ||
            (other->books.need == 0 && other->books.lost == 0))
            continue;
        if (other->turn.held && !is_blocked(other->gang))
            return false;
        knotted = knotted || other->turn.held || other->books.counted_stuck;
    }
    return knotted;
}

/* The party can neither stop nor get memory: the rest of its memory is to lie beyond the card.
 * Beside others that hold it has been asked to stop first. */
static void send_beyond(struct sched_party *party, uint64_t now)
{
    const bool asked =
        party->gang->closing.by != NULL || party->device->turns.holder_count == 1;

    if (party->turn.knotted == 0)
        party->turn.knotted = now;
    if (now < party->turn.knotted + MOVED_BY || !asked) {
        sched_sooner(&party->device->stop_at,
                     sched_max(party->turn.knotted + MOVED_BY, now + REPEAT));
        return;
    }
    lockd_each (struct sched_member, member, &party->members, of_party) {
        if (lockd_list_empty(&member->books.hungry) || member->beyond)
            continue;
        member->beyond = true;
        sched_books_member(member, now);
        sched_agenda_touch(member);
    }
}

void sched_stop_knots(struct sched_device *device, uint64_t now)
{
    const bool full = device->books.need_held + device->books.lost > device->space.capacity;

    if (!full && device->turns.knots == 0)
        return;
    device->turns.knots = 0;
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        const bool knotted = full && is_knotted(party);

        if (knotted)
            send_beyond(party, now);
        else
            party->turn.knotted = 0;
        device->turns.knots += knotted || sched_party_has(party, SCHED_BEYOND);
        /* memory beyond the card comes back between two turns: this turn ends once there is room */
        if (!knotted && sched_party_has(party, SCHED_BEYOND) &&
            device->books.need_held + device->books.lost <= device->space.capacity &&
            sched_together_stop(party->gang, device, now))
            sched_lease_end(party->gang, now);
    }
}

/* Until when a holder may get nowhere. Not long when the driver itself has no memory for it and
 * the books agree: then something that cannot be moved is in the way. A holder that is not given all
 * it needs may wait for others that come before it; for no other reason is it waited for. */
static uint64_t patience_ends(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    uint64_t progress = party->turn.progress;

    if (sched_party_has(party, SCHED_HUNGRY))
        progress = sched_max(progress, device->books.progress);
    if (sched_party_has(party, GS_STATE_SHORT) && party->books.demand > device->space.capacity)
        return progress + REPEAT;
    return progress + GRACE;
}

/* Are others of the gang to wait for a program that does not come to run? For as long as the
 * gang has a forming turn that does not last too long. */
static bool is_patient(const struct sched_gang *gang, uint64_t now)
{
    return gang->client_count > 1 && gang->forming.turn && !gang->forming.over &&
           now - gang->forming.begun < 6 * GRACE;
}

/* The gang has its places and does not get ahead: it is passed over; where some of its programs
 * run, their time counts without the others. */
static void stop_waiting(struct sched_party *party, uint64_t now)
{
    struct sched_device *device = party->device;
    struct sched_gang *gang = party->gang;
    const bool none = party->books.running_members == 0, begins = gang->closing.by == NULL;
    uint64_t end = patience_ends(party);

    if (!none) {
        lockd_each (const struct sched_party, each, &gang->parties, of_gang)
            end = sched_max(end, patience_ends(each));
    }
    if (now < end || (none && is_patient(gang, now))) {
        sched_sooner(&device->grace_at, sched_max(end, now + sched_device_look(device)));
    } else if (!none) {
        sched_lease_set_complete(gang, now);
    } else if (gang->party_count < 2 || sched_together_stop(gang, device, now)) {
        sched_vain_note(party, now);
        sched_lease_end(gang, now);
    } else { /* others of its gang run, and may wait for it in a kernel: all of it stops first */
        gang->closing.passed |= begins;
    }
}

/* While others wait, an idle holder gives back at once, and a holder that does not get ahead is
 * passed over. */
void sched_stop_idle(struct sched_device *device, uint64_t now)
{
    const bool closing_alone =
        now < device->grace_at && lockd_list_empty(&device->sched->forming.gangs);

    if (!device->turns.waiters) {
        device->grace_at = LOCKD_NEVER;
        return;
    }
    if (now < device->grace_at && device->turns.closing == 0)
        return; /* a gang that is being stopped here is looked at with each plan */
    if (!closing_alone)
        device->grace_at = LOCKD_NEVER;
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        const struct sched_gang *gang = party->gang;

        if (closing_alone && (gang->closing.by != device || !gang->closing.passed))
            continue;
        if (!sched_gang_wants(gang))
            sched_lease_end(party->gang, now);
        else if (gang->runs && ((party->books.running_members == 0 &&
                                 sched_party_has(party, GS_STATE_WANT)) ||
                                (party->books.running_members != 0 && gang->complete == 0)))
            stop_waiting(party, now);
    }
}

/* When time alone makes something of it: silent, stuck, deaf or clinging. */
static uint64_t next_look(const struct sched_member *member, uint64_t now)
{
    const uint64_t since[] = {member->stopped, member->books.owes, member->books.offered};
    uint64_t look = LOCKD_NEVER;

    if (member->report.echoed != member->sent.seq && member->sent.unread_since + SILENT > now)
        look = member->sent.unread_since + SILENT;
    for (size_t i = 0; i < sizeof since / sizeof since[0]; i++) {
        if (since[i] != LOCKD_NEVER && since[i] + GRACE > now)
            look = sched_min(look, since[i] + GRACE);
    }
    return look;
}

/* A stuck program is asked again, as long as it still listens. */
void sched_stop_watch(struct sched_device *device, uint64_t now)
{
    if (now < device->stop_at && !lockd_list_empty(&device->books.stopping))
        return;
    device->stop_at = LOCKD_NEVER;
    lockd_each (struct sched_member, member, &device->books.stopping, books.stopping) {
        sched_books_member(member, now);
        if (member->books.refuses)
            sched_agenda_touch(member); /* what it was offered is taken back */
        sched_sooner(&device->stop_at, next_look(member, now));
        if (!sched_member_stuck(member, now) || member->report.echoed != member->sent.seq)
            continue;
        if (now - member->sent.at >= 2 * SILENT)
            sched_agenda_touch(member);
        sched_sooner(&device->stop_at, sched_max(member->sent.at, now) + 2 * SILENT);
    }
}

/* --- all memory of a client is to leave its devices, because a person said so ---
 *
 * A program that is evicted again and again must get some work done: when it comes back it first
 * runs for as long as its memory took to come back. */

static void set_wanted(struct sched_member *member, bool wanted)
{
    member->eviction.wanted = wanted;
    member->party->gang->evicting += wanted ? 1 : UINT32_MAX;
    sched_agenda_settle_gang(member->party->gang);
    sched_agenda_touch(member);
}

static void evict_end(struct sched_member *member, bool out)
{
    member->party->gang->out = out;
    set_wanted(member, false);
}

/* When the eviction that was asked for may begin. */
static uint64_t begins_at(const struct sched_member *member)
{
    const struct sched_gang *gang = member->party->gang;
    const uint64_t back = member->eviction.back;

    if (back == 0 || gang->paused != 0 || !gang->runs || gang->wanting == 0)
        return 0;
    return gang->complete == 0
               ? member->eviction.until
               : sched_min(member->eviction.until, gang->complete + (gang->complete - back));
}

/* The eviction is over when nothing is left, or when the rest does not leave. */
void sched_evict_check(struct sched_member *member, uint64_t now)
{
    bool stops;

    if (member->eviction.asked && now >= begins_at(member)) {
        member->eviction.asked = false;
        member->eviction.left = member->report.resident;
        member->eviction.until = now + GRACE;
        set_wanted(member, true);
    }
    if (!member->eviction.wanted) {
        if (member->eviction.asked)
            sched_sooner(&member->device->evict_at, begins_at(member));
        return;
    }
    stops = sched_member_busy(member) || member->report.echoed != member->sent.seq;
    if (stops || member->report.resident < member->eviction.left) {
        member->eviction.left = member->report.resident;
        member->eviction.until = now + GRACE;
    }
    if (member->report.resident == 0 ? !stops : now >= member->eviction.until)
        evict_end(member, true);
    else
        sched_sooner(&member->device->evict_at, member->eviction.until);
}

void sched_evict_watch(struct sched_device *device, uint64_t now)
{
    if (now < device->evict_at)
        return;
    device->evict_at = LOCKD_NEVER;
    lockd_each (struct sched_member, member, &device->members, of_device)
        sched_evict_check(member, now);
}

void sched_evict_begin(struct sched_client *client, uint64_t now)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        if (member->eviction.wanted || member->report.demand == 0)
            continue;
        if (!member->eviction.asked)
            member->eviction.until = now + GRACE;
        member->eviction.asked = true;
        sched_evict_check(member, now);
    }
}

void sched_evict_cancel(struct sched_client *client)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        member->eviction.asked = false;
        if (member->eviction.wanted)
            evict_end(member, false);
    }
}
