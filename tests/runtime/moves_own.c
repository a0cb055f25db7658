/* SPDX-License-Identifier: Apache-2.0
 *
 * moves_own.c: memory that moves.c maps and exports by itself. No state.
 */
#include "tests/runtime/moves.h"

#include <unistd.h>

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

CUresult moves_set_rights(const struct moves_block *block, unsigned flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = (CUmemAccess_flags)flags};

    return cuMemSetAccess(block->device, block->bytes, &access, 1);
}

/* A byte goes through a pipe and back. Device addresses of the simulation are the host's, too. */
static unsigned rights_at(CUdeviceptr address, const int ends[2])
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the address is one */
    void *byte = (void *)address;
    char spare;

    if (write(ends[1], byte, 1) != 1)
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (read(ends[0], byte, 1) == 1)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(read(ends[0], &spare, 1) == 1);
    return CU_MEM_ACCESS_FLAGS_PROT_READ;
}

CUresult moves_has_rights(const struct moves_block *block, unsigned flags)
{
    CUresult result = CUDA_SUCCESS;
    int ends[2];

    CHECK(pipe(ends) == 0);
    for (size_t at = 0; at < block->bytes; at += MIB)
        if (rights_at(block->device + at, ends) != flags)
            result = CUDA_ERROR_UNKNOWN;
    close(ends[0]);
    close(ends[1]);
    return result;
}

CUresult moves_unmap(struct moves_block *block)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the address is one */
    void *address = (void *)block->device;
    CUresult result = cuMemRetainAllocationHandle(&block->handle, address);

    return result == CUDA_SUCCESS ? cuMemUnmap(block->device, block->bytes) : result;
}

CUresult moves_map_exportable(struct moves_block *block, bool for_network)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .allocFlags = {.gpuDirectRDMACapable = for_network},
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUresult result = cuMemAddressReserve(&block->device, block->bytes, 0, 0, 0);

    if (result == CUDA_SUCCESS)
        result = cuMemCreate(&block->handle, block->bytes, &prop, 0);
    return result == CUDA_SUCCESS ? moves_map(block) : result;
}

CUresult moves_reaches_network(const struct moves_block *block)
{
    bool reaches = false;
    const CUresult result = cuPointerGetAttribute(
        &reaches, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, block->device);

    return result == CUDA_SUCCESS && !reaches ? CUDA_ERROR_NOT_SUPPORTED : result;
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
