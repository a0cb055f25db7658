/* SPDX-License-Identifier: Apache-2.0
 *
 * objects.h: the structures of the scheduler. Each part of an object has one owner: the file that
 * its comment names keeps it, and the others read it. Where another file writes a field of it, the
 * field says so or is one of an event: turns that begin and end, a report that arrives.
 *
 * A *member* is a client on a device: it has memory and gets targets. A *party* is a gang on a
 * device: it takes turns. A *gang* is one client, or all clients of a group that fits on its
 * devices as a whole. An ordinary program is a gang of one party of one member.
 */
#pragma once

#include "lockd/base/list.h"
#include "lockd/protocol/figures.h"
#include "lockd/sched/constants.h"
#include "lockd/sched/ordered_set.h"
#include "lockd/sched/scheduler.h"

/* A budget that the client may still be acting on. */
struct sched_outstanding {
    uint32_t seq;
    uint64_t budget;
};

/* A member's part of its device's sums, which have the same fields, all of 64 bits; kept, so that it
 * can be taken out again. */
struct sched_share {
    uint64_t demand, resident, pinned;
    uint64_t hold;   /* the most it may have on the device */
    uint64_t kept;   /* what it is meant to keep: its need while it may run, else its budget */
    uint64_t given;  /* beyond its need, while it may run */
    uint64_t held;   /* 1: its gang has a place there, and so it a share of the spare bytes */
    uint64_t beyond; /* what it was told to put beyond the card, which comes back */
    /* it moves, or has not read a new budget: that may really be anything from 0 to the most */
    uint64_t unsure, unsure_most;
    uint64_t loose; /* anything up to this may be on the device beside all that is counted */
};

/* Time that was had, which fades with a half-life. */
struct sched_faded {
    uint64_t ns, at;
};

/* Time of the device while others waited, in which something ran or a turn was in vain: vain.c. What
 * is counted during a plan and after it is fresh until the next plan. */
struct sched_had {
    uint64_t ns, fresh;
    uint32_t plan;
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
    bool beyond;         /* what it lacks is to lie beyond the card, in this turn: stop.c */

    struct {                       /* work that is due before the event ends: device.c */
        struct lockd_list touched; /* on device->agenda.touched: its target may change */
        bool asked;                /* it is to say what is free; any target is a question */
    } agenda;

    struct {             /* its last report: scheduler.c */
        uint32_t flags;  /* GS_STATE_* */
        uint32_t echoed; /* newest seq taken over */
        uint64_t demand, resident, pinned;
        uint64_t claimed; /* what it says; resident is no more than the card leaves room for */
        uint64_t pinned_graphs, pinned_arrays, shared; /* parts of pinned */
        uint64_t over;                                 /* beyond the card, in none of these */
        uint64_t stays;    /* of resident: the program has no host memory for it */
        uint64_t loose;    /* managed memory that is in none of these */
        uint64_t total;    /* of the device, or the program's own limit */
        bool measures;     /* ... no limit: it has said what the driver calls free */
        uint64_t asked;    /* its last question whether the capacity holds */
        uint64_t asked_at; /* ... is open since then; 0: it can be answered */
        uint64_t moved_out, moved_in, calls, switch_ns;
        struct gs_wire_saved saved;
    } report;

    struct sched_member_evidence { /* the card's word on its reports: denial.c */
        uint64_t shown;            /* bytes of its process on the card; UINT64_MAX: not known */
        uint64_t least;            /* that it has claimed since the card was last looked at */
        uint64_t most;    /* that it is believed to have; UINT64_MAX: whatever it claims */
        uint64_t against; /* since when it contradicts the card; 0: it does not */
        uint32_t denied;  /* looks in a row that left no room for its claim */
        bool denied_now;  /* in the present look */
        bool named;       /* the caller was told, or is to be */
        bool last;        /* its client goes last for what is known of it here: plan.c */
    } evidence;

