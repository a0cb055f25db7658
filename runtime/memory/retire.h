/* SPDX-License-Identifier: Apache-2.0
 *
 * retire.h: memory that the program has freed is kept for the next allocation, released, or left
 * to the client thread (dispose.c).
 */
#pragma once

#include "runtime/range/range.h"

/* All without gs_memory_lock, but for gs_retire_bury() and gs_retire_unbury(). */

/* Retires a range that is out of the accounts and the tree, and at rest. Inside the gate. */
void gs_retire(struct gs_range *range);

/* Keeps or releases a range that nothing uses any more, DISPOSING, without a copy on the host. */
void gs_retire_keep_or_drop(struct gs_range *range);

/* Under gs_memory_lock: leaves a range, which is out of the accounts, to the client thread for
 * disposal. */
void gs_retire_bury(struct gs_range *range);

/* Under gs_memory_lock: takes dead ranges out for disposal, those of one context if it is not
 * NULL, and puts them behind the first count of batch, which has room for `most`. Returns the new
 * count. */
unsigned gs_retire_unbury(struct gs_device *device, CUcontext context, struct gs_range **batch,
                          unsigned count, unsigned most);

/* Retires a piece of a slab that nothing uses any more. */
void gs_retire_piece(struct gs_range *range, CUdeviceptr address);

/* The same for a piece that was freed during a capture: it is not given out before the client
 * thread could wait for its use. */
void gs_retire_piece_later(struct gs_range *range, CUdeviceptr address);

/* Client thread: retires those pieces. moving: the gate is closed and the GPU at rest. True
 * while some of them still wait for the end of a capture. */
bool gs_retire_late_pieces(bool moving);

/* Forgets those of a context that has ended. */
void gs_retire_forget_late_pieces(CUcontext context);
