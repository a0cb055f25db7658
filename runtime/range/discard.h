/* SPDX-License-Identifier: Apache-2.0
 *
 * discard.h: memory whose contents the program has given up: they are not copied when it moves.
 *
 * A discard is valid until the program submits anything, because nobody can know what that
 * writes. So each mark carries the number of passes through the gate at its time (gs_gate_stamp).
 * It counts only for a move during a stop before which no thread has passed since.
 */
#pragma once

#include "runtime/range/range.h"

/* The program gives up the contents of these bytes; blocks that lie in them as a whole are
 * marked. Returns the number of bytes that are marked; -EINVAL for no bytes or an end beyond the
 * address space; -EFAULT if they are not all in one live allocation of ours. Any thread. */
int64_t gs_discard_mark(uint64_t address, uint64_t bytes);

/* Removes the mark of each block that contains any of these bytes. 0, or as above. */
int64_t gs_discard_keep(uint64_t address, uint64_t bytes);

/* Under gs_memory_lock, while stopped: a bit for each block of the chunk (from the first on, at
 * most 64) whose contents may be lost now. */
uint64_t gs_discard_now(const struct gs_chunk *chunk);
