/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h: moves one chunk from the card to host memory beyond it, or back (range/over.h).
 * placement.h decides which chunk, and when. Client thread, with a context of the device current.
 */
#pragma once

#include "runtime/range/range.h"

struct gs_exchange_chunk {
    struct gs_range *range; /* NULL: none */
    uint32_t index;
    uint64_t bytes, used;
};

/* Under gs_memory_lock: the chunk may change places. One of which there is a handle comes to the
 * card, where other processes can open it, and does not leave it. */
bool gs_exchange_is_free(const struct gs_range *range, uint32_t index);

/* Under gs_memory_lock: bytes that the card has for chunks from beyond it. */
uint64_t gs_exchange_room(const struct gs_device *device);

/* The gate is closed, and everything submitted has finished. False: the driver or the host
 * refused something, and the chunk is where it was, or adrift (range.h). */
bool gs_exchange_send_beyond(const struct gs_exchange_chunk *it);
bool gs_exchange_fetch(const struct gs_exchange_chunk *it);

/* No exchange follows for now: releases the spare host memory. */
void gs_exchange_end(void);

/* Tries again to map the chunks that are adrift. The gate is closed. */
void gs_exchange_mend(uint64_t now);
/* Chunks have been adrift for so long that calls fail and no longer wait. */
bool gs_exchange_refuses(void);

/* True if a chunk is adrift. Client thread. */
bool gs_exchange_is_adrift(void);

/* The measured time in ns to copy one byte; 0: not measured yet. Client thread. */
double gs_exchange_copying(void);
