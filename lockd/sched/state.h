/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: the structures behind scheduler.h; parts.h has the parts that they are made of. The
 * files of the room, bottom first; each calls only those before it in this list: ordered_set,
 * device, quantum, bursts, shares, policy_fair, policy, books, denial, measure, capacity, queue, together,
 * lease, gang, stop, turns, budget, plan. Above them settings, scheduler and info, which define
 * what scheduler.h declares.
 *
 * A *member* is a client on a device: it has memory and gets targets. A *party* is a gang on a
 * device: it takes turns. A *gang* is one client, or all clients of a group that fits on its
 * devices as a whole. An ordinary program is a gang of one party of one member.
 *
 * An event changes few members; those are *touched*, and only their device is planned, from
 * its sums and ordered sets. Nothing here looks at all members but a change of a device's mode
 * or capacity.
 */
#pragma once

#include "lockd/sched/parts.h"
#include "lockd/sched/scheduler.h"
#include "lockd/protocol/figures.h"

/* A client on a device. */
struct sched_member {
    struct sched_client *client;
    struct sched_device *device;
    struct sched_party *party;
    struct lockd_list of_client, of_device, of_party;
    uint64_t quota;      /* a limit on this device alone; UINT64_MAX: none */
    uint64_t budget;     /* decided: budget.c */
    uint64_t trimmed_at; /* when spare bytes were last taken from it; 0: never */
    uint64_t last_run;   /* device->clock when it last ran: victims go in this order */
    uint64_t stopped;    /* when it was asked to stop: lease.c */
    bool beyond;         /* what it lacks is to lie beyond the card, in this turn: stop.c */
    struct sched_member_agenda agenda;
    struct sched_member_report report;
    struct sched_member_evidence evidence;
    struct sched_member_sent sent;
    struct sched_member_books books;
    struct sched_member_time time;
    struct sched_member_shortage shortage;
    struct sched_member_eviction eviction;
};

/* A gang on a device: takes turns. */
struct sched_party {
    struct sched_gang *gang;
    struct sched_device *device;
    struct lockd_list of_gang; /* in order of UUID */
    struct lockd_list of_device;
    struct lockd_list members;
    uint32_t member_count;
    uint32_t weight;          /* its gang's */
    struct lockd_list settle; /* on device->agenda.settle: does it wait, or hold? */
    struct sched_party_wait wait;
    struct sched_party_turn turn;
    struct sched_party_time time;
    struct sched_party_bursts bursts;
    struct sched_party_fair fair;
    struct sched_party_wanting wanting;
    struct sched_party_share share;
    struct sched_party_books books;
};

/* Programs that run at the same time or not at all. */
struct sched_gang {
    struct sched *sched;
    struct lockd_list parties;
    struct sched_group *group; /* whose clients these are, all of them; NULL: one client */
    uint32_t party_count, held_count, client_count;
    uint32_t wanting;  /* members with something to run */
    uint32_t weight;   /* the highest of its members' */
    uint32_t paused;   /* clients */
    uint32_t deaf;     /* members that do not answer: nothing can come of a turn */
    uint32_t evicting; /* members whose memory is to go out */
    uint32_t blocked;  /* members that cannot stop before they get memory */
    bool split;        /* some parties compute, and others have something to do */
    bool runs;         /* all parties are held */
    bool gives_way;    /* had its place somewhere for too long and could not use it */
    uint64_t retry_at; /* ... until then */
    uint64_t complete; /* all that had something to run did: the turn's time counts from here */
    bool out;          /* was evicted; comes back when it has something to run */
    struct sched_gang_closing closing;
    struct sched_gang_forming *forming; /* NULL: it has formed, or is no job of ranks */
};

/* Clients of one user that name it, or that were found to be one job. */
struct sched_group {
    struct sched *sched;
    struct lockd_list link, clients;
    struct lockd_list marked; /* on sched->groups_marked: its size is to be looked at */
    struct sched_gang *gang;  /* of all of them; NULL: they are apart, or on no device yet */
    bool apart;               /* too large for one of its devices: each takes turns by itself */
    bool unsaid;              /* ... which the caller has not been told */
    uint64_t fits_since;      /* it is apart and would fit; LOCKD_NEVER */
    uint32_t user;
    uint64_t kin;    /* they do not name it: lockd/programs found them; 0: they do */
    uint64_t number; /* for people */
    char name[32];
    char too_small[64]; /* the device */
};

