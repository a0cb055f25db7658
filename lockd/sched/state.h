/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: questions about the structures (objects.h) that several files ask. The files of the
 * room, bottom first; each calls only those before it in this list: ordered_set, device, quantum,
 * bursts, shares, policy_fair, policy, books, denial, measure, capacity, queue, together, lease,
 * gang, stop, turns, budget, plan. Above them settings, scheduler and info, which define what
 * scheduler.h declares.
 *
 * An event changes few members; those are *touched*, and only their device is planned, from
 * its sums and ordered sets. Nothing here looks at all members but a change of a device's mode
 * or capacity.
 */
#pragma once

#include "lockd/sched/objects.h"

/* Its reports contradict the card, or a program of another user: it goes last, and outside of its
 * turns has no more than can be there. */
static inline bool sched_member_denied(const struct sched_member *member)
{
    return member->evidence.most != UINT64_MAX;
}

/* The most it may hold on the device now or before it has read everything sent. */
static inline uint64_t sched_member_hold(const struct sched_member *member)
{
    if (sched_member_denied(member) && !member->party->turn.held)
        return member->report.resident;
    return sched_max(sched_max(member->report.resident, member->budget),
                     member->sent.outstanding[0].budget);
}

/* The bytes of the device that a member takes while it runs: at most all there is. */
static inline uint64_t sched_need(const struct sched_member *member)
{
    const bool stays =
        (member->books.refuses || sched_member_denied(member)) && !member->party->turn.held;

    return sched_min(stays ? sched_member_hold(member) : member->report.demand,
                     member->device->space.capacity);
}

/* There is less than all together need, or some do not give back what they do not need. */
static inline bool sched_device_crowded(const struct sched_device *device)
{
    return device->books.sum.demand + device->books.sum.beyond > device->space.capacity;
}

/* Does its newest decision say RUN? */
static inline bool sched_member_run(const struct sched_member *member)
{
    return member->party->turn.held && member->party->gang->runs &&
           !member->party->gang->closing.closed;
}

/* A gang that is paused or evicted gets no turn; but a member that cannot stop before it gets memory
 * must first get it. */
static inline bool sched_gang_is_held_off(const struct sched_gang *gang)
{
    return (gang->paused != 0 || gang->evicting != 0) && gang->blocked == 0;
}

static inline bool sched_member_wants(const struct sched_member *member)
{
    const struct sched_gang *gang = member->party->gang;

    return (member->report.flags & GS_STATE_WANT) != 0 &&
           (gang->paused == 0 || gang->blocked != 0);
}

/* May it be running, by what it was told and what it says? */
static inline bool sched_member_busy(const struct sched_member *member)
{
    return member->party->turn.held || (member->sent.flags & GS_TARGET_RUN) != 0 ||
           (member->report.flags & GS_STATE_RUNNING) != 0 ||
           member->report.echoed < member->sent.stop_seq;
}

static inline bool sched_party_busy(const struct sched_party *party)
{
    return party->books.busy_members != 0;
}

/* It was told to stop and runs on, although it can stop. */
static inline bool sched_party_runs_on(const struct sched_party *party)
{
    return party->books.counted_stopping && !party->books.counted_stuck;
}

/* The party cannot stop before it gets memory, and takes what it gets: it goes before all
 * others. */
static inline bool sched_party_blocked(const struct sched_party *party)
{
    return party->books.blocked_members != 0;
}

static inline uint64_t sched_party_stays(const struct sched_party *party)
{
    uint64_t stays = 0;

    lockd_each (const struct sched_member, member, &party->members, of_party)
        stays += member->report.stays;
    return stays;
}

/* What a party can get of its device: memory of others that cannot leave is no room. */
static inline uint64_t sched_party_room(const struct sched_party *party)
{
    return sched_less(party->device->space.capacity,
                      party->device->books.stays - sched_party_stays(party));
}

/* It has no room because of them. */
static inline bool sched_party_shut_out(const struct sched_party *party)
{
    return party->device->books.stays != 0 &&
           party->device->books.stays != sched_party_stays(party) &&
           party->books.demand > sched_party_room(party);
}

/* What others get when its turn ends. */
static inline uint64_t sched_party_leaves(const struct sched_party *party)
{
    return sched_less(party->books.need, sched_party_stays(party));
}

/* Its gang can never have all its places, or not for a while: it needs more than there is on
 * one of its devices, or than others let go, or gives way. */
static inline bool sched_party_hopeless(const struct sched_party *party)
{
    const struct lockd_list *parties = &party->gang->parties;

    if (party->gang->gives_way)
        return true;
    lockd_each (const struct sched_party, each, parties, of_gang) {
        if (each->books.demand > each->device->measure.total || sched_party_shut_out(each))
            return true;
    }
    return false;
}

static inline bool sched_gang_wants(const struct sched_gang *gang)
{
    return gang->wanting != 0 && !sched_gang_is_held_off(gang) && gang->deaf == 0;
}

/* Some of the gang compute on one device, and others wait for a place, or for memory, on
 * another device: meanwhile a kernel of the first may not end. */
static inline bool sched_gang_is_split(const struct sched_gang *gang)
{
    return gang->client_count > 1 && gang->split;
}

#define sched_each_of_gang(member, gang)                                                       \
    lockd_each (const struct sched_party, member##_party, &(gang)->parties, of_gang)           \
        lockd_each (struct sched_member, member, &member##_party->members, of_party)

/* Background if any program of the gang goes last, or all have that class; else the class of any. */
static inline enum gs_wire_class sched_gang_class(const struct sched_gang *gang)
{
    bool all = true, batch = false, interactive = false;

    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        lockd_each (const struct sched_member, member, &party->members, of_party) {
            const enum gs_wire_class class = member->client->set.class;

            if (member->client->last != 0)
                return GS_CLASS_BACKGROUND;
            interactive = interactive || class == GS_CLASS_INTERACTIVE;
            all = all && class == GS_CLASS_BACKGROUND;
            batch = batch || class == GS_CLASS_BATCH;
        }
    }
    if (interactive)
        return GS_CLASS_INTERACTIVE;
    if (all && !lockd_list_empty(&gang->parties))
        return GS_CLASS_BACKGROUND;
    return batch ? GS_CLASS_BATCH : GS_CLASS_AUTO;
}

/* Does it run only while no other party wants the device? */
static inline bool sched_party_is_background(const struct sched_party *party)
{
    return sched_gang_class(party->gang) == GS_CLASS_BACKGROUND;
}

#define sched_member_of(at, link) lockd_entry(at, struct sched_member, link)
#define sched_party_of(at, link)  lockd_entry(at, struct sched_party, link)

/* Its first member; all of a party are of one user. */
static inline struct sched_member *sched_party_first(const struct sched_party *party)
{
    return sched_member_of(party->members.next, of_party);
}

/* Each party of a queue, in order; that party may leave it inside the loop. */
#define sched_each_queued(party, order)                                                        \
    lockd_each (struct sched_party, party, &(order)->nodes, wait.queued.link)

/* The bytes that it says are pinned, as far as it ever was allowed so much. */
static inline uint64_t sched_member_pinned(const struct sched_member *member)
{
    return member->client->away ? 0 : sched_min(member->report.pinned, member->sent.given);
}

/* The most that it may have there, whatever the device has. */
static inline uint64_t sched_member_limit(const struct sched_member *member)
{
    return sched_min(sched_min(member->client->set.limit, member->quota), member->report.total);
}
