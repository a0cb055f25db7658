/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign_mapping.h: mappings in the program's reservations that the driver makes itself. They
 * are of the driver's own handles (imported, or of the host), or second mappings of ours,
 * whose memory is then pinned.
 */
#pragma once

#include "runtime/range/range.h"

struct gs_foreign {
    struct gs_range_tree_node node;
    struct gs_range *of; /* the range, which stays as long; NULL: of the driver's own handle */
    bool accessible;     /* some device can reach it */
};

/* Maps a handle of the driver's own. Refused where a mapping of ours lies, which the driver may
 * not know; else the driver decides. Any thread. */
CUresult gs_foreign_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);

/* Maps a range of the program's own a second time. The range is held
 * (gs_virtual_hold); the mapping takes it over, or drops it. The program may map there, and has
 * nothing else there. Any thread. */
CUresult gs_foreign_map_ours(CUdeviceptr address, struct gs_range *range);

/* Unmaps the mappings between these addresses, which contain whole mappings only; leaves all
 * others alone. Any thread. */
CUresult gs_foreign_unmap(CUdeviceptr address, uint64_t bytes);

/* Gives access to the mappings between these addresses. */
CUresult gs_foreign_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count);

/* One more reference to the handle of the memory mapped at the address, as gs_virtual_hold(). */
CUresult gs_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *handle,
                           bool *ours);

/* As gs_virtual_hold(), with the memory mapped at the address, which is *offset bytes in it, with
 * *left bytes from there on. */
struct gs_range *gs_virtual_hold_at(CUdeviceptr address, uint64_t *offset, uint64_t *left,
                                    bool *ours);

/* The following under gs_memory_lock. */

struct gs_foreign *gs_foreign_at(CUdeviceptr address);
/* the lowest mapping that shares an address with these bytes; NULL: none does */
const struct gs_range_tree_node *gs_foreign_first(CUdeviceptr address, uint64_t bytes);
bool gs_foreign_any(void);
