/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.h: moves chunks out to the host and back. Several are under way at a time, so that the bus
 * never waits while memory is mapped. One is completed at a call, so that newer targets are seen
 * soon, and others learn of every chunk that has left.
 *
 * Client thread only, unless marked. A failed copy never loses the only good copy: memory is
 * unmapped only after its bytes have arrived. A chunk under way counts as where it was.
 */
#pragma once

#include "runtime/range/range.h"

enum gs_swap_result {
    GS_SWAP_MOVED,   /* a chunk has moved, or is on its way */
    GS_SWAP_NOTHING, /* nothing to move */
    GS_SWAP_SHORT,   /* the device has no memory, or the driver failed: try again later */
    GS_SWAP_KEPT,    /* there is no host memory for what should move out */
};

/* Does one step of moving out, until `excess` bytes are gone. The gate is closed and everything
 * submitted has finished. */
enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess);

/* Does one step of moving in, at most `room` bytes. The gate is closed (work may still run).
 * news: a descriptor that becomes readable when `room` may have changed, or -1; the call then
 * returns before a chunk has moved. *lacking, with GS_SWAP_SHORT: the bytes that the driver
 * could not give. */
enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, int news,
                               uint64_t *lacking);

/* Copies what the host has of a chunk to its address, where memory has been made for it, and waits.
 * The state stays as it is. False: the driver refuses. */
bool gs_swap_fill(struct gs_range *range, uint32_t index);

/* Waits for everything under way on all devices, and settles where it is. Chunks that were
 * chosen but not begun stay where they were. To be called before the gate opens, before a
 * context ends, and before a range with chunks under way is disposed of. */
void gs_swap_settle(void);

/* Calls gs_range_dispose() when nothing of the range is under way any more. */
void gs_swap_dispose(struct gs_range *range);

/* True if chunks are on their way out (out), or in. */
bool gs_swap_is_under_way(const struct gs_device *device, bool out);

/* Releases host copies of chunks that are on the device, so that the arena can release their
 * memory. */
void gs_swap_drop_copies(struct gs_device *device);
