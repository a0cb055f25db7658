/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.c: creates, maps, unmaps and releases the physical memory of chunks. No state.
 */
#include "runtime/range/vmm.h"
#include "runtime/range/backend.h"
#include "runtime/range/edge.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/range/shares.h"

static CUmemAccessDesc access_from(CUdevice ordinal)
{
    return (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static void add_access(CUmemAccessDesc *access, size_t *count, const CUmemAccessDesc *more)
{
    for (size_t i = 0; i < *count; i++)
        if (access[i].location.id == more->location.id)
            return;
    access[(*count)++] = *more;
}

/* The access rights of cuMemAlloc's memory: for its own device, and for devices whose contexts
 * were given peer access; for a pool's memory also those that the pool was opened to. */
static size_t plain_access(const struct gs_range *range, CUmemAccessDesc *access)
{
    const struct gs_device *device = range->device;
    size_t count = 1;

    access[0] = access_from(device->ordinal);
    GS_HOLD_MEMORY;
    for (unsigned i = 0; i < device->peers.count; i++)
        access[count++] = access_from(device->peers.ordinals[i]);
    for (unsigned i = 0; range->pool != NULL && i < range->pool->peer_count; i++)
        add_access(access, &count, &range->pool->peers[i]);
    return count;
}

CUresult gs_vmm_map(struct gs_range *range, uint32_t chunk)
{
    CUmemAccessDesc plain[2 * GS_MAX_PEERS + 1];
    const CUmemAccessDesc *access = range->own != NULL ? range->own->access : plain;
    const size_t count =
        range->own != NULL ? range->own->access_count : plain_access(range, plain);
    const CUdeviceptr address = gs_range_chunk_address(range, chunk);
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    const CUmemGenericAllocationHandle handle = range->chunks[chunk].handle;
    CUresult result = gs_driver.cuMemMap(address, bytes, 0, handle, 0);

    if (result != CUDA_SUCCESS && gs_vmm_unmap(range, chunk) == CUDA_SUCCESS)
        result = gs_driver.cuMemMap(address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS || count == 0)
        return result;
    result = gs_driver.cuMemSetAccess(address, bytes, access, count);
    if (result != CUDA_SUCCESS)
        gs_vmm_unmap(range, chunk);
    else if (range->own == NULL && chunk == 0)
        gs_edge_map(range);
    return result;
}

/* The rights that the program has given the range's own device; all of them for cuMemAlloc's. */
static CUmemAccessDesc own_access(const struct gs_range *range)
{
    CUmemAccessDesc access = access_from(range->device->ordinal);

    if (range->own == NULL)
        return access;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    GS_HOLD_MEMORY;
    for (unsigned i = 0; i < range->own->access_count; i++)
        if (range->own->access[i].location.id == range->device->ordinal)
            access = range->own->access[i];
    return access;
}

CUresult gs_vmm_open(const struct gs_range *range, uint32_t chunk)
{
    const CUmemAccessDesc all = access_from(range->device->ordinal);

    return own_access(range).flags == all.flags
               ? CUDA_SUCCESS
               : gs_driver.cuMemSetAccess(gs_range_chunk_address(range, chunk),
                                          gs_range_chunk_bytes(range, chunk), &all, 1);
}

void gs_vmm_close(const struct gs_range *range, uint32_t chunk)
{
    const CUmemAccessDesc access = own_access(range);
    CUresult result;

    if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return;
    result = GS_TRY_AGAIN(gs_driver.cuMemSetAccess(
        gs_range_chunk_address(range, chunk), gs_range_chunk_bytes(range, chunk), &access, 1));
    if (result != CUDA_SUCCESS)
        gs_log("rights at %#llx: CUresult %d",
               (unsigned long long)gs_range_chunk_address(range, chunk), result);
}

CUresult gs_vmm_unmap_at(CUdeviceptr address, uint64_t bytes)
{
    /* again: a mapping that stays would be in the way of the next mapping for ever */
    return GS_TRY_AGAIN(gs_driver.cuMemUnmap(address, bytes));
}

CUresult gs_vmm_unmap(struct gs_range *range, uint32_t chunk)
{
    return gs_vmm_unmap_at(gs_range_chunk_address(range, chunk),
                           gs_range_chunk_bytes(range, chunk));
}

CUresult gs_vmm_release(CUmemGenericAllocationHandle handle)
{
    return GS_TRY_AGAIN(gs_driver.cuMemRelease(handle));
}

static CUmemAllocationProp plain_memory(const struct gs_device *device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
}

/* Programs of which others have opened memory will have more of it opened: it need not be made
 * anew then, for which they would have to stop. */
static bool may_be_opened(const struct gs_range *range)
{
    return gs_shares_begun() && range->own == NULL && range->theirs == NULL &&
           range->pool == NULL;
}

/* Makes memory of which descriptors can be made, if that is useful. If not, or if the driver has
 * no such memory, makes plain memory. */
static CUresult create_chunk(struct gs_range *range, uint32_t index, CUmemAllocationProp wanted,
                             bool sendable)
{
    struct gs_chunk *chunk = &range->chunks[index];
    const uint64_t bytes = gs_range_chunk_bytes(range, index);
    const CUmemAllocationHandleType types = wanted.requestedHandleTypes;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    chunk->sendable = sendable;
    chunk->network = wanted.allocFlags.gpuDirectRDMACapable != 0;
    if (chunk->sendable) {
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        result = gs_driver.cuMemCreate(&chunk->handle, bytes, &wanted, 0);
        if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY)
            return result;
        chunk->sendable = false;
        wanted.requestedHandleTypes = types;
    }
    return gs_driver.cuMemCreate(&chunk->handle, bytes, &wanted, 0);
}

CUresult gs_vmm_create(struct gs_range *range, uint32_t chunk)
{
    return create_chunk(
        range, chunk, range->own != NULL ? range->own->prop : plain_memory(range->device),
        range->exports != NULL || gs_handover_is_wanted(range, chunk) || may_be_opened(range));
}

CUresult gs_vmm_create_on_host(struct gs_range *range, uint32_t chunk)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};

    if (gs_driver.cuDeviceGetAttribute(&wanted.location.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                       range->device->ordinal) != CUDA_SUCCESS ||
        wanted.location.id < 0)
        wanted.location.id = 0;
    range->chunks[chunk].sendable = range->chunks[chunk].network = false;
    return gs_driver.cuMemCreate(&range->chunks[chunk].handle,
                                 gs_range_chunk_bytes(range, chunk), &wanted, 0);
}

