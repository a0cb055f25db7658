/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h: a fixed table that programs of all users write to, and which entry of it makes room
 * for a new one.
 */
#ifndef GS_LOCKD_BASE_SLOTS_H
#define GS_LOCKD_BASE_SLOTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The first member of an entry. */
struct lockd_stamp {
    uint64_t at; /* when it changed last; 0: the slot is free */
    uid_t uid;
};

/* The index of the slot for a new entry of that user. slots: `count` entries of `size` bytes each.
 * A free one; else a user with `most` entries or more replaces the oldest of its own, and another
 * one the oldest of a user that has more than `most`, or, without such a user, the oldest. */
size_t lockd_slots_choose(const void *slots, size_t count, size_t size, size_t most, uid_t uid);

#endif
