/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.c: movable memory made of managed memory (CUDA driver API manual, "Unified
 * Addressing" and cuMemPrefetchAsync): on the device by a prefetch when the program may have it
 * there, on the host by one when others need the room. Slower than vmm.c (no hashes, no host
 * memory of ours, a wait for each chunk on the way in); for drivers without virtual memory
 * management, or GPUSHARE_MEMORY=managed.
 *
 * A driver makes room for pages by pushing out others, which is the thrashing that gpushare is
 * there to avoid, so nothing is brought in that the card has no room for at that moment: it
 * then counts as out of memory, as cuMemCreate would say. State: the bytes on their way in, of
 * each device; any thread.
 */
#include "runtime/range/backend.h"

#include <stdatomic.h>

#include "runtime/base/driver.h"
#include "runtime/base/log.h"
#include "runtime/range/chunk.h"
#include "runtime/base/uncancelled.h"

/* Claims bytes of the current device's free memory; bytes that others of this process are about
 * to take count twice for a moment. */
static bool claim_free_bytes(struct gs_device *device, uint64_t bytes)
{
    const uint64_t claimed =
        atomic_fetch_add_explicit(&device->arriving, bytes, memory_order_seq_cst) + bytes;
    size_t left = 0, total;

    if (gs_driver.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && claimed <= left)
        return true;
    atomic_fetch_sub_explicit(&device->arriving, bytes, memory_order_seq_cst);
    gs_log("managed memory: the device needs %llu bytes, %llu are free",
           (unsigned long long)claimed, (unsigned long long)left);
    return false;
}

/* Brings bytes at address in and waits for them; a stream of its own, so that no capture of the
 * program's is touched. */
static CUresult bring_in(CUdevice ordinal, CUdeviceptr address, uint64_t bytes)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    CUstream stream;
    CUresult result = gs_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_driver.cuMemPrefetchAsync(address, bytes, ordinal, stream);
    if (result == CUDA_SUCCESS)
        result = gs_driver.cuStreamSynchronize(stream);
    gs_driver.cuStreamDestroy_v2(stream);
    return result;
}

static CUresult place_chunk(struct gs_range *range, uint32_t chunk)
{
    struct gs_device *device = range->device;
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    CUresult result;

    if (!claim_free_bytes(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = bring_in(device->ordinal, gs_range_chunk_address(range, chunk), bytes);
    atomic_fetch_sub_explicit(&device->arriving, bytes, memory_order_seq_cst);
    return result;
}

static uint32_t place_all_chunks(struct gs_range *range)
{
    uint32_t placed = 0;

    while (placed < range->chunk_count && place_chunk(range, placed) == CUDA_SUCCESS)
        placed++;
    return placed;
}

static CUresult send_chunk(struct gs_range *range, uint32_t chunk, CUstream stream)
{
    return gs_driver.cuMemPrefetchAsync(gs_range_chunk_address(range, chunk),
                                        gs_range_chunk_bytes(range, chunk), CU_DEVICE_CPU,
                                        stream);
}

/* It has been sent, or all of it is given back next. */
static void remove_nothing(struct gs_range *range, uint32_t chunk)
{
    (void)range;
    (void)chunk;
}

static CUresult reserve_range(struct gs_range *range)
{
    return gs_driver.cuMemAllocManaged((CUdeviceptr *)&range->node.base, range->reserved,
                                       CU_MEM_ATTACH_GLOBAL);
}

static void give_back_range(struct gs_range *range)
{
    const struct gs_context *context;

    /* the memory of a context that has ended went with it, and may be another's by now */
    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle == range->context) {
            gs_driver.cuMemFree_v2(range->node.base);
            return;
        }
}

const struct gs_backend gs_managed_backend = {.reserve = reserve_range,
                                              .give_back = give_back_range,
                                              .place = place_chunk,
                                              .place_all = place_all_chunks,
                                              .remove = remove_nothing,
                                              .send = send_chunk};