    struct sched_member_sent {    /* the newest target, and those before it: plan.c */
        struct lockd_list unsent; /* on sched->unsent: the caller has not taken a target */
        uint32_t seq, first_seq;
        uint32_t turn_seq; /* the last target that changed RUN or the budget */
        uint32_t stop_seq; /* ... that first said RUN off */
        uint32_t run_seq;  /* ... on */
        uint32_t back_seq; /* ... that first said BEYOND off */
        uint32_t flags;
        uint16_t outstanding_count;
        bool ended;  /* its silence ended the budgets that it has not read: budget.c */
        bool doubts; /* told_capacity is without external, which only programs of another user
                      * know */
        uint64_t told_capacity; /* the device's; what is sent may be less: its limit */
        uint64_t answered;      /* the newest question of the program that it answers */
        uint64_t budget, capacity, idle, host, shortfall, at;
        uint64_t unread_since; /* for so long it has echoed nothing, if it has not echoed all */
        uint64_t given; /* the largest budget that it was ever sent, or what it came with */
        uint64_t had;   /* the most it might hold when the target was begun that is sent next */
        struct sched_outstanding
            outstanding[TARGETS_IN_FLIGHT + 3]; /* budgets falling, seq rising */
        struct sched_outstanding replaced;      /* the highest that this target took away */
    } sent;

    struct sched_member_books { /* its share of its device's sums and sets: books.c */
        /* on the lists of these names in device->books: */
        struct lockd_list hungry; /* its turn has come, its budget has not */
        struct lockd_list spared; /* may run and has more than it needs */
        struct lockd_list unused; /* does not run, may hold more than it does */
        /* was asked to stop, or may not run and owes something; or has not read its newest target
         * and may hold more than it has */
        struct lockd_list stopping;
        struct sched_node victim; /* in one of device->books: does not run and has a budget */
        struct sched_share share;
        uint64_t leaves;  /* since when it is in `stopping` */
        uint64_t owes;    /* since when it has more memory than it may have, or has not read all
                          * targets, and nothing came of it; LOCKD_NEVER: it has done everything */
        uint64_t offered; /* it cannot stop for want of memory: since when there is some for it
                           * that it has not taken; LOCKD_NEVER */
        bool refuses; /* ... for so long that it is not true; or it runs on, asking for none */
        uint64_t asked; /* its demand when its turn began: to ask for more gets nobody ahead */
        uint64_t came;  /* of that, as memory and as budget, the most in this turn */
    } books;

    struct sched_member_time { /* where its time went, up to counted_at: books.c */
        uint64_t counted_at, gpu_ns, wait_ns, wait_longest_ns, waits_since;
        uint64_t works_ns;   /* of gpu_ns, without the time in which it said that it is idle */
        uint64_t yielded_ns; /* of wait_ns, while programs that go first were served */
        uint64_t held_off_then; /* the device's, at that time */
    } time;

    struct {                        /* the driver had no memory for it: capacity.c */
        uint64_t at;                /* when its last GS_STATE_SHORT was counted */
        uint64_t unused, forget_at; /* bytes for which others made room in vain */
        uint64_t had;               /* the most that it had in this turn */
    } shortage;

    struct {                  /* all its memory is to go out: stop.c */
        bool asked;           /* ... when it has run for long enough, or at `until` */
        bool wanted;          /* ... now */
        uint64_t left, until; /* bytes; nothing has left since: that is all then */
        uint64_t back; /* when the turn began that followed an eviction; 0: another turn */
    } eviction;
};

/* A gang on a device: takes turns. */
struct sched_party {
    struct sched_gang *gang;
    struct sched_device *device;
    struct lockd_list of_gang; /* in order of UUID */
    struct lockd_list of_device;
    struct lockd_list members;
    uint32_t member_count;
    struct lockd_list settle; /* on device->agenda.settle: does it wait, or hold? */

    struct sched_party_wait {     /* its place in a queue: queue.c */
        struct sched_node queued; /* in one of device->waiting while it waits */
        uint64_t arrival;         /* rises with every place in a queue */
        uint64_t number;  /* among equals, as the policy says: kept for as long as `arrival` */
        uint64_t place;   /* in the queue, when it was last looked at: info.c */
        bool first;       /* in the queue before all others: sched_party_blocked() */
        bool elsewhere;   /* waits for another device before it comes to this device */
        bool keeps_place; /* its turn was cut: it comes back to the place that it had */
        bool yields; /* its turn was ended for the party that had this place, and still waits */
        uint64_t behind_key, behind_number, behind_arrival; /* ... when it was stopped for it */
    } wait;

