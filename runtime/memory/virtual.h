/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual.h: the program's own VMM memory (cuMemCreate, cuMemMap, cuMemSetAccess …), made
 * movable.
 *
 * The program holds handles of ours; the driver's handles behind them come and go chunk by
 * chunk, at the addresses where the program mapped its handle. PyTorch's expandable segments
 * and XLA allocate in this way. Memory that may be shared with others (exported, bound to a
 * multicast object, mapped twice or in part) is pinned at that moment: in place for good, and
 * no longer in the accounts of movable memory. Memory that is not plain device memory (host,
 * tile pools) stays the driver's from the start.
 *
 * Each function sets *ours to false, and does nothing, for handles and addresses that are not
 * ours.
 */
#ifndef GS_RUNTIME_MEMORY_VIRTUAL_H
#define GS_RUNTIME_MEMORY_VIRTUAL_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/base/device.h"
#include "runtime/range/owners.h"

/* The device whose memory prop asks for, if that is memory we can move; else NULL. */
struct gs_device *gs_virtual_device(const CUmemAllocationProp *prop);

CUresult gs_virtual_create(struct gs_device *device, uint64_t bytes,
                           const CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle *handle);
CUresult gs_virtual_release(CUmemGenericAllocationHandle handle, bool *ours);
CUresult gs_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *handle,
                           bool *ours);
CUresult gs_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop,
                               bool *ours);

/* The memory of the handle, or the one mapped at the address: offset and the bytes left are
 * in it. It stays until it is dropped. NULL: none; *ours then says whether a handle, or memory,
 * of ours is meant nevertheless. */
struct gs_range *gs_virtual_hold(CUmemGenericAllocationHandle handle, bool *ours);
struct gs_range *gs_virtual_hold_at(CUdeviceptr address, uint64_t *offset, uint64_t *left,
                                    bool *ours);
void gs_virtual_drop(struct gs_range *range);

/* Pins what is held: all its chunks have the driver's own handles for good. Waits for the lease
 * like a submission. */
CUresult gs_virtual_pin(struct gs_range *range);

/* True if one of so many mappings is to be of a handle of ours. Any thread. */
bool gs_virtual_is_behind(const CUarrayMapInfo *mappings, unsigned count);

/* Between virtual.c and mapping.c. */

/* Between the two the calling thread alone gives the range memory and maps it. It does not wait
 * at the gate meanwhile: a thread that waits here may be inside. */
void gs_virtual_begin(struct gs_range *range);
void gs_virtual_end(struct gs_range *range);

/* The following under gs_memory_lock. */

/* Also a handle that is no more: the driver would take it for a pointer of its own. */
bool gs_virtual_is_ours(CUmemGenericAllocationHandle handle);

/* The range behind a handle that the program still may use; NULL: none. */
struct gs_range *gs_virtual_usable(CUmemGenericAllocationHandle handle);

/* Nobody can reach the range any more: it leaves the books. True: the caller disposes of it. */
bool gs_virtual_ends(struct gs_range *range);

void gs_virtual_after_fork(void);

#endif
