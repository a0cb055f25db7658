/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.h: moves chunks out to the host and back, one step at a time, so that newer targets are
 * seen in between.
 *
 * Client thread only. A failed copy never loses the only good copy: memory is unmapped only
 * after its bytes have arrived.
 */
#ifndef GS_RUNTIME_SWAP_H
#define GS_RUNTIME_SWAP_H

#include <stdint.h>

#include "runtime/device.h"

#define GS_SWAP_STEP_CHUNKS                                                                    \
    4 /* of at most GS_CHUNK_BYTES: a step takes about 5 ms on PCIe 5 x16 */

enum gs_swap_result {
    GS_SWAP_MOVED,   /* at least one chunk moved */
    GS_SWAP_NOTHING, /* nothing to move */
    GS_SWAP_SHORT,   /* no memory on the other side, or the driver failed: try again later */
};

/* Moves up to a step out, until excess bytes are gone. The gate is closed and everything
 * submitted has finished. */
enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess);

/* Moves up to a step in, at most room bytes. The gate is closed (work may still run). *lacking:
 * bytes that the driver could not give, with GS_SWAP_SHORT. */
enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, uint64_t *lacking);

#endif
