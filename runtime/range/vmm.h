/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.h: calls on physical memory behind reserved addresses that are not part of a backend
 * (backend.h); see CUDA driver API manual, "Virtual Memory Management".
 */
#pragma once

#include "runtime/range/range.h"

/* At releasing memory, or rights, and at waiting, a single call may fail by itself. */
#define GS_TRY_AGAIN(call)                                                                     \
    ({                                                                                         \
        CUresult tried = CUDA_ERROR_UNKNOWN;                                                   \
                                                                                               \
        for (unsigned tries = 0; tries < 4 && tried != CUDA_SUCCESS; tries++)                  \
            tried = (call);                                                                    \
        tried;                                                                                 \
    })

/* Maps, or unmaps, memory that the chunk has already. A mapping that could not be removed before
 * makes room for the new one. */
CUresult gs_vmm_map(struct gs_range *range, uint32_t chunk);
CUresult gs_vmm_unmap(struct gs_range *range, uint32_t chunk);

/* Between these two calls the library can read and write the chunk's memory, which is mapped, at
 * its address, whatever rights the program has given its own device there. The gate is closed. */
CUresult gs_vmm_open(const struct gs_range *range, uint32_t chunk);
void gs_vmm_close(const struct gs_range *range, uint32_t chunk);

/* Unmaps what is mapped at exactly these addresses. Any thread. */
CUresult gs_vmm_unmap_at(CUdeviceptr address, uint64_t bytes);

/* Releases physical memory; it stays while it is mapped. Any thread. */
CUresult gs_vmm_release(CUmemGenericAllocationHandle handle);

/* Makes device memory for the chunk, in place of the handle that it has; does not map it. */
CUresult gs_vmm_create(struct gs_range *range, uint32_t chunk);

/* Makes host memory for the chunk, which the device can reach; does not map it. */
CUresult gs_vmm_create_on_host(struct gs_range *range, uint32_t chunk);

/* Copies the chunk to that memory, which is not mapped yet. *ns: what the copy took. The gate is
 * closed, and a context is current. */
CUresult gs_vmm_copy(const struct gs_range *range, uint32_t chunk,
                     CUmemGenericAllocationHandle to, uint64_t *ns);