struct sched_device {
    struct sched *sched;
    struct lockd_totals *totals;
    struct lockd_list link; /* on sched->devices */
    struct lockd_list members, parties;
    uint32_t member_count, party_count;
    uint64_t clock; /* a counter, for the order of events */
    /* The latest time to look again: at the whole device; at its holders, and at programs that
     * were asked to stop (stop.c); at programs whose memory is to leave (stop.c). */
    uint64_t deadline, grace_at, stop_at, evict_at;
    struct sched_device_identity identity;
    struct sched_device_agenda agenda;
    struct sched_device_measure measure;
    struct sched_device_space space;
    struct sched_device_books books;
    struct sched_device_waiting waiting;
    struct sched_device_turns turns;
    struct sched_device_revoke revoke;
    struct sched_device_cleared cleared;
    struct sched_device_told told;
    struct sched_device_fair fair;
    struct sched_device_wanting wanting;
    struct sched_device_share share;
};

struct sched_client {
    struct lockd_list link, members;
    struct sched *sched;
    struct sched_gang *gang; /* from its first state on, and its group */
    struct sched_group *in_group;
    struct lockd_list of_group;
    void *owner;
    uint32_t member_count, weight, user;
    int32_t priority;
    enum gs_wire_class class;
    uint64_t limit;      /* on one device, bytes; UINT64_MAX: none */
    uint64_t quota_next; /* the quota of the next member */
    char group[32];
    uint64_t kin;   /* the group that it was found to be in; 0: none */
    uint32_t ranks; /* of its job on this machine; 1: not known how many; 0: it is no rank */
    bool paused;
    bool contradicted, silent;      /* the caller has not been told: measure.c, budget.c */
    uint32_t last;                  /* members that go last: it counts as background: plan.c */
    bool away;                      /* a guard holds it: nothing of it is on any device */
    struct sched_client_left *left; /* NULL: it has left none */
    struct sched_client_host host;
};

struct sched {
    struct sched_settings settings;
    uint64_t created;
    struct lockd_list clients, devices, groups, groups_marked, unsent, pending, claims;
    struct lockd_list totals; /* of devices, also of those that are gone */
    uint64_t groups_at;       /* when a group may come together again */
    uint64_t group_numbers;
    bool remarkable;     /* there is something of which the caller has not been told */
    uint32_t giving_way; /* gangs */
    uint32_t background; /* clients of that class */
    struct sched_host host;
    struct sched_forming forming;
};

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

/* The gang may not begin to run before its forming turn. */
static inline bool sched_gang_waits_to_form(const struct sched_gang *gang)
{
    return gang->forming != NULL && gang->forming->waits;
}

static inline bool sched_gang_has_forming_turn(const struct sched_gang *gang)
{
    return gang->forming != NULL && gang->forming->turn;
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
            const enum gs_wire_class class = member->client->class;

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

static inline struct sched_party *sched_party_queued(const struct sched_node *node)
{
    return node != NULL ? sched_party_of(node, wait.queued) : NULL;
}

/* Each party of a queue, in order; that party may leave it inside the loop. */
#define sched_each_queued(party, order)                                                        \
    for (struct sched_party *party = sched_party_queued(sched_order_first(order)),             \
                            *party##_next;                                                     \
         party != NULL &&                                                                      \
         (party##_next = sched_party_queued(sched_order_next(order, &party->wait.queued)),     \
         true);                                                                                \
         party = party##_next)

/* The bytes that it says are pinned, as far as it ever was allowed so much. */
static inline uint64_t sched_member_pinned(const struct sched_member *member)
{
    return member->client->away ? 0 : sched_min(member->report.pinned, member->sent.given);
}

/* The most that it may have there, whatever the device has. */
static inline uint64_t sched_member_limit(const struct sched_member *member)
{
    return sched_min(sched_min(member->client->limit, member->quota), member->report.total);
}
