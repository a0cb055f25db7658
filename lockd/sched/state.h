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

/* A client on a device. */
struct sched_member {
    struct sched_client *client;
    struct sched_device *device;
    struct sched_party *party;
    struct lockd_list of_client, of_device, of_party;
    struct lockd_list touched; /* on device->touched: its target may have to change */
    struct lockd_list hungry;  /* on device->hungry: its turn has come, its budget has not */
    struct lockd_list spared;  /* on device->spared: may run and has more than it needs */
    struct lockd_list unused;  /* on device->unused: does not run, may hold more than it does */
    struct lockd_list stopping; /* on device->stopping: was asked to stop, or may not run and
                                   owes something */
    struct lockd_list unsent;   /* on lock->unsent: a target has not been taken by the caller */
    struct sched_node victim;   /* in *victim_of: does not run and has a budget */
    struct sched_order *victim_of;

    /* as last reported */
    uint32_t flags;  /* GS_STATE_* */
    uint32_t echoed; /* newest seq taken over */
    uint64_t demand, resident, pinned;
    uint64_t given; /* the largest budget that it was ever sent, or what it came with */
    uint64_t quota; /* a limit on this device alone; UINT64_MAX: none */
    uint64_t total; /* of the device, or the program's own limit */
    bool measures;  /* ... no limit: it has said what the driver calls free */
    uint64_t moved_out, moved_in, calls, switch_ns;

    /* decided */
    uint64_t budget;
    uint64_t last_run; /* device->clock when it last ran: victims go in this order */
    uint64_t stopped;  /* when it was asked to stop */
    uint64_t owes;     /* since when it has more memory than it may have, or has not read all
                          targets, and nothing came of it; LOCKD_NEVER: it has done everything */
    uint64_t offered; /* it cannot stop for want of memory: since when there is some for it that
                         it has not taken; LOCKD_NEVER */
    bool refuses;     /* ... for so long that it cannot be true */
    uint64_t short_at;                      /* when its last GS_STATE_SHORT was counted */
    uint64_t short_unused, short_forget_at; /* bytes for which others made room in vain */
    uint64_t short_had;                     /* the most that it had in this turn */
    uint64_t trimmed_at;              /* when spare bytes were last taken from it; 0: never */
    bool evict;                       /* all its memory is to go out */
    uint64_t evict_left, evict_until; /* bytes; nothing has left since: that is all then */
    bool asked;                       /* it is to say what is free; any target is a question */

    /* the newest target */
    uint32_t seq, first_seq;
    uint32_t turn_seq; /* the last target that changed RUN or the budget */
    uint32_t stop_seq; /* ... that first said RUN off */
    uint32_t run_seq;  /* ... on */
    uint32_t sent_flags;
    uint64_t told_capacity; /* the device's; what is sent may be less: its limit */
    uint64_t sent_budget, sent_capacity, sent_idle, sent_host, sent_shortfall, sent_at;
    uint64_t had; /* the most it might hold when the target was begun that is sent next */
    uint32_t outstanding_count;
    struct sched_outstanding
        outstanding[TARGETS_IN_FLIGHT + 2]; /* budgets falling, seq rising */

    /* where its time went, up to counted_at */
    uint64_t counted_at, gpu_ns, wait_ns, wait_longest_ns, waits_since;

    struct sched_share share;
};

/* A gang on a device: takes turns. */
struct sched_party {
    struct sched_gang *gang;
    struct sched_device *device;
    struct lockd_list of_gang; /* in order of UUID */
    struct lockd_list of_device;
    struct lockd_list members;
    struct lockd_list
        settle; /* on device->settle: whether it waits or holds is to be decided */
    struct lockd_list holder; /* on device->holders while held, in order of admission */
    struct sched_node queued; /* in device->queue or ->hopeless while it waits */
    struct sched_order *queued_of;

