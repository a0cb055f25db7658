/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: which party goes first, and for how long the others let it.
 */
#pragma once

#include "lockd/sched/bursts.h"
#include "lockd/sched/policy.h"

/* What all policies keep of a party's bursts and of what it had; also those that do not decide by
 * it, since another policy may come into force at any time. */
#define SCHED_POLICY_BY_BURSTS                                                                 \
    .opened = sched_share_open, .joined = sched_share_join, .merged = sched_share_merge,       \
    .leaves = sched_share_leave, .arrives = sched_share_arrive, .noted = sched_share_note,     \
    .wants = sched_burst_begun, .rests = sched_burst_ended, .counts = sched_share_count,       \
    .settled = sched_share_settle, .idle = sched_party_idle, .class = sched_party_class,       \
    .first = sched_share_is_first, .now = sched_share_now, .used = sched_share_used

void sched_share_open(struct sched_device *device, uint64_t now);
void sched_share_join(struct sched_party *party);
void sched_share_merge(struct sched_party *to, const struct sched_party *from);
void sched_share_leave(const struct sched_party *party, struct sched_client_left *left);
void sched_share_arrive(struct sched_party *party, const struct sched_client_left *left);
/* It waits now, or has its place, or neither any more: shares of the device follow from that. */
void sched_share_note(struct sched_party *party);
/* It ran for so long, up to now. */
void sched_share_ran(struct sched_party *party, uint64_t ns, bool contended, uint64_t now);
/* Others were held off for it for so long, in which nothing ran: it gets no older by that. */
void sched_share_charge(struct sched_party *party, uint64_t ns, uint64_t now);

uint64_t sched_faded_read(const struct sched_faded *account, uint64_t now);
void sched_faded_add(struct sched_faded *account, uint64_t ns, uint64_t now);

/* Brings the device's account up to now. */
void sched_share_count(struct sched_device *device, uint64_t now);
/* ... and notes in which state it goes on. To be called when a plan is done. */
void sched_share_settle(struct sched_device *device, uint64_t now);
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
/* Do others come before it although it is the first in the queue? */
enum sched_turn_now sched_share_now(const struct sched_party *party);
/* The part of about the last minute for which it ran while others waited. */
double sched_share_used(const struct sched_party *party, uint64_t now);
bool sched_share_is_first(const struct sched_party *party);
