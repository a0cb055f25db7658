/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h: which party comes next, for how long, and which may go before others. A policy
 * sees one party (or two) at a time and writes only the parts of a party that objects.h marks as
 * the policy's. turns.c does the rest: what fits together, which party must stop for which,
 * and which may run meanwhile.
 */
#pragma once

#include "lockd/sched/shares.h"

/* What all policies keep of a party, and answer alike, is in shares.h and bursts.h: another policy
 * may come into force at any time. Functions that no policy leaves out come first. */
struct sched_policy {
    /* It ran for so many ns up to now; contended: while others waited. */
    void (*ran)(struct sched_party *party, uint64_t ns, bool contended, uint64_t now);
    /* It begins to wait: its place in the queue, lower goes first. */
    uint64_t (*place)(struct sched_party *party);
    /* It has come to wait, and has its place: its number among equals, lower goes first. NULL: in
     * the order in which they came. */
    uint64_t (*number)(struct sched_party *party);
    /* It is admitted: for how many ns it may run when others wait; LOCKD_NEVER: for as long as
     * it has something to do. */
    uint64_t (*length)(struct sched_party *party);
    /* Has the work come to its end in which its last turn was cut? Else it keeps its place. */
    bool (*anew)(const struct sched_party *party);
    /* When its place may be another one, with nothing else happening; LOCKD_NEVER. */
    uint64_t (*moves_at)(const struct sched_party *party, uint64_t now);
    /* Until then nobody gets the place of device->waiting.back, whose turn was cut and which
     * may come back for it. LOCKD_NEVER: there is none. */
    uint64_t (*back_until)(const struct sched_device *device);
    /* Its turn ended after it ran for party->time.ran ns. NULL: does not matter. */
    void (*ended)(struct sched_party *party);
    /* ... before its time, for another one. NULL: does not matter. */
    void (*cut)(struct sched_party *party);
    /* Others were stopped for it, and it did not wait for its turn. NULL: does not matter. */
    void (*gave_up)(struct sched_party *party);
    /* Turns are `part` (less than 1) as long from now on. NULL: does not matter. */
    void (*shorter)(struct sched_party *party, double part);
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
