/* SPDX-License-Identifier: Apache-2.0
 *
 * slab.h: requests up to 1 MiB share ranges of 2 MiB, cut into pieces of one size.
 */
#ifndef GS_RUNTIME_SLAB_H
#define GS_RUNTIME_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/memory.h"

#define GS_SLAB_BYTES     (2ull << 20)
#define GS_SLAB_MIN_SHIFT 9  /* 512 bytes: the alignment that cuMemAlloc has in practice */
#define GS_SLAB_MAX_SHIFT 20 /* 1 MiB */
#define GS_SLAB_MAX_BYTES (1ull << GS_SLAB_MAX_SHIFT)

/* All under gs_memory_lock, without driver calls. */

/* A free piece for bytes (1 .. GS_SLAB_MAX_BYTES) in this context; 0: there is none. */
CUdeviceptr gs_slab_take(struct gs_device *device, CUcontext context, uint64_t bytes);

/* Makes the new range a slab for pieces that hold bytes. False: no memory for its bookkeeping.
 */
bool gs_slab_make(struct gs_range *range, uint64_t bytes);

/* The live piece that contains address: base and asked-for bytes. False: no live piece is
 * there. */
bool gs_slab_piece(const struct gs_range *range, CUdeviceptr address, CUdeviceptr *base,
                   uint64_t *bytes);

/* Ends the life of the piece that begins at address; it is not handed out again before
 * gs_slab_put(). False: none is live. */
bool gs_slab_retire(struct gs_range *range, CUdeviceptr address);

/* Puts a retired piece back. True: the slab is empty and not the last of its kind, and has left
 * the lists: dispose of it. */
bool gs_slab_put(struct gs_range *range, CUdeviceptr address);

/* A slab of this device that has no live or retired piece, out of the lists; NULL: there is
 * none. */
struct gs_range *gs_slab_spare(const struct gs_device *device);

/* Bytes in such slabs: as good as free. */
uint64_t gs_slab_spare_bytes(const struct gs_device *device);

/* The range goes. Takes NULL. */
void gs_slab_free(struct gs_slab *slab);

void gs_slabs_after_fork(void);

#endif
