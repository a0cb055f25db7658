/* SPDX-License-Identifier: Apache-2.0
 *
 * bursts.h: for how long a party has run since it last rested, and for how long it may idle. All
 * times are in ns.
 */
#pragma once

#include "lockd/sched/state.h"

#define YOUNG    (10000 * NS_PER_MS)
#define AGE_STEP 4 /* switches; ages that differ by less are equal */

/* An account of which half is forgotten each HALF_LIFE. */
uint64_t sched_faded_read(const struct sched_faded *account, uint64_t now);
void sched_faded_add(struct sched_faded *account, uint64_t ns, uint64_t now);

/* It has something to do from now on; it has had nothing for as long as it may idle, or since it
 * stopped. runs: it has the device. */
void sched_burst_begun(struct sched_party *party, uint64_t now);
void sched_burst_ended(struct sched_party *party, bool runs, uint64_t now);
/* For how many ns it may have nothing to do before its turn ends. */
uint64_t sched_party_idle(const struct sched_party *party);
/* The class that it was given. With none: interactive while it is young, and was at the end of its
 * last burst; for status only. */
enum gs_wire_class sched_party_class(const struct sched_party *party, uint64_t now);

/* It has never rested, and programs of other users want the device. All such programs of a user
 * are one new program to others. */
bool sched_party_is_unproven(const struct sched_party *party);
/* Of an unproven program: what those of its user had in their first YOUNG, in about the last minute. */
uint64_t sched_party_news(const struct sched_party *party, uint64_t now);
/* Its age: for how long it ran since it last rested. An unproven program: at least what those of its
 * user had in about the last minute. */
uint64_t sched_party_age(const struct sched_party *party, uint64_t now);
/* The age up to which it is young. */
uint64_t sched_party_young_most(const struct sched_party *party);
/* A program that wants the device and does not use it does not: it goes in turn. */
bool sched_party_comes_to_run(const struct sched_party *party);
/* Is it young? One of class interactive always is; one of another class never. */
bool sched_party_is_young(const struct sched_party *party, uint64_t now);
/* The age up to which nobody ends its turn for being younger: 0, unless its last burst was young to
 * its end. A party that has never rested has had no last burst. */
uint64_t sched_party_undisturbed(const struct sched_party *party);
/* Until then a party whose turn was cut may come back for its place, which nobody gets meanwhile;
 * LOCKD_NEVER: there is none. */
uint64_t sched_device_back_at(const struct sched_device *device);
