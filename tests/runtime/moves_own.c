/* SPDX-License-Identifier: Apache-2.0
 *
 * moves_own.c: memory that moves.c maps and exports by itself. No state.
 */
#include "tests/runtime/moves.h"
#include "tests/runtime/check.h"

CUresult moves_map(struct moves_block *block)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemMap(block->device, block->bytes, 0, block->handle, 0);

    if (result == CUDA_SUCCESS)
        result = cuMemRelease(block->handle); /* the mapping keeps it */
    return result == CUDA_SUCCESS ? cuMemSetAccess(block->device, block->bytes, &access, 1)
                                  : result;
}

CUresult moves_unmap(struct moves_block *block)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the address is one */
    void *address = (void *)block->device;
    CUresult result = cuMemRetainAllocationHandle(&block->handle, address);

    return result == CUDA_SUCCESS ? cuMemUnmap(block->device, block->bytes) : result;
}

CUresult moves_map_exportable(struct moves_block *block)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUresult result = cuMemAddressReserve(&block->device, block->bytes, 0, 0, 0);

    if (result == CUDA_SUCCESS)
        result = cuMemCreate(&block->handle, block->bytes, &prop, 0);
    return result == CUDA_SUCCESS ? moves_map(block) : result;
}

/* needs no current context */
CUresult moves_export_bare(const struct moves_block *block)
{
    CUmemGenericAllocationHandle handle;
    CUcontext current;
    CUresult result;
    int fd;

    OK(cuCtxGetCurrent(&current));
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the address is one */
    OK(cuMemRetainAllocationHandle(&handle, (void *)block->device));
    OK(cuCtxSetCurrent(NULL));
    result =
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuCtxSetCurrent(current));
    return result;
}

CUresult moves_share(size_t mib)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, mib * MIB, &prop, 0);
    int fd;

    return result == CUDA_SUCCESS
               ? cuMemExportToShareableHandle(&fd, handle,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
               : result;
}
