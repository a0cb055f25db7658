/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual.h: the program's own VMM memory (cuMemCreate, cuMemMap, cuMemSetAccess …), made
 * movable.
 *
 * The program holds handles of ours; the driver's handles behind them come and go chunk by
 * chunk, at the addresses where the program mapped its handle. PyTorch's expandable segments
 * and XLA allocate in this way. Memory that may be shared with others (exported, bound to a
 * multicast object, mapped twice) is pinned at that moment: in place for good, and
 * no longer in the accounts of movable memory. Memory that is not plain device memory (host,
 * tile pools) stays the driver's from the start.
 *
 * Each function sets *ours to false, and does nothing, for handles and addresses that are not
 * ours.
 */
#pragma once

#include "runtime/range/range.h"

/* The device whose memory prop asks for, if we can move that memory; else NULL. */
struct gs_device *gs_virtual_device(const CUmemAllocationProp *prop);

CUresult gs_virtual_create(struct gs_device *device, uint64_t bytes,
                           const CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle *handle);
CUresult gs_virtual_release(CUmemGenericAllocationHandle handle, bool *ours);
CUresult gs_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop,
                               bool *ours);

/* Holds the memory of the handle, which stays until it is dropped. NULL: none; *ours then says
 * whether the handle is ours nevertheless. */
struct gs_range *gs_virtual_hold(CUmemGenericAllocationHandle handle, bool *ours);
void gs_virtual_drop(struct gs_range *range);

/* Pins a held range: all its chunks have the driver's own handles for good. Waits for the lease
 * like a submission. */
CUresult gs_virtual_pin(struct gs_range *range);

/* True if one of so many mappings is of a handle of ours. Any thread. */
bool gs_virtual_is_behind(const CUarrayMapInfo *mappings, unsigned count);

/* Used by mapping.c. */

/* Between these two calls the calling thread alone gives the range memory and maps it. It does
 * not wait at the gate meanwhile, since a thread that waits here may be inside. */
void gs_virtual_begin(struct gs_range *range);
void gs_virtual_end(struct gs_range *range);

/* The following under gs_memory_lock. */

/* True also for a handle that has ended: the driver would take it for a pointer of its own. */
bool gs_virtual_is_ours(CUmemGenericAllocationHandle handle);

/* Nothing can reach the range any more: it leaves the accounts. True: the caller disposes of it. */
bool gs_virtual_ends(struct gs_range *range);
