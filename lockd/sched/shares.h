/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: which party goes first, and for how long the others let it.
 */
#pragma once

#include "lockd/sched/bursts.h"

enum sched_turn_now {
    SCHED_TURN_DUE,    /* it may have the next turn */
    SCHED_TURN_SHARES, /* ... after any other that goes first: it had more than its share */
    SCHED_TURN_WAITS,  /* ... after any other: those in turn have not had theirs */
};

/* What a policy hears and answers, whichever it is. `now`: never before that of an earlier call. */
void sched_share_open(struct sched_device *device, uint64_t now);
void sched_share_join(struct sched_party *party); /* it is new */
/* Members of `from` are about to move to `to`. */
void sched_share_merge(struct sched_party *to, const struct sched_party *from);
/* Its program has come from another device, where its party was `left`. */
void sched_share_arrive(struct sched_party *party, const struct sched_party *left);
/* It waits now, or has its place, or neither any more; or its class or weight is another: shares of
 * the device follow from that. */
void sched_share_note(struct sched_party *party);
/* Brings the device's account up to now: a plan begins. */
void sched_share_count(struct sched_device *device, uint64_t now);
/* ... and notes in which state it goes on: a plan is done. */
void sched_share_settle(struct sched_device *device, uint64_t now);
/* The part of about the last minute for which it ran while others waited. */
double sched_share_used(const struct sched_party *party, uint64_t now);
/* It waits, or has its turn, before those that go in turn. */
bool sched_share_is_first(const struct sched_party *party);
/* It is the first that waits: may it have its turn now? */
enum sched_turn_now sched_share_now(const struct sched_party *party);

/* --- for policies --- */

/* It ran for so long, up to now. */
void sched_share_ran(struct sched_party *party, uint64_t ns, bool contended, uint64_t now);
/* Others were held off for it for so long, in which nothing ran: it gets no older by that. */
void sched_share_charge(struct sched_party *party, uint64_t ns, uint64_t now);

/* Until when it is young, if its user's other new programs go on. */
uint64_t sched_share_young_until(const struct sched_party *party, uint64_t now);
/* May it go first? */
bool sched_share_goes_first(const struct sched_party *party, uint64_t now);
/* When a party that waits, and is not young, may go first again; what changes meanwhile may change
 * that. LOCKD_NEVER: not before it has rested. */
uint64_t sched_share_again_at(const struct sched_party *party, uint64_t now);
/* From when on `head`, which goes first, may end the holder's turn. LOCKD_NEVER: not before that
 * turn is over. */
uint64_t sched_share_ahead_at(const struct sched_party *head, const struct sched_party *holder,
                              uint64_t now);
/* A holder: does it still have its turn by going first? */
bool sched_share_goes_on(const struct sched_party *party, uint64_t now);
/* It goes first and is admitted: for how many ns the accounts let it run, if no
 * other party that goes first wants the device; else 0. */
uint64_t sched_share_turn(const struct sched_party *party);
