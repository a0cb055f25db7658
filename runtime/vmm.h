/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.h: physical memory behind reserved addresses (CUDA driver API manual, "Virtual Memory
 * Management").
 */
#ifndef GS_RUNTIME_VMM_H
#define GS_RUNTIME_VMM_H

#include "runtime/device.h"

/* Creates bytes of physical memory on the device and maps them readable and writable at
 * address. On error nothing is left behind. Any thread; needs no current context. */
CUresult gs_vmm_map(const struct gs_device *device, CUdeviceptr address, uint64_t bytes,
                    CUmemGenericAllocationHandle *handle);

/* The reverse. Nothing on the GPU may use the memory any more. */
void gs_vmm_unmap(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle);

#endif
