/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: the structures behind scheduler.h. The files of the room, bottom first: each calls those above it in this
 * list only.
 *
 *   ordered_set.c a set in order, with the lowest value of each part of it
 *   agenda.c      what is to be looked at before the event ends
 *   device.c      devices come and go
 *   quantum.c     cost of a switch, length of a turn
 *   policy_fair.c the fair policy
 *   policy.c      the other policies, and the table of all
 *   books.c       sums over members, kept up to date with every change
 *   measure.c     size of a device, and what on it nobody can move
 *   capacity.c    what is left of it for programs
 *   queue.c       members that wait for a device, and the next of them
 *   lease.c       parties of one gang: their turns begin and end together
 *   gang.c        clients that run together or not at all
 *   group.c       ... those of one name, as long as the whole fits on its devices
 *   stop.c        holders that stop for reasons of their own, or were asked to and have not
 *   turns.c       who runs on a device
 *   budget.c      how many bytes of it each member may hold
 *   evict.c       all memory of a client is to go out
 *   send.c        targets
 *   host.c        host memory
 *   plan.c        the order in which all of it is decided anew after an event
 *   settings.c, scheduler.c, info.c: events, and the state as people see it (scheduler.h)
 *   check.c       all sums from scratch, for tests
 *
 * A *member* is a client on a device: it has memory and gets targets. A *party* is a gang on a
 * device: it takes turns. A *gang* is one client, or all clients of a group that can be on its
 * devices together.
 * Ordinary programs are gangs of one party of one member.
 *
 * An event changes few members; those are *touched*, and only their device is planned, from its
 * sums and ordered sets. Nothing here looks at all members but a change of a device's mode or
 * capacity.
 */
#ifndef GS_LOCKD_SCHED_STATE_H
#define GS_LOCKD_SCHED_STATE_H

#include "lockd/base/list.h"
#include "lockd/sched/scheduler.h"
#include "lockd/sched/constants.h"
#include "lockd/sched/ordered_set.h"

/* A budget that the client may still be acting on. */
struct sched_outstanding {
    uint32_t seq;
    uint64_t budget;
};

/* What a member adds to its device's sums; kept, so that it can be taken out again. */
struct sched_share {
    uint64_t demand, resident, pinned;
    uint64_t hold;  /* the most it may have on the device */
    uint64_t kept;  /* what it is meant to keep: its need while it may run, else its budget */
    uint64_t given; /* beyond its need, while it may run */
    uint64_t held;  /* 1: its gang has a place there, and so it a share of the spare bytes */
    /* it moves, or has not read a new budget: that may really be anything from 0 to the most */
    uint64_t unsure, unsure_most;
};

/* Somebody said that external is something else; nobody else has yet. */
struct sched_doubt {
    struct sched_member *by; /* NULL: there is none */
    uint64_t value, ask_at;
    uint64_t ask_next; /* not before */
    bool asked, alone; /* alone: there was nobody else to ask */
};

/* What those had whose connections have ended: for a while it may be on the device still, since
 * the program lives and comes back, or the driver is clearing up. After two windows it counts
 * as anybody's. */
struct sched_departed {
    uint64_t recent, older; /* bytes, of this window and of the one before */
    uint64_t since;         /* when this window began */
};

/* What a member reported last: scheduler.c. */
struct sched_member_report {
    uint32_t flags;  /* GS_STATE_* */
    uint32_t echoed; /* newest seq taken over */
    uint64_t demand, resident, pinned;
    uint64_t total; /* of the device, or the program's own limit */
    bool measures;  /* ... no limit: it has said what the driver calls free */
    uint64_t moved_out, moved_in, calls, switch_ns;
};

/* The newest target, and those before it: send.c. */
struct sched_member_sent {
    struct lockd_list unsent; /* on sched->unsent: the caller has not taken a target */
    uint32_t seq, first_seq;
    uint32_t turn_seq; /* the last target that changed RUN or the budget */
    uint32_t stop_seq; /* ... that first said RUN off */
    uint32_t run_seq;  /* ... on */
    uint32_t flags;
    uint64_t told_capacity; /* the device's; what is sent may be less: its limit */
    uint64_t budget, capacity, idle, host, shortfall, at;
    uint64_t given; /* the largest budget that it was ever sent, or what it came with */
    uint64_t had;   /* the most it might hold when the target was begun that is sent next */
    uint32_t outstanding_count;
    struct sched_outstanding
        outstanding[TARGETS_IN_FLIGHT + 2]; /* budgets falling, seq rising */
};

