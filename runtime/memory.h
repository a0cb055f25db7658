/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the program's movable device memory. Addresses never move; physical memory behind
 * them comes and goes.
 */
#ifndef GS_RUNTIME_MEMORY_H
#define GS_RUNTIME_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/device.h"
#include "runtime/tree.h"

/* Physical memory is created, moved and released in chunks of this many bytes (the last of a
 * range may be smaller); 64 to 128 MiB is where the bus is used best (DESIGN.md, section 8). */
#define GS_CHUNK_BYTES (64ull << 20)

enum gs_chunk_state {
    GS_CHUNK_ABSENT,   /* never had memory: contents undefined */
    GS_CHUNK_RESIDENT, /* mapped */
    GS_CHUNK_HOST,     /* the only copy is in the host block */
};

struct gs_chunk {
    CUmemGenericAllocationHandle handle; /* RESIDENT */
    struct gs_host_block *host;          /* HOST; kept when it comes back, for the next time */
    uint8_t state;                       /* enum gs_chunk_state */
};

enum gs_range_life {
    GS_RANGE_LIVE,
    GS_RANGE_DEAD,      /* freed; the client thread will dispose of it */
    GS_RANGE_DISPOSING, /* freed; somebody is at it */
};

struct gs_slab;

struct gs_range {
    struct gs_tree_node node; /* base and asked-for size (the whole range, for a slab) */
    uint64_t reserved;        /* bytes of address space, a multiple of the device's granule */
    struct gs_device *device;
    CUcontext context;    /* in which it was allocated; it ends with it */
    struct gs_slab *slab; /* the range is cut into small pieces; NULL: one allocation */
    uint64_t id;          /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    uint8_t life;         /* enum gs_range_life */
    CUevent after;        /* DEAD, and to be disposed of when this has passed; NULL: at once */
    struct gs_range *next, **link; /* of its device */
    uint32_t chunk_count;
    struct gs_chunk chunks[];
};

/* Guards the tree, slabs, accounts and lists. Rank GS_LOCK_MEMORY. Never held across a driver
 * call. */
extern pthread_mutex_t gs_memory_lock;

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

struct gs_accounts {
    uint64_t demand, missing, resident; /* bytes, as in struct gs_device */
};

/* Any thread. */
struct gs_accounts gs_memory_accounts(const struct gs_device *device);

/* True if everything live is on its device; then `then` is called under the lock that a
 * shutting allocation takes. Client thread. */
bool gs_memory_if_complete(void (*then)(void));

/* Disposes of what was freed while the gate was closed or in stream order. Client thread;
 * moving: the gate is closed. Returns true while some of it still waits for its event. */
bool gs_memory_dispose_dead(bool moving);

uint64_t gs_range_chunk_bytes(const struct gs_range *range, uint32_t chunk);

void gs_memory_after_fork(void);

#endif
