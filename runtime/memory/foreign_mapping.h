/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign_mapping.h: mappings in the program's reservations that are the driver's own business:
 * those of the driver's own handles (imported, of the host), and second or partial mappings of
 * ours, whose memory is pinned by that.
 */
#ifndef GS_RUNTIME_MEMORY_FOREIGN_MAPPING_H
#define GS_RUNTIME_MEMORY_FOREIGN_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/range/range.h"
#include "runtime/range/range_tree.h"

struct gs_foreign {
    struct gs_range_tree_node node;
    struct gs_range *of; /* which stays as long; NULL: of the driver's own handle */
    uint64_t offset;     /* in it */
};

/* Of the driver's own handle: refused where a mapping of ours is, which the driver need not
 * know of, else as the driver says. Any thread. */
CUresult gs_foreign_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);

/* bytes from offset on of a range of the program's own, which is held (gs_virtual_hold) and is
 * the mapping's from now on, or is dropped. The program may do that, and has nothing else
 * there. Any thread. */
CUresult gs_foreign_map_ours(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                             struct gs_range *range);

/* Unmaps those between these addresses, which hold whole mappings only; the rest is left alone.
 * Any thread. */
CUresult gs_foreign_unmap(CUdeviceptr address, uint64_t bytes);

/* Opens those between these addresses to others. */
CUresult gs_foreign_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count);

/* The following under gs_memory_lock. */

struct gs_foreign *gs_foreign_at(CUdeviceptr address);
bool gs_foreign_overlaps(CUdeviceptr address, uint64_t bytes);
bool gs_foreign_any(void);

void gs_foreign_after_fork(void);

#endif
