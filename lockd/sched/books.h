/* SPDX-License-Identifier: Apache-2.0
 *
 * books.h: sums and sets over members and parties, kept up to date with every change.
 */
#pragma once

#include "lockd/sched/state.h"

bool sched_member_stuck(const struct sched_member *member, uint64_t now);
/* Nothing that it holds can be had: it does not answer, or may have less and none leaves. */
bool sched_member_clings(const struct sched_member *member, uint64_t now);
/* Facts about a member: the flags GS_STATE_* of its last report, and these. */
enum sched_fact {
    SCHED_HUNGRY = 1 << 24, /* its turn has come, its budget has not */
    SCHED_GROWN = 1 << 25,  /* it needs more than it was given */
    SCHED_SILENT = 1 << 26, /* it did not read its budgets, which have ended */
    SCHED_BEYOND = 1 << 27, /* it was told to put memory beyond the card */
};
/* Is one of these facts true of any member of the party? */
bool sched_party_has(const struct sched_party *party, uint32_t facts);
/* To be called after every change to what a member reported, was told or was given. */
void sched_books_member(struct sched_member *member, uint64_t now);
/* ... to a party; books of its members too. */
void sched_books_party(struct sched_party *party, uint64_t now);
/* Takes a member out of all sums and sets. Its time until now counts, and its wait ends. */
void sched_books_forget(struct sched_member *member, uint64_t now);
/* So much of what it has cannot leave, by its own limits. */
void sched_books_stays(struct sched_member *member, uint64_t stays);
/* Adds up the time until now. To be called before the flags or the lease change. */
void sched_books_time(struct sched_member *member, uint64_t now);
void sched_books_ran(struct sched_party *party, uint64_t now);
void sched_books_device_ran(struct sched_device *device, uint64_t now); /* all its holders */
/* Its turn gets ahead as memory comes that it asked for when its turn began, or room for that; beside
 * programs of other users by no more time than these bytes need. To be called when some has. */
void sched_books_ahead(struct sched_member *member, uint64_t now);