/* A member's share of its device's sums and sets: books.c. */
struct sched_member_books {
    struct lockd_list
        hungry; /* on device->books.hungry: its turn has come, its budget has not */
    struct lockd_list spared;   /* on ...spared: may run and has more than it needs */
    struct lockd_list unused;   /* on ...unused: does not run, may hold more than it does */
    struct lockd_list stopping; /* on ...stopping: was asked to stop, or may not run and owes
                                   something */
    struct sched_node victim;   /* in *victim_of: does not run and has a budget */
    struct sched_order *victim_of;
    struct sched_share share;
    uint64_t owes;    /* since when it has more memory than it may have, or has not read all
                         targets, and nothing came of it; LOCKD_NEVER: it has done everything */
    uint64_t offered; /* it cannot stop for want of memory: since when there is some for it that
                         it has not taken; LOCKD_NEVER */
    bool refuses;     /* ... for so long that it cannot be true */
};

/* Where a member's time went, up to counted_at: books.c. */
struct sched_member_time {
    uint64_t counted_at, gpu_ns, wait_ns, wait_longest_ns, waits_since;
};

/* The driver had no memory for it: capacity.c. */
struct sched_member_shortage {
    uint64_t at;                /* when its last GS_STATE_SHORT was counted */
    uint64_t unused, forget_at; /* bytes for which others made room in vain */
    uint64_t had;               /* the most that it had in this turn */
};

/* All its memory is to go out: evict.c. */
struct sched_member_eviction {
    bool wanted;
    uint64_t left, until; /* bytes; nothing has left since: that is all then */
};

/* What is to be done with it before the event ends: agenda.c. */
struct sched_member_agenda {
    struct lockd_list touched; /* on device->agenda.touched: its target may have to change */
    bool asked;                /* it is to say what is free; any target is a question */
};

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
    struct sched_member_agenda agenda;
    struct sched_member_report report;
    struct sched_member_sent sent;
    struct sched_member_books books;
    struct sched_member_time time;
    struct sched_member_shortage shortage;
    struct sched_member_eviction eviction;
};

/* A party's place in a queue: queue.c. */
struct sched_party_wait {
    struct sched_node queued; /* in device->waiting.queue or .hopeless while it waits */
    struct sched_order *queued_of;
    uint64_t arrival; /* rises with every place in a queue */
    bool first;       /* in the queue before all others: sched_party_blocked() */
    bool elsewhere;   /* waits for another device before it comes to this one */
    bool keeps_place; /* its turn was cut: it comes back to the place that it had */
    bool yields;      /* its turn was ended for the one that had this place, and still waits */
    uint64_t behind_key, behind_number;
};

/* A party's turn: lease.c. */
struct sched_party_turn {
    struct lockd_list holder; /* on device->turns.holders while held, in order of admission */
    bool held;         /* it has its place on the device; it runs when its whole gang has */
    bool begun;        /* ... and has, in this turn: its time counts */
    bool backfilled;   /* admitted past a waiting head of the queue: gives way to it at once */
    bool interrupted;  /* its gang's last turn was ended before its time for another one's */
    bool interrupts;   /* its turn ended another one before its time */
    bool measured;     /* the switch to it is to be measured: it has not come to run yet */
    uint32_t skipped;  /* so many turns in a row ended without it coming to run */
    uint64_t cleared;  /* when the switch to it began: others were stopped, or its turn */
    uint64_t progress; /* when its turn last got ahead: it began, or memory came */
    uint64_t started;  /* when it first ran in this turn; 0: not yet */
    uint64_t length;   /* ns it may run when others wait */
    uint64_t until;    /* its turn is over then, if anybody waits */
    uint64_t count;    /* of its turns */
};

/* When a party ran: books.c. */
struct sched_party_time {
    uint64_t counted_at, ran; /* ns it has run in this turn, up to counted_at */
    uint64_t last_ran;        /* when it ran last */
    uint64_t level_then;      /* ... and the device's level at that time */
};

/* For how long a party has something to do at a time: scheduler.c, from its reports. */
struct sched_party_bursts {
    bool rested;       /* it has had nothing to do since it ran, which is not counted yet */
    bool came_up;      /* its first burst is over, which is like none after it */
    uint64_t quiet_at; /* it stopped then and said that it had nothing to do; LOCKD_NEVER */
    uint64_t now;      /* ns it ran since it last had nothing to do */
    uint64_t usual;    /* ... how long that usually is; LOCKD_NEVER: not known */
    uint64_t off;      /* ... and how far from that; of the first one, nothing else being known,
                          three tenths */
};

