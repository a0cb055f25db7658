/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.h: what a backend (backend.h) of physical memory behind reserved addresses can do besides
 * (CUDA driver API manual, "Virtual Memory Management").
 */
#ifndef GS_RUNTIME_RANGE_VMM_H
#define GS_RUNTIME_RANGE_VMM_H

#include "runtime/range/range.h"

/* Maps, or unmaps, memory that the chunk has already: the program moves its own mapping. */
CUresult gs_vmm_map(struct gs_range *range, uint32_t chunk);
CUresult gs_vmm_unmap(struct gs_range *range, uint32_t chunk);

/* Unmaps what is mapped exactly there. Any thread. */
CUresult gs_vmm_unmap_at(CUdeviceptr address, uint64_t bytes);

/* Lets go of physical memory; it stays as long as it is mapped. Any thread. */
CUresult gs_vmm_release(CUmemGenericAllocationHandle handle);

/* Device memory for the chunk, in place of what handle it has; not mapped yet. */
CUresult gs_vmm_create(struct gs_range *range, uint32_t chunk);

/* Host memory for the chunk, which the device can reach; not mapped yet. */
CUresult gs_vmm_create_on_host(struct gs_range *range, uint32_t chunk);

/* Gives another device access to what cuMemAlloc has on this one now. Inside the gate. */
CUresult gs_vmm_share(struct gs_device *device, CUdevice peer);

#endif
