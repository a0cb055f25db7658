/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h: a table of fixed size to which programs of all users write: chooses the entry that a
 * newcomer replaces.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The first member of an entry. */
struct lockd_stamp {
    uint64_t at; /* when it changed last; 0: the slot is free */
    uint32_t owner;
};

/* The index of the slot for a new entry of that owner. slots: `count` entries of `size` bytes
 * each. A free slot; else the oldest entry of the owner with the most entries, so that no owner
 * replaces the few entries of others. */
size_t lockd_slots_choose(const void *slots, size_t count, size_t size, uint32_t owner);
