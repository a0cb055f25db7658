/* SPDX-License-Identifier: Apache-2.0
 *
 * owners.h: what a range belongs to besides its device: a pool (memory/pool.c), or a handle of
 * the program's own (memory/virtual.c).
 */
#pragma once

#include "runtime/range/range.h"

/* All under gs_memory_lock, except handle and device. */
struct gs_pool {
    struct gs_pool *next;
    CUmemoryPool handle; /* the driver's; dead once destroyed */
    struct gs_device *device;
    bool destroyed;                   /* it lives until its last range has gone */
    bool may_wait;                    /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES */
    uint64_t most;                    /* bytes that it may hold; 0: no bound of its own */
    uint64_t threshold;               /* bytes that it keeps when they are free */
    uint64_t used, used_high;         /* bytes the program has */
    uint64_t reserved, reserved_high; /* bytes of its ranges */
    uint32_t ranges;
    unsigned peer_count;
    CUmemAccessDesc peers[GS_MAX_PEERS]; /* other devices that may reach its memory */
};

#define GS_VIRTUAL_ACCESS 24 /* locations to which one mapping can be made accessible */

/* The additional parts of a range of cuMemCreate. Under gs_memory_lock. */
struct gs_virtual {
    struct gs_range_tree_node by_handle; /* base: the handle that the program holds */
    struct gs_range *range;
    CUmemAllocationProp prop;
    unsigned references; /* cuMemCreate and cuMemRetainAllocationHandle minus cuMemRelease */
    unsigned aliases; /* other mappings of it (foreign_mapping.h), and threads that hold it */
    bool worked_on;   /* gs_virtual_begin() */
    bool mapped;
    bool accessible; /* the program can reach it, so it is needed */
    unsigned access_count;
    CUmemAccessDesc access[GS_VIRTUAL_ACCESS];
};