/* policy_fair.c */
struct sched_party_fair {
    uint64_t virtual_ns;
    uint64_t round; /* of the turn that it waits for or has */
};

/* What a party adds to the sums of its device: books.c. */
struct sched_party_books {
    uint64_t demand, need;
    uint64_t need_held, need_busy;
    uint64_t lost; /* what stuck members, or those that do not leave, hold; part of need_busy */
    uint32_t busy_members, running_members, stuck_members;
    uint32_t blocked_members; /* stuck, and they lack memory */
    uint32_t deaf_members;    /* stuck, and they have not even read that they are to stop */
    bool counted_stopping, counted_stuck;
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
    struct sched_party_books books;
};

/* Programs that run at the same time or not at all. */
struct sched_gang {
    struct lockd_list parties;
    struct sched_group *group; /* whose clients these are, all of them; NULL: one client */
    uint32_t party_count, held_count, client_count;
    uint32_t wanting;  /* members with something to run */
    uint32_t weight;   /* the highest of its members' */
    uint32_t paused;   /* clients */
    uint32_t deaf;     /* members that do not answer: nothing can come of a turn */
    uint32_t evicting; /* members whose memory is to go out */
    bool runs;         /* all parties are held */
    bool gives_way;    /* had its place somewhere for too long and could not use it */
    uint64_t retry_at; /* ... until then */
    uint64_t complete; /* all that had something to run did: the turn's time counts from here */
    bool out;          /* was evicted; comes back when it has something to run */
};

/* Clients of one user that name it. */
struct sched_group {
    struct sched *sched;
    struct lockd_list link, clients;
    struct lockd_list marked; /* on sched->groups_marked: its size is to be looked at */
    struct sched_gang *gang;  /* of all of them; NULL: they are apart, or on no device yet */
    bool apart;               /* too large for one of its devices: each takes turns by itself */
    bool unsaid;              /* ... which the caller has not been told */
    uint64_t fits_since;      /* it is apart and would fit; LOCKD_NEVER */
    uint32_t user;
    char name[32];
    char too_small[64]; /* the device */
};

/* Who a device is: device.c. */
struct sched_device_identity {
    uint8_t uuid[16];
    char name[64];
    uint32_t user; /* who named it first */
};

/* What is to be done on a device before the event ends: agenda.c; worked off by plan.c. */
struct sched_device_agenda {
    struct lockd_list pending; /* on sched->pending */
    struct lockd_list touched; /* members */
    struct lockd_list settle;  /* parties */
    bool recount;              /* capacity or mode changed: everybody's share did */
};

/* How large it is, and what on it nobody can move: measure.c. */
struct sched_device_measure {
    uint64_t total, external;
    bool measured, restarted;
    uint64_t settle_until; /* clients of an earlier daemon are still coming back */
    struct sched_doubt doubt;
    struct sched_departed departed;
};

/* What is left of it for programs: capacity.c. */
struct sched_device_space {
    uint64_t capacity;
    uint64_t fell_at; /* when the capacity last fell; 0: long ago */
    uint64_t short_bytes, short_until;
};

/* Sums and sets over members and parties: books.c. */
struct sched_device_books {
    struct sched_share sum;
    uint64_t need_held, need_busy, lost, gpu_ns_gone;
    uint64_t weights; /* of parties: gang.c */
    uint32_t stopping_parties, stuck_parties;
    struct lockd_list hungry, spared, unused, stopping;
    struct sched_order victims_idle, victims_waiting;
    uint64_t progress; /* when the first of the hungry ones last got ahead */
};

/* Parties that wait for it: queue.c. */
struct sched_device_waiting {
    struct sched_order queue, hopeless;
};

/* Parties that have it: lease.c, turns.c. */
struct sched_device_turns {
    struct lockd_list holders;
    uint32_t holder_count;
    uint32_t elsewhere; /* parties that wait for another device first */
    bool leases, waiters;
    uint64_t generation; /* rises when holders or their needs change */
    uint64_t switches;
};

/* The last look at who may be stopped for whom came to nothing, and would again: turns.c. */
struct sched_device_revoke {
    const struct sched_party *head;
    uint64_t generation, need, at;
};

/* Others were stopped for this one, first at that time: turns.c. */
struct sched_device_cleared {
    const struct sched_party *party;
    uint64_t at;
};