    struct sched_party_turn {     /* lease.c */
        struct lockd_list holder; /* on device->turns.holders, in order of admission */
        bool held;        /* it has its place on the device; it runs when its whole gang has */
        bool begun;       /* ... and has, in this turn: its time counts */
        bool backfilled;  /* admitted past a waiting head of the queue: gives way at once */
        bool interrupted; /* its gang's last turn was ended before its time for another one's */
        bool interrupts;  /* its turn ended another party's turn before its time */
        bool measured;    /* the switch to it is to be measured: it has not come to run yet */
        uint32_t skipped; /* so many turns in a row ended without it coming to run */
        uint64_t vain;    /* of this turn, the time in which nothing ran by its fault: vain.c */
        uint64_t pays_until; /* ... it waits until all had so much: vain.c */
        uint64_t cleared;    /* when the switch to it began: others were stopped, or its turn */
        uint64_t progress;   /* when its turn last got ahead: it began, or memory came */
        uint64_t started;    /* when it first ran in this turn; 0: not yet */
        uint64_t length;     /* ns it may run when others wait */
        uint64_t until;      /* its turn is over then, if anybody waits */
        uint64_t knotted; /* it and others wait for each other's memory since then: stop.c; 0 */
        uint64_t count;   /* of its turns */
    } turn;

    struct {                      /* when it ran: books.c */
        uint64_t counted_at, ran; /* ns it has run in this turn, up to counted_at */
        uint64_t last_ran;        /* when it ran last */
    } time;

    struct sched_party_bursts { /* for how long it has run since it rested: bursts.c */
        uint64_t age;           /* ns that it ran since it last rested */
        uint64_t last;          /* ... when it last did; LOCKD_NEVER: it never has */
        uint64_t began;         /* when the present burst did */
        uint64_t quiet_at; /* it stopped then and said that it had nothing to do; LOCKD_NEVER */
        uint64_t rest_at;  /* it has had nothing to do since; 0: it has */
        uint64_t idle;     /* what it may idle while it goes first; 0: not known */
        uint64_t gap;      /* the longest rest that was only a gap in a burst */
        uint64_t short_rest; /* the last rest, if it was too short to be a rest; 0 */
        uint32_t vain;       /* it wanted to run so many times in a row, and did not */
        bool brief;  /* its last burst was young to its end, but for long ones that waited */
        bool rested; /* since it ran, which is not counted yet: policy_fair.c */
        bool cut;    /* its turn was, in this burst, before its time */
        bool went;   /* in this burst it ended another one's turn, and went first */
        bool first;  /* it goes first: decided when it comes to wait, or later */
    } bursts;

    struct {                 /* policy_fair.c */
        uint64_t level_then; /* the device's level when it ran last */
        uint64_t virtual_ns;
        uint64_t round; /* of the turn that it waits for or has */
    } fair;

    struct { /* how it counts among those that want the device: device.c */
        bool wants;
        uint32_t weight;
        struct sched_user *user; /* while it wants the device; NULL: its user has no account */
    } wanting;

    struct sched_party_share {   /* what it has had, and how it counts there: shares.c */
        struct sched_faded all;  /* that it had in any way */
        struct sched_user *user; /* that it counts for */
        uint32_t weight;
        bool first, batch_queued, batch_beside;
    } share;

    struct sched_party_books { /* its part of the sums of its device: books.c */
        uint64_t demand, need; /* need: bytes of the capacity that it takes while it runs */
        uint64_t need_held, need_busy;
        uint64_t lost; /* what stuck members, or those that stay, hold; part of need_busy */
        uint32_t busy_members, running_members, stuck_members;
        uint32_t blocked_members; /* stuck, and they lack memory */
        uint32_t gang_blocked;    /* the same, also during the turn that they get for it */
        uint32_t deaf_members;    /* stuck, and they have not even read that they are to stop */
        bool counted_stopping, counted_stuck;
    } books;
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
    bool out;          /* was evicted; comes back when it has something to run */
    uint64_t retry_at; /* it gives way until then */
    uint64_t complete; /* all that had something to run did: the turn's time counts from here */