    bool held;        /* it has its place on the device; it runs when its whole gang has */
    bool begun;       /* ... and has, in this turn: its time counts */
    bool backfilled;  /* admitted past a waiting head of the queue: gives way to it at once */
    bool interrupted; /* its gang's last turn was ended before its time for another one's */
    bool first;       /* in the queue before all others: sched_party_blocked() */
    bool elsewhere;   /* waits for another device before it comes to this one */
    bool keeps_place; /* its turn was cut: it comes back to the place that it had */
    bool interrupts;  /* its turn ended another one before its time */
    bool yields;      /* its turn was ended for the one that had this place, and still waits */
    uint64_t behind_key, behind_number;
    uint32_t skipped;     /* so many turns in a row ended without it coming to run */
    uint64_t progress;    /* when its turn last got ahead: it began, or memory came */
    uint64_t started;     /* when it first ran in this turn; 0: not yet */
    uint64_t turn_length; /* ns it may run when others wait */
    uint64_t until;       /* its turn is over then, if anybody waits */
    uint64_t cleared;     /* when the switch to it began: others were stopped, or its turn */
    bool measured;        /* ... and it is to be measured: it has not come to run yet */
    uint64_t turns;

    /* for the policy */
    uint64_t arrival;         /* rises with every place in a queue */
    uint64_t counted_at, ran; /* ns it has run in this turn, up to counted_at */
    uint64_t last_ran;        /* when it ran last */
    uint64_t level_then;      /* ... and the device's level at that time */
    bool rested;          /* it has had nothing to do since then, which is not counted yet */
    bool came_up;         /* its first burst is over, which is like none after it */
    uint64_t quiet_at;    /* it stopped then and said that it had nothing to do; LOCKD_NEVER */
    uint64_t burst;       /* ns it ran since it last had nothing to do */
    uint64_t burst_usual; /* ... how long that usually is; LOCKD_NEVER: not known */
    uint64_t burst_off;   /* ... and how far from that; of the first one, nothing else being
                             known, three tenths */
    uint64_t virtual_ns;  /* policy_fair.c */
    uint64_t round;       /* policy_fair.c: of the turn that it waits for or has */

    /* what it adds to the sums of its device */
    uint32_t weight;
    uint64_t demand, need;
    uint64_t need_held, need_busy;
    uint64_t lost; /* what stuck members, or those that do not leave, hold; part of need_busy */
    uint32_t member_count, busy_members, running_members, stuck_members;
    uint32_t blocked_members; /* stuck, and they lack memory */
    uint32_t deaf_members;    /* stuck, and they have not even read that they are to stop */
    bool counted_stopping, counted_stuck;
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
    struct sched *lock;
    struct lockd_list link, clients;
    struct lockd_list marked; /* on lock->groups_marked: its size is to be looked at */
    struct sched_gang *gang;  /* of all of them; NULL: they are apart, or on no device yet */
    bool apart;               /* too large for one of its devices: each takes turns by itself */
    bool unsaid;              /* ... which the caller has not been told */
    uint64_t fits_since;      /* it is apart and would fit; LOCKD_NEVER */
    uint32_t user;
    char name[32];
    char too_small[64]; /* the device */
};

struct sched_device {
    struct sched *lock;
    struct lockd_list link, pending;
    struct lockd_list members, parties, holders;
    struct lockd_list touched, settle, hungry, spared, unused, stopping;
    struct sched_order queue, hopeless;
    struct sched_order victims_idle, victims_waiting;
    uint8_t uuid[16];
    char name[64];
    uint32_t user; /* who named it first */
    uint64_t total, external, capacity;
    struct sched_doubt doubt;
    struct sched_departed departed;
    uint64_t short_bytes, short_until;
    uint64_t switch_ns;    /* measured; 0: not yet */
    uint64_t settle_until; /* clients of an earlier daemon are still coming back */
    uint64_t clock;        /* counts whatever needs an order */
    uint64_t generation;   /* rises when holders or their needs change */
    uint64_t progress;     /* when the first of the hungry ones last got ahead */
    uint64_t switches;
    uint64_t level, round;                /* policy_fair.c; the level begins at LEVEL_START */
    uint64_t weights;                     /* sum over parties */
    uint64_t group_demand, group_members; /* while group.c adds up; else 0 */

