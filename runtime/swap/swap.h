/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.h: moves chunks out to the host and back: several under way at a time, so that the bus
 * never waits for the mapping of memory; one retired at a call, so that newer targets are seen
 * and others learn of every chunk that has left.
 *
 * Client thread only, unless marked. A failed copy never loses the only good copy: memory is
 * unmapped only after its bytes have arrived. A chunk under way counts as where it was.
 */
#ifndef GS_RUNTIME_SWAP_SWAP_H
#define GS_RUNTIME_SWAP_SWAP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"
#include "runtime/range/range.h"

enum gs_swap_result {
    GS_SWAP_MOVED,   /* a chunk has moved, or is on its way */
    GS_SWAP_NOTHING, /* nothing to move */
    GS_SWAP_SHORT,   /* no memory on the device, or the driver failed: try again later */
    GS_SWAP_KEPT,    /* there is no host memory for what should leave */
};

/* Gets on with moving out, until excess bytes are gone. The gate is closed and everything
 * submitted has finished. */
enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess);

/* Gets on with moving in, at most room bytes. The gate is closed (work may still run).
 * news: a descriptor that becomes readable when room may have changed, or -1; it comes back
 * then before a chunk has moved. *lacking: bytes that the driver could not give, with
 * GS_SWAP_SHORT. */
enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, int news,
                               uint64_t *lacking);

/* Waits for what is under way, on all devices, and settles where it is; what has been chosen
 * and not begun stays where it was. Before the gate opens, a context ends, or a range that is
 * under way is disposed of. */
void gs_swap_settle(void);

/* gs_range_dispose(), after what is under way of the range has ended. */
void gs_swap_dispose(struct gs_range *range);

/* True if something is on its way out (else: in). */
bool gs_swap_is_under_way(const struct gs_device *device, bool out);

/* Drops host copies of what is on the device, so that the arena can give them back. */
void gs_swap_drop_copies(struct gs_device *device);

#endif
