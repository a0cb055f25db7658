/* SPDX-License-Identifier: Apache-2.0
 *
 * retire.h: memory that the program has freed is kept for the next allocation, given back, or
 * left to the client thread (dispose.c).
 */
#ifndef GS_RUNTIME_MEMORY_RETIRE_H
#define GS_RUNTIME_MEMORY_RETIRE_H

#include <stdbool.h>

#include <cudaTypedefs.h>

#include "runtime/range/range.h"

/* All without gs_memory_lock, but for gs_retire_bury() and gs_retire_unbury(). */

/* A range out of the accounts and the tree, at rest, inside the gate. */
void gs_retire(struct gs_range *range);

/* A range that nothing uses any more, DISPOSING, without a copy on the host: kept for the next
 * one, or given back. */
void gs_retire_keep_or_drop(struct gs_range *range);

/* Under gs_memory_lock: the client thread is to dispose of a range that has left the accounts.
 */
void gs_retire_bury(struct gs_range *range);

/* Under gs_memory_lock: takes dead ranges out for disposal, those of one context if it is not
 * NULL, and puts them behind the first count of batch, which has room for `most`. Returns the new
 * count. */
unsigned gs_retire_unbury(struct gs_device *device, CUcontext context, struct gs_range **batch,
                          unsigned count, unsigned most);

/* A retired piece of a slab that nothing uses any more. */
void gs_retire_piece(struct gs_range *range, CUdeviceptr address);

/* The same for one that was freed during a capture: not handed out before the client thread
 * could wait for its use. */
void gs_retire_piece_later(struct gs_range *range, CUdeviceptr address);

/* Client thread: retires those pieces. moving: the gate is closed and the GPU at rest. True
 * while some of them still wait for the end of a capture. */
bool gs_retire_late_pieces(bool moving);

/* Their context has ended. */
void gs_retire_forget_late_pieces(CUcontext context);

void gs_retire_after_fork(void);

#endif