    /* Its turn is to end when all of its programs have stopped: together.c. */
    struct sched_gang_closing {
        struct sched_device *by;        /* for whose sake; NULL: it is not to end */
        uint64_t began, until, open_ns; /* until: of the phase */
        uint32_t plan; /* device->turns.plans when the gang was last asked to stop */
        bool closed;
        bool passed; /* because it does not get ahead, not because its turn is over */
    } closing;

    struct sched_gang_forming { /* a job of ranks that is forming: together.c */
        struct lockd_list link; /* on sched->forming.gangs; else it has formed, or is none */
        uint32_t ranks;         /* of the job on this machine; 0: nobody knows */
        uint64_t left;          /* ns that it runs without a change before it has formed */
        uint64_t counted_at;
        uint64_t came_at; /* when the last of its ranks did */
        uint64_t begun;   /* its forming turn: when it began */
        uint64_t until;  /* ... ends if another one waits for it; LOCKD_NEVER: it has not run */
        uint64_t had_at; /* when its last one ended; 0: it has had none */
        uint64_t
            user_had_at; /* when a gang of its user last had one, while it waited; 0: never */
        bool turn;       /* has a forming turn */
        bool waits;      /* for a forming turn: it may not begin to run before it */
        bool awaited;    /* others wait for its turn to end */
        bool over;       /* ... which is to end now */
    } forming;
};

/* Clients of one user that name it, or that were found to be one job. */
struct sched_group {
    struct sched *sched;
    struct lockd_list link, clients;
    struct lockd_list marked; /* on sched->groups_marked: its size is to be looked at */
    struct sched_gang *gang;  /* of all of them; NULL: they are apart, or on no device yet */
    bool apart;               /* too large for one of its devices: each takes turns by itself */
    bool unsaid;              /* ... which the caller has not been told */
    uint32_t client_count;
    uint64_t fits_since; /* it is apart and would fit; LOCKD_NEVER */
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
    uint8_t uuid[16];
    char name[64];
    uint32_t named_by; /* the user that named it first */
    uint64_t clock;    /* a counter, for the order of events */
    /* The latest time to look again: at the whole device; at its holders, and at programs that
     * were asked to stop (stop.c); at programs whose memory is to leave (stop.c). */
    uint64_t deadline, grace_at, stop_at, evict_at;

    struct { /* work that is due before the event ends: device.c; worked off by plan.c */
        struct lockd_list pending; /* on sched->pending */
        struct lockd_list touched; /* members */
        struct lockd_list settle;  /* parties */
        bool recount;              /* capacity or mode changed: everybody's share did */
    } agenda;

    /* How large it is, and what on it nobody can move: measure.c. */
    struct sched_device_measure {
        uint64_t total, external;
        bool several;          /* users have programs there */
        uint32_t backed_by;    /* the user whose program said external first */
        bool backed;           /* a program of another user has said the same */
        uint64_t beyond_total; /* more than the total is free for programs: that is a limit */
        bool measured, restarted;
        uint64_t settle_until; /* clients of an earlier daemon are still coming back */

        /* A member said that external is something else; no other has yet. */
        struct sched_doubt {
            struct sched_member *by; /* NULL: there is none */
            uint64_t value, ask_at;
            uint64_t ask_next; /* not before */
            uint64_t again_at; /* those that could not tell when asked are asked again */
            bool asked, alone; /* alone: there was nobody else to ask */
            bool foreign; /* there are programs of other users, and one of them has to agree */
        } doubt;

        /* Memory of programs whose connections have ended, or that was handed over and nobody took:
         * for a while it may be on the device still, since the program lives and comes back, or the
         * driver is clearing up. After two windows, or at the end of this one, it counts like any
         * other. */
        struct sched_departed {
            uint64_t recent, older; /* bytes, of this window and of the window before */
            uint64_t since;         /* when this window began */
        } departed;
        uint64_t asked_at; /* of the oldest open question of a program; 0: there is none */

