/* SPDX-License-Identifier: Apache-2.0
 *
 * remake.c: copies chunks, on the device, to memory that other processes can be given. No state.
 *
 * A failed step leaves the chunk as it was: its old memory is released only when the new memory
 * has the bytes and is mapped.
 */
#include "runtime/swap/remake.h"
#include "runtime/range/vmm.h"
#include "runtime/swap/swap.h"

#define ROOM_STEPS 8 /* chunks that leave to make room for one */

static bool is_sendable(const struct gs_chunk *chunk)
{
    return chunk->sendable || chunk->descriptor != 0;
}

bool gs_remake_is_done(const struct gs_range *range)
{
    bool done = true;

    for (uint32_t i = 0; i < range->chunk_count; i++)
        done &= is_sendable(&range->chunks[i]);
    return done;
}

/* Maps the new memory at the chunk's address in place of the old. */
static CUresult exchange_chunk(struct gs_range *range, uint32_t index,
                               CUmemGenericAllocationHandle fresh)
{
    struct gs_chunk *chunk = &range->chunks[index];
    const CUmemGenericAllocationHandle old = chunk->handle;
    CUresult result = gs_vmm_unmap(range, index);

    if (result != CUDA_SUCCESS)
        return result;
    chunk->handle = fresh;
    result = gs_vmm_map(range, index);
    if (result != CUDA_SUCCESS) {
        chunk->handle = old;
        gs_vmm_map(range, index);
        return result;
    }
    gs_vmm_release(old);
    chunk->sendable = true;
    chunk->network = false;
    return CUDA_SUCCESS;
}

static CUresult remake_chunk(struct gs_range *range, uint32_t chunk)
{
    const CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = range->device->ordinal}};
    CUmemGenericAllocationHandle fresh;
    uint64_t ns;
    CUresult result;

    if (!gs_context_enter(range->device))
        return CUDA_ERROR_INVALID_CONTEXT;
    result = gs_driver.cuMemCreate(&fresh, gs_range_chunk_bytes(range, chunk), &wanted, 0);
    if (result == CUDA_SUCCESS) {
        result = gs_vmm_copy(range, chunk, fresh, &ns);
        if (result == CUDA_SUCCESS)
            result = exchange_chunk(range, chunk, fresh);
        if (result != CUDA_SUCCESS)
            gs_vmm_release(fresh);
    }
    gs_context_pop();
    return result;
}

CUresult gs_remake_next(struct gs_range *range)
{
    CUresult result;
    uint32_t chunk = 0;

    while (chunk < range->chunk_count && is_sendable(&range->chunks[chunk]))
        chunk++;
    if (chunk == range->chunk_count)
        return CUDA_SUCCESS;
    result = remake_chunk(range, chunk);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        /* chunks leave to make room; they come back later without help from here */
        for (unsigned i = 0; i < ROOM_STEPS; i++)
            if (gs_swap_out(range->device, gs_range_chunk_bytes(range, chunk)) != GS_SWAP_MOVED)
                break;
        gs_swap_settle();
        /* now, before other chunks come in; if this chunk itself has left, it comes back as it
         * should be */
        if (range->chunks[chunk].state == GS_CHUNK_RESIDENT)
            result = remake_chunk(range, chunk);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        gs_log("memory at %#llx cannot be made anew: CUresult %d",
               (unsigned long long)gs_range_chunk_address(range, chunk), result);
    return result;
}
