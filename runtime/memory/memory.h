/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the program's movable device memory. Addresses never move; physical memory behind
 * them comes and goes.
 */
#ifndef GS_RUNTIME_MEMORY_MEMORY_H
#define GS_RUNTIME_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"

struct gs_stream_position;

struct gs_request {
    struct gs_device *device;
    struct gs_pool *pool;                      /* NULL: cuMemAlloc */
    const struct gs_stream_position *position; /* in stream order; NULL: cuMemAlloc */
    uint64_t bytes;
};

/* Device memory, aligned to at least 512. Never blocks for a lease. CUDA_SUCCESS,
 * CUDA_ERROR_INVALID_VALUE for 0 bytes, CUDA_ERROR_OUT_OF_MEMORY beyond what any lease could
 * give, or the driver's own error. */
CUresult gs_memory_allocate(const struct gs_request *request, CUdeviceptr *address);

struct gs_allocation {
    CUdeviceptr base;
    uint64_t bytes;
    CUcontext context;
    struct gs_device *device;
    uint64_t id;
    CUmemoryPool pool; /* NULL: none */
    bool opened;       /* another process's (openings.h) */
    bool over;         /* some of it lies beyond the card (range/over.h) */
    bool own; /* the program's own VMM memory: base and bytes are those of its mapping */
};

enum gs_memory_found {
    GS_MEMORY_FOREIGN, /* not ours: ask the driver */
    GS_MEMORY_LIVE,
    GS_MEMORY_HOLE, /* mapped by us, but no allocation is there: to the program it is no device
                       address at all */
};

/* The allocation that contains address. Any thread. */
enum gs_memory_found gs_memory_find(CUdeviceptr address, struct gs_allocation *allocation);

/* So many bytes at address are not the program's, though memory may be there: it has freed
 * what was there, and nothing it has submitted may use it any more; or they lie, or end, beside
 * a range. Any thread. */
bool gs_memory_is_refused(CUdeviceptr address, uint64_t bytes);

#endif
