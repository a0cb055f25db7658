/* SPDX-License-Identifier: Apache-2.0
 *
 * slab.h: requests up to 1 MiB share ranges of 2 MiB, cut into pieces of one size.
 */
#pragma once

#include "runtime/range/range.h"

#define GS_SLAB_BYTES     (2ull << 20)
#define GS_SLAB_MIN_SHIFT 9  /* 512 bytes: the alignment that cuMemAlloc has in practice */
#define GS_SLAB_MAX_SHIFT 20 /* 1 MiB */
#define GS_SLAB_MAX_BYTES (1ull << GS_SLAB_MAX_SHIFT)

/* All under gs_memory_lock, without driver calls. */

/* The size of the piece for a request of so many bytes. */
uint64_t gs_slab_piece_bytes(uint64_t bytes);

/* A free piece for bytes (1 .. GS_SLAB_MAX_BYTES) in this context and pool (NULL: none); 0:
 * there is none. */
CUdeviceptr gs_slab_take(const struct gs_device *device, CUcontext context,
                         const struct gs_pool *pool, uint64_t bytes);

/* Makes the new range a slab for pieces that hold bytes. False: no memory for its bookkeeping.
 */
bool gs_slab_make(struct gs_range *range, uint64_t bytes);

/* The live piece that contains address: base and asked-for bytes. False: no live piece is
 * there. */
bool gs_slab_piece(const struct gs_range *range, CUdeviceptr address, CUdeviceptr *base,
                   uint64_t *bytes);

enum gs_slab_state { GS_SLAB_LIVE, GS_SLAB_RETIRED, GS_SLAB_FREE };

/* The state of the piece that contains address. */
enum gs_slab_state gs_slab_state(const struct gs_range *range, CUdeviceptr address);

/* Ends the life of the piece that begins at address; it is not handed out again before
 * gs_slab_put(). False: none is live. */
bool gs_slab_retire(struct gs_range *range, CUdeviceptr address);

/* Makes a retired piece live again, for so many bytes. */
void gs_slab_revive(struct gs_range *range, CUdeviceptr address, uint64_t bytes);

/* Puts a retired piece back. True: the slab is empty and has left the lists. */
bool gs_slab_put(struct gs_range *range, CUdeviceptr address);

/* The sum of the bytes that the program asked for. */
uint64_t gs_slab_asked(const struct gs_slab *slab);

/* The range ends. Takes NULL. */
void gs_slab_free(struct gs_slab *slab);
