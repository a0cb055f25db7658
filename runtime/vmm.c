/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.c: maps and unmaps physical memory. No state.
 */
#include "runtime/vmm.h"

#include "runtime/driver.h"
#include "runtime/log.h"

CUresult gs_vmm_map(const struct gs_device *device, CUdeviceptr address, uint64_t bytes,
                    CUmemGenericAllocationHandle *handle)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
    const CUmemAccessDesc access = {.location = here,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = gs_driver.cuMemCreate(handle, bytes, &prop, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_driver.cuMemMap(address, bytes, 0, *handle, 0);
    if (result == CUDA_SUCCESS) {
        result = gs_driver.cuMemSetAccess(address, bytes, &access, 1);
        if (result != CUDA_SUCCESS) {
            gs_vmm_unmap(address, bytes, *handle);
            return result;
        }
    }
    if (result != CUDA_SUCCESS && gs_driver.cuMemRelease(*handle) != CUDA_SUCCESS)
        gs_driver.cuMemRelease(*handle); /* once more, as in gs_vmm_unmap() */
    return result;
}

void gs_vmm_unmap(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    CUresult unmapped = gs_driver.cuMemUnmap(address, bytes);
    CUresult released;

    /* once more: what stays mapped would be in the way of the next mapping here for ever */
    if (unmapped != CUDA_SUCCESS)
        unmapped = gs_driver.cuMemUnmap(address, bytes);
    released = gs_driver.cuMemRelease(handle);
    if (released != CUDA_SUCCESS)
        released = gs_driver.cuMemRelease(handle);

    if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS)
        gs_log("unmapping %llu bytes at %#llx: %d, %d", (unsigned long long)bytes,
               (unsigned long long)address, unmapped, released);
}