static CUresult place_chunk(struct gs_range *range, uint32_t chunk)
{
    CUresult result = gs_vmm_create(range, chunk);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_vmm_map(range, chunk);
    if (result != CUDA_SUCCESS)
        gs_vmm_release(range->chunks[chunk].handle);
    return result;
}

/* maps memory for one chunk at its address, without access rights */
static bool put_in_place(struct gs_range *range, uint32_t chunk)
{
    const CUmemGenericAllocationHandle *handle = &range->chunks[chunk].handle;

    if (create_chunk(range, chunk, plain_memory(range->device), may_be_opened(range)) !=
        CUDA_SUCCESS)
        return false;
    if (gs_driver.cuMemMap(gs_range_chunk_address(range, chunk),
                           gs_range_chunk_bytes(range, chunk), 0, *handle, 0) == CUDA_SUCCESS)
        return true;
    gs_vmm_release(*handle);
    return false;
}

static void take_away_chunk(struct gs_range *range, uint32_t chunk)
{
    const CUresult unmapped = gs_range_is_mapped(range) && !range->chunks[chunk].adrift
                                  ? gs_vmm_unmap(range, chunk)
                                  : CUDA_SUCCESS;
    const CUresult released = gs_vmm_release(range->chunks[chunk].handle);

    if (range->chunks[chunk].state == GS_CHUNK_OVER)
        gs_host_unclaim(gs_range_chunk_bytes(range, chunk));
    else
        gs_handover_forget(&range->chunks[chunk]);
    if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS)
        gs_log("unmapping %llu bytes at %#llx: %d, %d",
               (unsigned long long)gs_range_chunk_bytes(range, chunk),
               (unsigned long long)gs_range_chunk_address(range, chunk), unmapped, released);
}

static uint32_t place_all_chunks(struct gs_range *range)
{
    CUmemAccessDesc access[2 * GS_MAX_PEERS + 1];
    const size_t count = plain_access(range, access);
    uint32_t placed = 0;
    uint64_t bytes;

    while (placed < range->chunk_count && put_in_place(range, placed))
        placed++;
    bytes = placed < range->chunk_count ? placed * range->chunk_bytes : range->reserved;
    if (placed == 0)
        return 0;
    if (gs_driver.cuMemSetAccess(range->node.base, bytes, access, count) == CUDA_SUCCESS) {
        gs_edge_map(range);
        return placed;
    }
    while (placed > 0)
        take_away_chunk(range, --placed);
    return 0;
}

static void take_unused_range(struct gs_range *range, bool touched)
{
    (void)touched;
    gs_edge_give_back(range);
}

CUresult gs_vmm_copy(const struct gs_range *range, uint32_t chunk,
                     CUmemGenericAllocationHandle to, uint64_t *ns)
{
    const CUmemAccessDesc access = access_from(range->device->ordinal);
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    CUdeviceptr there = 0;
    CUresult result = gs_driver.cuMemAddressReserve(&there, bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_driver.cuMemMap(there, bytes, 0, to, 0);
    if (result == CUDA_SUCCESS) {
        result = gs_driver.cuMemSetAccess(there, bytes, &access, 1);
        *ns = gs_now();
        if (result == CUDA_SUCCESS)
            result = gs_vmm_open(range, chunk);
        if (result == CUDA_SUCCESS)
            result =
                gs_driver.cuMemcpyDtoD_v2(there, gs_range_chunk_address(range, chunk), bytes);
        if (result == CUDA_SUCCESS)
            result = gs_driver.cuCtxSynchronize(); /* the copy is asynchronous */
        gs_vmm_close(range, chunk);
        *ns = gs_now() - *ns;
        gs_vmm_unmap_at(there, bytes);
    }
    gs_driver.cuMemAddressFree(there, bytes);
    return result;
}

const struct gs_backend gs_vmm_backend = {.reserve = gs_edge_reserve,
                                          .give_back = gs_edge_give_back,
                                          .take_unused = take_unused_range,
                                          .place = place_chunk,
                                          .place_all = place_all_chunks,
                                          .remove = take_away_chunk};
