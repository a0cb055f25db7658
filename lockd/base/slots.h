/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h: a fixed table that programs of all users write to, and which entry of it makes room
 * for a new one.
 */
#ifndef GS_LOCKD_BASE_SLOTS_H
#define GS_LOCKD_BASE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

/* The first member of an entry. */
struct lockd_stamp {
    uint64_t at; /* when it changed last; 0: the slot is free */
    uint32_t owner;
};

/* The index of the slot for a new entry of that owner. slots: `count` entries of `size` bytes each.
 * A free one; else the oldest of the owner who would have the most, so that nobody pushes out the
 * few entries of others. */
size_t lockd_slots_choose(const void *slots, size_t count, size_t size, uint32_t owner);

#endif
