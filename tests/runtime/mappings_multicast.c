/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings_multicast.c: cases of `mappings` about tile pools and multicast objects. One thread.
 */
#include "tests/runtime/mappings.h"

static handle_type make_multicast(size_t bytes)
{
    const CUmulticastObjectProp prop = {.numDevices = 1, .size = bytes};
    handle_type object = 0;

    OK(cuMulticastCreate(&object, &prop));
    OK(cuMulticastAddDevice(object, 0));
    return object;
}

/* What is written through the object is in the memory: bytes from offset on. */
static void expect_bound(handle_type object, handle_type memory, size_t total, size_t offset,
                         size_t bytes)
{
    const CUdeviceptr through = reserve_addresses(bytes), here = reserve_addresses(total);

    OK(cuMemMap(through, bytes, 0, object, 0));
    OK(cuMemSetAccess(through, bytes, &mappings_opened, 1));
    OK(cuMemMap(here, total, 0, memory, 0));
    OK(cuMemSetAccess(here, total, &mappings_opened, 1));
    OK(cuMemsetD8(here, 1, total));
    for (size_t done = 0; done < bytes; done += GRANULE)
        OK(cuMemsetD8(through + done, (unsigned char)(2 + done / GRANULE), GRANULE));
    OK(cuCtxSynchronize());
    expect_bytes(here, offset, 1);
    for (size_t done = 0; done < bytes; done += GRANULE)
        expect_bytes(here + offset + done, GRANULE, (unsigned char)(2 + done / GRANULE));
    expect_bytes(here + offset + bytes, total - offset - bytes, 1);
    OK(cuMemUnmap(through, bytes));
    OK(cuMemAddressFree(through, bytes));
    OK(cuMemUnmap(here, total));
    OK(cuMemAddressFree(here, total));
}

static void refuse_as_multicast(handle_type memory)
{
    GIVES(cuMulticastAddDevice(memory, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastUnbind(memory, 0, 0, GRANULE), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(memory, 0, memory, 0, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(memory, 0, 0, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Arrays want a tile pool, and a handle of ours is none of the driver's. */
void mappings_case_tiles(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL}};
    CUarrayMapInfo info[2] = {{.memOperationType = CU_MEM_OPERATION_TYPE_MAP},
                              {.memOperationType = CU_MEM_OPERATION_TYPE_MAP}};
    handle_type pool;

    begin_context();
    OK(cuMemCreate(&pool, GRANULE, &prop, 0));
    info[0].memHandle.memHandle = info[1].memHandle.memHandle = pool;
    GIVES(cuMemMapArrayAsync(info, 2, NULL), CUDA_ERROR_NOT_SUPPORTED); /* nothing simulated */
    info[1].memHandle.memHandle = create_memory(GRANULE, false);
    GIVES(cuMemMapArrayAsync(info, 2, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* memory of more than a chunk, bound by handle as a whole and in part, and unbound as bound */
void mappings_case_multicast(void)
{
    const size_t total = 70 * GRANULE;
    handle_type object, memory, other;

    begin_context();
    object = make_multicast(total);
    memory = create_memory(total, false);
    other = create_memory(GRANULE, false);
    refuse_as_multicast(memory);
    OK(cuMulticastBindMem(object, 0, memory, 0, total, 0));
    GIVES(cuMulticastBindMem(object, 69 * GRANULE, other, 0, GRANULE, 0),
          CUDA_ERROR_INVALID_VALUE);
    expect_bound(object, memory, total, 0, total);
    GIVES(cuMulticastUnbind(object, 0, 0, GRANULE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(object, 0, 0, total));
    GIVES(cuMulticastUnbind(object, 0, 0, total), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, memory, GRANULE, total, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, memory, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, GRANULE, memory, 0, total, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem(object, 0, memory, 30 * GRANULE, 36 * GRANULE, 0));
    expect_bound(object, memory, total, 30 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    OK(cuMulticastBindMem(object, 36 * GRANULE, other, 0, GRANULE, 0));
    OK(cuMulticastBindMem(object, 0, memory, 30 * GRANULE, 36 * GRANULE, 0));
    OK(cuMemRelease(object));
    OK(cuMemRelease(memory));
    OK(cuMemRelease(other));
}

/* by address: of the program's own memory in one mapping, in a second one and without access,
 * and of a pool's */
void mappings_case_multicast_address(void)
{
    const size_t total = 70 * GRANULE;
    handle_type object, memory;
    CUdeviceptr address, again, pooled, plain;
    CUstream stream;

    begin_context();
    object = make_multicast(total);
    memory = create_memory(total, false);
    address = reserve_addresses(total);
    OK(cuMemMap(address, total, 0, memory, 0));
    OK(cuMulticastBindAddr(object, 0, address + 30 * GRANULE, 36 * GRANULE, 0));
    GIVES(
        cuMulticastBindAddr(object, 36 * GRANULE, address + 40 * GRANULE, 34 * GRANULE + 1, 0),
        CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, address + 60 * GRANULE, 11 * GRANULE, 0),
          CUDA_ERROR_INVALID_VALUE);
    expect_bound(object, memory, total, 30 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    again = reserve_addresses(total);
    OK(cuMemMap(again, total, 0, memory, 0));
    OK(cuMulticastBindAddr(object, 0, again + 29 * GRANULE, 36 * GRANULE, 0));
    expect_bound(object, memory, total, 29 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&pooled, total, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMulticastBindAddr(object, 0, pooled, total, 0));
    OK(cuMulticastUnbind(object, 0, 0, total));
    OK(cuMemAlloc(&plain, 2 * GRANULE));
    GIVES(cuMulticastBindAddr(object, 0, plain, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
}
