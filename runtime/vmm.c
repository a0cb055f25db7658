/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.c: creates, maps, unmaps and releases the physical memory of chunks. No state.
 */
#include "runtime/vmm.h"

#include "runtime/driver.h"
#include "runtime/log.h"
#include "runtime/virtual.h"

CUresult gs_vmm_map(struct gs_range *range, uint32_t chunk)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                .id = range->device->ordinal};
    const CUmemAccessDesc plain = {.location = here,
                                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAccessDesc *access = range->own != NULL ? range->own->access : &plain;
    const size_t count = range->own != NULL ? range->own->access_count : 1;
    const CUdeviceptr address = gs_range_chunk_address(range, chunk);
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    CUresult result = gs_driver.cuMemMap(address, bytes, 0, range->chunks[chunk].handle, 0);

    if (result != CUDA_SUCCESS || count == 0)
        return result;
    result = gs_driver.cuMemSetAccess(address, bytes, access, count);
    if (result != CUDA_SUCCESS)
        gs_vmm_unmap(range, chunk);
    return result;
}

CUresult gs_vmm_unmap(struct gs_range *range, uint32_t chunk)
{
    const CUdeviceptr address = gs_range_chunk_address(range, chunk);
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    CUresult result = gs_driver.cuMemUnmap(address, bytes);

    /* once more: what stays mapped would be in the way of the next mapping here for ever */
    return result == CUDA_SUCCESS ? result : gs_driver.cuMemUnmap(address, bytes);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    const CUresult result = gs_driver.cuMemRelease(handle);

    return result == CUDA_SUCCESS ? result : gs_driver.cuMemRelease(handle);
}

CUresult gs_vmm_place(struct gs_range *range, uint32_t chunk)
{
    const CUmemAllocationProp plain = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = range->device->ordinal}};
    CUresult result =
        gs_driver.cuMemCreate(&range->chunks[chunk].handle, gs_range_chunk_bytes(range, chunk),
                              range->own != NULL ? &range->own->prop : &plain, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_vmm_map(range, chunk);
    if (result != CUDA_SUCCESS)
        release(range->chunks[chunk].handle);
    return result;
}

void gs_vmm_remove(struct gs_range *range, uint32_t chunk)
{
    const CUresult unmapped =
        gs_range_is_mapped(range) ? gs_vmm_unmap(range, chunk) : CUDA_SUCCESS;
    const CUresult released = release(range->chunks[chunk].handle);

    if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS)
        gs_log("unmapping %llu bytes at %#llx: %d, %d",
               (unsigned long long)gs_range_chunk_bytes(range, chunk),
               (unsigned long long)gs_range_chunk_address(range, chunk), unmapped, released);
}