        uint64_t card_at;    /* when the card last answered; 0: never */
        uint64_t card_asked; /* ... a question of that time */
        uint64_t
            judge_asked; /* when programs were last asked whether there is room for claims */
        uint64_t card_total; /* bytes that it has; UINT64_MAX: not known */
        bool card_denies;    /* its last answer contradicted external, by that answer: */
        uint64_t card_value;
        uint32_t denied;    /* members whose claims the last look left no room for */
        uint32_t doubted;   /* ... of which the next look decides */
        bool trust_changed; /* programs go last from now on, or do not any more: plan.c */
    } measure;

    struct { /* bytes left of it for programs: capacity.c */
        uint64_t capacity;
        uint64_t fell_at; /* when the capacity last fell; 0: long ago */
        uint64_t short_bytes, short_until;
        uint64_t claimed; /* for programs that are about to come */
    } space;

    struct { /* sums and sets over members and parties: books.c */
        struct sched_share sum;
        uint64_t need_held, need_busy, lost, gpu_ns_gone;
        uint64_t stays;   /* of what is resident: its programs have no host memory for it */
        uint64_t weights; /* of parties: gang.c */
        uint64_t changes; /* a counter: of any party's sums */
        uint32_t stopping_parties, stuck_parties;
        uint64_t stuck_at; /* when a party last became stuck: to wait for that was no switch */
        struct lockd_list hungry, spared, unused, stopping;
        struct sched_order victims_idle, victims_waiting;
        uint64_t progress; /* when the first hungry member last got ahead */
    } books;

    struct { /* parties that wait for it: queue.c */
        struct sched_order queue;
        struct sched_order apart; /* they never fit, or wait for forming turns: together.c */
        uint64_t again_at;        /* when one of them may go first again; LOCKD_NEVER */
        const struct sched_party *back; /* the last whose turn was ended before its time */
    } waiting;

    struct { /* parties that have it: lease.c, turns.c */
        struct lockd_list holders;
        uint32_t holder_count;
        uint32_t elsewhere; /* parties that wait for another device first */
        uint32_t closing;   /* gangs whose turns are to end for its sake: together.c */
        uint32_t knots;     /* holders that stop.c has to look at */
        uint32_t plans;     /* a counter */
        bool leases, waiters;
        uint64_t generation;  /* rises when holders or their needs change */
        uint64_t held_off_ns; /* the policy: in all, while others went first */
        struct sched_had had; /* vain.c: of all parties */
        uint64_t vain_at;     /* vain.c: time in vain is counted up to then */
        uint64_t switches;
        uint64_t switch_ns; /* what one costs, measured: quantum.c; 0: not yet */
    } turns;

    /* The last look for parties to stop for the head came to nothing, and would again: turns.c. */
    struct {
        const struct sched_party *head;
        uint64_t generation, need, at;
    } revoke;

    struct { /* others were stopped for this party, first at that time: turns.c */
        const struct sched_party *party;
        uint64_t at;
    } cleared;

    struct { /* the figures that all its members were told last: plan.c */
        uint64_t at;
        uint64_t idle, capacity, shortfall;
        bool sole, waiters;
        uint64_t quiet_at; /* when holders are to hear that nobody waits */
        uint64_t
            exact_at; /* when changes of the figures are told; LOCKD_NEVER: there are none */
    } told;

    struct {                   /* policy_fair.c */
        uint64_t level, round; /* they begin at LEVEL_START and ROUND_START */
        uint64_t clock;        /* of the user whose party was admitted last */
    } fair;

    struct sched_device_wanting { /* the parties that want it: device.c */
        struct lockd_list users;
        uint64_t weights;    /* of these parties */
        double user_weights; /* of their users: the mean weight of each user's parties */
    } wanting;

