/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h: which party comes next, for how long, and which may go before others. A policy
 * sees one party (or two) at a time and writes only the parts of a party that parts.h marks as
 * the policy's. turns.c does the rest: what fits together, which party must stop for which,
 * and which may run meanwhile.
 */
#pragma once

#include "lockd/sched/state.h"

enum sched_turn_now {
    SCHED_TURN_DUE,    /* it may have the next turn */
    SCHED_TURN_SHARES, /* ... after any other that goes first: it had more than its share */
    SCHED_TURN_WAITS,  /* ... after any other: those in turn have not had theirs */
};

/* Functions that no policy leaves out come first. `now`: never before that of an earlier call. */
struct sched_policy {
    /* --- what a policy hears --- */

    void (*opened)(struct sched_device *device, uint64_t now);
    void (*joined)(struct sched_party *party); /* it is new */
    /* Members of `from` are about to move to `to`. */
    void (*merged)(struct sched_party *to, const struct sched_party *from);
    /* Its program leaves for another device; it has come from one. */
    void (*leaves)(const struct sched_party *party, struct sched_client_left *left);
    void (*arrives)(struct sched_party *party, const struct sched_client_left *left);
    /* It waits now, or has its place, or neither any more; or its class or weight is another. */
    void (*noted)(struct sched_party *party);
    /* It has something to do from now on; it has had nothing for as long as it may idle, or
     * since it stopped. runs: it has the device. */
    void (*wants)(struct sched_party *party, uint64_t now);
    void (*rests)(struct sched_party *party, bool runs, uint64_t now);
    /* It ran for so many ns up to now; contended: while others waited. */
    void (*ran)(struct sched_party *party, uint64_t ns, bool contended, uint64_t now);
    /* A plan begins: accounts are to be brought up to now. A plan is done. */
    void (*counts)(struct sched_device *device, uint64_t now);
    void (*settled)(struct sched_device *device, uint64_t now);
    /* Its turn ended after it ran for party->time.ran ns. NULL: does not matter. */
    void (*ended)(struct sched_party *party);
    /* ... before its time, for another one. NULL: does not matter. */
    void (*cut)(struct sched_party *party);
    /* Others were stopped for it, and it did not wait for its turn. NULL: does not matter. */
    void (*gave_up)(struct sched_party *party);
    /* Turns are `part` (less than 1) as long from now on. NULL: does not matter. */
    void (*shorter)(struct sched_party *party, double part);

    /* --- what a policy decides --- */

    /* It begins to wait: its place in the queue, lower goes first. Equals go in the order in
     * which they came. */
    uint64_t (*place)(struct sched_party *party);
    /* It is admitted: for how many ns it may run when others wait; LOCKD_NEVER: for as long as
     * it has something to do. */
    uint64_t (*length)(struct sched_party *party);
    /* For how many ns it may have nothing to do before its turn ends. */
    uint64_t (*idle)(const struct sched_party *party);
    /* Its class: that which it was given, or what its use of the device is like. */
    enum gs_wire_class (*class)(const struct sched_party *party, uint64_t now);
    /* The part of about the last minute for which it ran while others waited. */
    double (*used)(const struct sched_party *party, uint64_t now);
    /* It waits, or has its turn, before those that go in turn. */
    bool (*first)(const struct sched_party *party);
    /* Has the work come to its end in which its last turn was cut? Else it keeps its place. */
    bool (*anew)(const struct sched_party *party);
    /* It is the first that waits: may it have its turn now? */
    enum sched_turn_now (*now)(const struct sched_party *party);
    /* When its place may be another one, with nothing else happening; LOCKD_NEVER. */
    uint64_t (*moves_at)(const struct sched_party *party, uint64_t now);
    /* Until then nobody gets the place of device->waiting.back, whose turn was cut and which
     * may come back for it. LOCKD_NEVER: there is none. */
    uint64_t (*back_until)(const struct sched_device *device);
    /* From when on `head`, the first in the queue, may end this turn before its time; what
     * changes meanwhile may change that. LOCKD_NEVER, and NULL: never. */
    uint64_t (*ahead)(const struct sched_party *head, const struct sched_party *holder,
                      uint64_t now);
    /* May this turn go on beyond its time, whatever `head` waits for? NULL: never. */
    bool (*stays)(const struct sched_party *holder, const struct sched_party *head);
};

extern const struct sched_policy sched_policy_fair; /* policy_fair.c */

/* The one that is in force. */
const struct sched_policy *sched_policy_of(const struct sched_device *device);
/* The highest of its members'. */
int32_t sched_gang_priority(const struct sched_gang *gang);
