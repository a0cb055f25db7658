/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the program's movable device memory. Addresses never move; physical memory behind
 * them comes and goes.
 */
#ifndef GS_RUNTIME_MEMORY_H
#define GS_RUNTIME_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/device.h"
#include "runtime/range.h"

/* cuMemAlloc: bytes of device memory, aligned to at least 512. Never blocks for a lease.
 * CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE for 0, CUDA_ERROR_OUT_OF_MEMORY beyond what any lease
 * could give, or the driver's own error. */
CUresult gs_memory_allocate(struct gs_device *device, uint64_t bytes, CUdeviceptr *address);

enum gs_free_when { GS_FREE_SYNC, GS_FREE_STREAM, GS_FREE_STREAM_PTSZ };

/* Frees what gs_memory_allocate() gave. *ours is false when the address is nobody's here: ask
 * the driver. */
CUresult gs_memory_free(CUdeviceptr address, enum gs_free_when when, CUstream stream,
                        bool *ours);

struct gs_allocation {
    CUdeviceptr base;
    uint64_t bytes;
    CUcontext context;
    struct gs_device *device;
    uint64_t id;
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

/* A context has ended: everything allocated in it is gone. */
void gs_memory_context_ended(CUcontext context);

/* Disposes of what was freed while the gate was closed or in stream order. Client thread;
 * moving: the gate is closed. Returns true while some of it still waits for its event. */
bool gs_memory_dispose_dead(bool moving);

void gs_memory_after_fork(void);

#endif