    /* The account between parties that go first and the others: shares.c. */
    struct sched_device_share {
        uint64_t first_weights; /* of parties that go first and want the device */
        uint32_t batch_queued;  /* the others that wait */
        uint32_t batch_beside;  /* ... that run meanwhile beside those that hold */
        double spare;           /* ns that others may be held off; less than 0: are owed */
        double due;             /* part of the device that is due to parties that go first */
        uint64_t at;            /* counted up to then */
        bool held_off;          /* others are, at present, ... */
        uint64_t off_until;     /* ... until then at the latest */
        bool stands;            /* ... or nothing is counted: another user's program runs on */
        /* holders, as of turns.generation: */
        uint64_t generation;
        bool batch_held, batch_runs;
        bool batch_went; /* each of these holders went first earlier in its burst */
        const struct sched_party *going,
            *coming; /* the holder that goes first for longest, the last of the others */
    } share;
};

/* Of a device, what others wait for and a party does not: denial.c. */
struct sched_passed {
    uint64_t busy, lost, hold; /* of the device's need_busy, its lost, and its sum of hold */
};

/* A user's parties that want a device: device.c. */
struct sched_user {
    struct lockd_list of_device;
    uint32_t id;
    uint32_t wanting;
    uint64_t weights;         /* of them */
    uint64_t since;           /* when that changed last */
    uint64_t first_weights;   /* shares.c: of those that go first */
    struct sched_faded had;   /* shares.c: by these */
    struct sched_faded fresh; /* ... in their first YOUNG, before they rested */
    struct sched_had all;     /* vain.c: what its programs had */
    uint64_t pays_until;      /* ... and what those of others have before its next turn */
    uint64_t denied_at; /* denial.c: a claim of its programs last proved wrong; 0: none has */
    /* denial.c: bytes that its programs last found in use by programs that should have left; when */
    uint64_t found, found_at;
    uint64_t asked_at; /* measure.c: when one of them was last asked */
    /* policy_fair.c: what they had, in virtual ns of the user; the last of their numbers */
    uint64_t clock, number;

    /* What programs may have that should have left, where only programs can tell; of when: denial.c. */
    struct sched_user_late {
        struct sched_passed others; /* of other users, as found by this one's */
        uint64_t kin;
        uint64_t changes, found_at, judge_asked;
    } late;
};

struct sched_client {
    struct lockd_list link, members;
    struct sched *sched;
    struct sched_gang *gang; /* from its first state on, and its group */
    struct sched_group *in_group;
    struct lockd_list of_group;
    void *owner;
    uint32_t member_count, user;
    struct sched_client_settings set;
    uint64_t quota_next; /* the quota of the next member */
    char group[32];
    uint64_t kin;   /* the group that it was found to be in; 0: none */
    uint32_t ranks; /* of its job on this machine; 1: not known how many; 0: it is no rank */
    bool paused;
    bool contradicted, silent; /* the caller has not been told: measure.c, budget.c */
    uint32_t last;             /* members that go last: it counts as background: plan.c */
    bool away;                 /* a guard holds it: nothing of it is on any device */

    /* Its member and party as they were on the device that it left, for the device that it names
     * next; NULL: it has left none: scheduler.c. */
    struct sched_client_left {
        struct sched_member_time time;
        struct sched_party party;
    } * left;

    struct sched_client_host { /* its part of the host's memory: budget.c */
        uint64_t said;         /* what it has, by its own report: for status only */
        uint64_t used, wanted; /* used: as much of that as others may pay for */
        uint64_t off;          /* bytes of its memory that are on no device now */
        uint64_t goal;         /* the most that is of use to it */
        uint64_t budget, told; /* decided; the highest that it may still act on */
        uint64_t given;        /* the highest ever */
    } host;
};

/* Room on a device for a program that is about to come: settings.c. */
struct sched_claim {
    struct lockd_list link; /* on sched->claims */
    const void *key;
    uint8_t uuid[16];
    uint64_t bytes;
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

    struct { /* gangs that are forming: together.c */
        struct lockd_list gangs;
        uint64_t at; /* when to look at them again; LOCKD_NEVER */
    } forming;

    struct sched_host { /* the host's memory: budget.c */
        uint64_t available, total;
        uint64_t said, used, hold, off, goal; /* sums over clients */
        uint64_t at, deadline;
        bool changed;
    } host;
};
