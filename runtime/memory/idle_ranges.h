/* SPDX-License-Identifier: Apache-2.0
 *
 * idle_ranges.h: freed ranges that keep their address and their memory for the next allocation of
 * the same size, so that allocating and freeing in a loop costs no mapping.
 *
 * They count as resident and not as demand. To the program their memory is free, and they are
 * released first when room is needed. Their contents are what the program left there, and never
 * leave the process.
 */
#pragma once

#include "runtime/range/range.h"

/* The following two under gs_memory_lock. */

/* Keeps a freed range that is resident as a whole, without a copy on the host. False: it may not
 * be kept (shared with others, reachable from peers, beyond the limit), and is to be released. */
bool gs_idle_put(struct gs_range *range);

/* Takes a range of exactly so many bytes out of its list, for this pool (NULL: cuMemAlloc's).
 * Its life is DISPOSING. NULL: there is none. */
struct gs_range *gs_idle_take(struct gs_device *device, const struct gs_pool *pool,
                              uint64_t reserved);

/* Releases at least that many bytes, or all; only those of one pool if pool is not NULL. Returns
 * the number of bytes. Any thread, without the lock. */
uint64_t gs_idle_give_back(struct gs_device *device, const struct gs_pool *pool,
                           uint64_t bytes);

/* Releases ranges that must go (the turn is over, others wait, the budget is smaller, memory is
 * missing) and those that were not used again for a second. Client thread. */
void gs_idle_trim(struct gs_device *device, uint64_t now);