/* What all on it were told last: send.c. */
struct sched_device_told {
    uint64_t at;
    uint64_t idle, capacity, shortfall;
    bool sole, waiters;
    uint64_t quiet_at; /* when holders are to hear that nobody waits */
    uint64_t exact_at; /* when changes of the figures are told; LOCKD_NEVER: there are none */
};

/* policy_fair.c */
struct sched_device_fair {
    uint64_t level, round; /* the level begins at LEVEL_START */
};

/* Sums of one group while group.c adds up; else 0. */
struct sched_device_group {
    uint64_t demand, members;
};

struct sched_device {
    struct sched *sched;
    struct lockd_list link; /* on sched->devices */
    struct lockd_list members, parties;
    uint32_t member_count, party_count;
    uint64_t clock;     /* counts whatever needs an order */
    uint64_t switch_ns; /* measured: quantum.c; 0: not yet */
    /* when to look again at the latest: at all of it; at holders and at those that were asked to stop:
     * stop.c; at those whose memory is to go out: evict.c */
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
    struct sched_device_group group;
};

/* What a client has of the host's memory: host.c. */
struct sched_client_host {
    uint64_t used, wanted;
    uint64_t off;          /* bytes of its memory that are on no device now */
    uint64_t goal;         /* the most that is of use to it */
    uint64_t budget, told; /* decided; the highest that it may still act on */
    uint64_t given;        /* the highest ever */
    struct {               /* what it adds to the sums */
        uint64_t used, hold, off, goal;
    } share;
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
    uint64_t limit;      /* on one device, bytes; UINT64_MAX: none */
    uint64_t quota_next; /* the quota of the next member */
    char group[32];
    bool paused;
    struct sched_client_host host;
};

/* The host's memory: host.c. */
struct sched_host {
    uint64_t available, total;
    uint64_t used, hold, off, goal; /* sums over clients */
    uint64_t at, deadline;
    bool changed;
};

struct sched {
    struct sched_settings settings;
    uint64_t created;
    struct lockd_list clients, devices, groups, groups_marked, unsent, pending;
    uint64_t groups_at; /* when a group may come together again */
    bool groups_unsaid;
    uint32_t giving_way; /* gangs */
    struct sched_host host;
};

/* The most it may hold on the device now or before it has read everything sent. */
static inline uint64_t sched_member_hold(const struct sched_member *member)
{
    return sched_max(sched_max(member->report.resident, member->budget),
                     member->sent.outstanding[0].budget);
}

/* What a member takes of the device while it runs; one that needs more than there is takes all
 * of it. */
static inline uint64_t sched_need(const struct sched_member *member)
{
    const bool stays = member->books.refuses && !member->party->turn.held;

    return sched_min(stays ? sched_member_hold(member) : member->report.demand,
                     member->device->space.capacity);
}

/* Does its newest decision say RUN? */
static inline bool sched_member_run(const struct sched_member *member)
{
    return member->party->turn.held && member->party->gang->runs;
}

static inline bool sched_member_wants(const struct sched_member *member)
{
    return (member->report.flags & GS_STATE_WANT) != 0 && member->party->gang->paused == 0;
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

/* It cannot stop before it got memory, and takes what it gets: it goes before all others. */
static inline bool sched_party_blocked(const struct sched_party *party)
{
    return party->books.blocked_members != 0;
}

/* Its gang can never have all its places, or not for a while: it needs more than there is on
 * one of its devices, or gives way. */
static inline bool sched_party_hopeless(const struct sched_party *party)
{
    const struct lockd_list *parties = &party->gang->parties;

    if (party->gang->gives_way)
        return true;
    for (const struct lockd_list *at = parties->next; at != parties; at = at->next) {
        const struct sched_party *each = lockd_entry(at, struct sched_party, of_gang);

        if (each->books.demand > each->device->measure.total)
            return true;
    }
    return false;
}

static inline bool sched_gang_wants(const struct sched_gang *gang)
{
    return gang->wanting != 0 && gang->paused == 0 && gang->evicting == 0 && gang->deaf == 0;
}

#define sched_member_of(at, link) lockd_entry(at, struct sched_member, link)
#define sched_party_of(at, link)  lockd_entry(at, struct sched_party, link)

/* What it says is pinned, as far as it ever was allowed so much. */
static inline uint64_t sched_member_pinned(const struct sched_member *member)
{
    return sched_min(member->report.pinned, member->sent.given);
}

/* The most that it may have there, whatever the device has. */
static inline uint64_t sched_member_limit(const struct sched_member *member)
{
    return sched_min(sched_min(member->client->limit, member->quota), member->report.total);
}

#endif
