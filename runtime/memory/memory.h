/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the program's movable device memory. Addresses never change; the physical memory
 * behind them comes and goes.
 */
#pragma once

#include "runtime/base/base.h"

struct gs_range;
struct gs_stream_position;

struct gs_request {
    struct gs_device *device;
    struct gs_pool *pool;                      /* NULL: cuMemAlloc */
    const struct gs_stream_position *position; /* in stream order; NULL: cuMemAlloc */
    uint64_t bytes;
};

/* Allocates device memory, aligned to at least 512 bytes. Never waits for a lease. CUDA_SUCCESS;
 * CUDA_ERROR_INVALID_VALUE for 0 bytes; CUDA_ERROR_OUT_OF_MEMORY for more than any lease could
 * give; or the driver's own error. */
CUresult gs_memory_allocate(const struct gs_request *request, CUdeviceptr *address);

/* Adds a new range to the accounts. If there seems to be no room, asks the daemon, whose figures may not
 * know yet what the program has just freed, and waits for memory that other processes still have open;
 * not for what other threads free meanwhile. False: there is no room. */
bool gs_memory_admit(struct gs_range *range);

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
    bool without_access;   /* own, and no device has access */
    unsigned handle_types; /* own: for which it was made exportable */
};

enum gs_memory_found {
    GS_MEMORY_FOREIGN, /* not our memory: ask the driver */
    GS_MEMORY_LIVE,
    GS_MEMORY_HOLE, /* mapped by us, but no allocation is there: to the program it is no device
                       address at all */
};

/* Finds the allocation that contains the address. Any thread. */
enum gs_memory_found gs_memory_find(CUdeviceptr address, struct gs_allocation *allocation);

/* True if these bytes are not the program's, though memory may be there: the program has freed
 * it, and nothing that it submits may use it any more; or they begin, or end, beside a range.
 * Any thread. */
bool gs_memory_is_refused(CUdeviceptr address, uint64_t bytes);