    /* when to look again, at the latest */
    uint64_t deadline, grace_at, stop_at, revoke_at, evict_at;
    /* the last look at who may be stopped for whom came to nothing, and would again */
    const struct sched_party *revoke_head;
    uint64_t revoke_generation, revoke_need;
    /* others were stopped for this one, first at that time */
    const struct sched_party *cleared_for;
    uint64_t cleared_at;

    /* sums over members and parties */
    struct sched_share sum;
    uint64_t need_held, need_busy, lost, gpu_ns_gone;
    uint32_t member_count, party_count, holder_count, stopping_parties, stuck_parties;
    uint32_t elsewhere; /* parties that wait for another device first */
    bool measured, leases, restarted, waiters;
    uint64_t fell_at;           /* when the capacity last fell; 0: long ago */
    uint64_t told_at, quiet_at; /* told to all; when holders are to hear that nobody waits */
    bool recount;               /* capacity or mode changed: everybody's share did */
    uint64_t told_idle, told_capacity, told_shortfall;
    uint64_t exact_at; /* when changes of these are told; LOCKD_NEVER: there are none */
    bool told_sole, told_waiters;
};

struct sched_client {
    struct lockd_list link, members;
    struct sched *lock;
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

    /* host.c */
    uint64_t host_used, host_wanted;
    uint64_t host_off;               /* bytes of its memory that are on no device now */
    uint64_t host_goal;              /* the most that is of use to it */
    uint64_t host_budget, host_told; /* decided; the highest that it may still act on */
    uint64_t host_given;             /* the highest ever */
    struct {                         /* what it adds to the sums of the lock */
        uint64_t used, hold, off, goal;
    } host_share;
};

struct sched {
    struct sched_settings settings;
    uint64_t created;
    uint64_t host_available, host_total;
    uint64_t host_used, host_hold, host_off, host_goal; /* sums over clients */
    uint64_t host_at, host_deadline;
    bool host_changed;
    struct lockd_list clients, devices, groups, groups_marked, unsent, pending;
    uint64_t groups_at; /* when a group may come together again */
    bool groups_unsaid;
    uint32_t giving_way; /* gangs */
};

/* The most it may hold on the device now or before it has read everything sent. */
static inline uint64_t sched_member_hold(const struct sched_member *member)
{
    return sched_max(sched_max(member->resident, member->budget),
                     member->outstanding[0].budget);
}

/* What a member takes of the device while it runs; one that needs more than there is takes all
 * of it. */
static inline uint64_t sched_need(const struct sched_member *member)
{
    const bool stays = member->refuses && !member->party->held;

    return sched_min(stays ? sched_member_hold(member) : member->demand,
                     member->device->capacity);
}

/* Does its newest decision say RUN? */
static inline bool sched_member_run(const struct sched_member *member)
{
    return member->party->held && member->party->gang->runs;
}

static inline bool sched_member_wants(const struct sched_member *member)
{
    return (member->flags & GS_STATE_WANT) != 0 && member->party->gang->paused == 0;
}

/* May it be running, by what it was told and what it says? */
static inline bool sched_member_busy(const struct sched_member *member)
{
    return member->party->held || (member->sent_flags & GS_TARGET_RUN) != 0 ||
           (member->flags & GS_STATE_RUNNING) != 0 || member->echoed < member->stop_seq;
}

static inline bool sched_party_busy(const struct sched_party *party)
{
    return party->busy_members != 0;
}

/* It cannot stop before it got memory, and takes what it gets: it goes before all others. */
static inline bool sched_party_blocked(const struct sched_party *party)
{
    return party->blocked_members != 0;
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

        if (each->demand > each->device->total)
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
    return sched_min(member->pinned, member->given);
}

/* The most that it may have there, whatever the device has. */
static inline uint64_t sched_member_limit(const struct sched_member *member)
{
    return sched_min(sched_min(member->client->limit, member->quota), member->total);
}

#endif
