/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.h: physical memory behind reserved addresses (CUDA driver API manual, "Virtual Memory
 * Management").
 */
#ifndef GS_RUNTIME_VMM_H
#define GS_RUNTIME_VMM_H

#include "runtime/range.h"

/* Creates the chunk's physical memory and maps it at its address, accessible as the range
 * wants. On error nothing is left behind. Needs no current context. The caller sets the state.
 */
CUresult gs_vmm_place(struct gs_range *range, uint32_t chunk);

/* All chunks of a range that has no memory yet, with one call for their access. Returns how
 * many of them, from the first on, are in place. The caller sets the states. */
uint32_t gs_vmm_place_all(struct gs_range *range);

/* The reverse. Nothing on the GPU may use the memory any more. */
void gs_vmm_remove(struct gs_range *range, uint32_t chunk);

/* Maps, or unmaps, memory that the chunk has already: the program moves its own mapping. */
CUresult gs_vmm_map(struct gs_range *range, uint32_t chunk);
CUresult gs_vmm_unmap(struct gs_range *range, uint32_t chunk);

/* Gives another device access to what cuMemAlloc has on this one now. Inside the gate. */
CUresult gs_vmm_share(struct gs_device *device, CUdevice peer);

#endif
