/* SPDX-License-Identifier: Apache-2.0
 *
 * idle_ranges.h: freed ranges that keep their address and their memory for the next allocation
 * of the same size, so that allocating and freeing in a loop costs no mapping.
 *
 * They count as resident and not as demand: to the program they are free, and they go first
 * when anybody needs the room. Contents are whatever was there; they never leave the process.
 */
#ifndef GS_RUNTIME_MEMORY_IDLE_RANGES_H
#define GS_RUNTIME_MEMORY_IDLE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/range/range.h"

/* How many bytes of this device may be idle now. Any thread. */
uint64_t gs_idle_limit(const struct gs_device *device);

/* The following two under gs_memory_lock. */

/* Keeps a range that was freed and is in place as a whole, without a copy on the host. False:
 * it may not be kept (shared with others, reachable from peers, beyond the limit); it goes. */
bool gs_idle_put(struct gs_range *range);

/* One of exactly so many bytes, out of the list, for this pool (NULL: cuMemAlloc's); NULL:
 * there is none. Its life is DISPOSING. */
struct gs_range *gs_idle_take(struct gs_device *device, const struct gs_pool *pool,
                              uint64_t reserved);

/* Gives back at least that many bytes, or all; those of one pool only, if pool is not NULL.
 * Returns how many. Any thread, without the lock. */
uint64_t gs_idle_give_back(struct gs_device *device, const struct gs_pool *pool,
                           uint64_t bytes);

/* Gives back what must go (the turn is over, others wait, the budget is smaller, something is
 * missing) and what nobody has wanted for a second. Client thread. */
void gs_idle_trim(struct gs_device *device, uint64_t now);

#endif
