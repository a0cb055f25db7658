/* SPDX-License-Identifier: Apache-2.0
 *
 * discard.h: memory whose contents the program has given up: they are not copied when it moves.
 *
 * A discard holds until the program submits anything: what that writes cannot be known. So each
 * mark carries the count of passes through the gate at its time (gs_gate_stamp), and counts
 * only for a move during a stop before which no thread has passed since.
 */
#ifndef GS_RUNTIME_RANGE_DISCARD_H
#define GS_RUNTIME_RANGE_DISCARD_H

#include <stdint.h>

#include "runtime/range/range.h"

/* The program gives up what lies in these bytes; blocks that lie in them as a whole are marked.
 * Returns how many bytes those are; -EINVAL for no bytes or an end beyond the address space,
 * -EFAULT where they are not all in one live allocation of ours. Any thread. */
int64_t gs_discard_mark(uint64_t address, uint64_t bytes);

/* The reverse, for each block that has any of these bytes. 0, or as above. */
int64_t gs_discard_keep(uint64_t address, uint64_t bytes);

/* Under gs_memory_lock, while stopped: a bit for each block of the chunk (from the first on, at
 * most 64) whose contents may be lost now. */
uint64_t gs_discard_now(const struct gs_chunk *chunk);

#endif
