/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.c: movable memory made of managed memory (CUDA driver API manual, "Unified Addressing"
 * and cuMemPrefetchAsync). A prefetch brings it to the device when the program may have it there,
 * and to the host when others need the room. It is slower than vmm.c (no hashes, no host memory
 * of ours, a wait for each chunk on the way in). For drivers without virtual memory management,
 * or GPUSHARE_MEMORY=managed.
 *
 * A driver makes room for pages by pushing out others, which is the thrashing that gpushare
 * avoids. So nothing is brought in for which the card has no room at that moment: that counts as
 * out of memory, as cuMemCreate would say.
 *
 * cuMemFree of managed memory waits for all work of the context. A range that the program has never
 * had is therefore not freed but kept for the next range of its size; of many, the oldest is freed.
 *
 * State: the bytes on their way in, of each device; the unused memory, under gs_memory_lock. Any
 * thread.
 */
#include "runtime/range/managed.h"

#include <stdlib.h>

#include "runtime/range/backend.h"

/* Ranges: a program that looks for the largest size that it gets asks for as many in vain. */
#define UNUSED_MOST 64

static struct unused {
    struct unused *next;
    CUcontext context; /* the memory ends with it */
    CUdeviceptr address;
    uint64_t bytes;
} * all_unused GS_ZERO_IN_CHILD;

/* Sends bytes at address to a device, or to the host (CU_DEVICE_CPU), and waits for them. It uses a
 * stream of its own, so that no capture of the program is touched. */
static CUresult prefetch_bytes(CUdevice ordinal, CUdeviceptr address, uint64_t bytes)
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

CUresult gs_managed_bring_in(struct gs_device *device, CUdeviceptr address, uint64_t bytes)
{
    /* bytes that other threads of this process are about to take count twice for a moment */
    const uint64_t claimed =
        atomic_fetch_add_explicit(&device->arriving, bytes, memory_order_seq_cst) + bytes;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    size_t left = 0, total;

    if (gs_driver.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && claimed <= left)
        result = prefetch_bytes(device->ordinal, address, bytes);
    else
        gs_log("managed memory: the device needs %llu bytes, %llu are free",
               (unsigned long long)claimed, (unsigned long long)left);
    atomic_fetch_sub_explicit(&device->arriving, bytes, memory_order_seq_cst);
    return result;
}

static CUresult place_chunk(struct gs_range *range, uint32_t chunk)
{
    return gs_managed_bring_in(range->device, gs_range_chunk_address(range, chunk),
                               gs_range_chunk_bytes(range, chunk));
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

/* The chunk has been sent, or its whole range is released next. */
static void remove_nothing(struct gs_range *range, uint32_t chunk)
{
    (void)range;
    (void)chunk;
}

/* Takes memory out that is unused; 0: of that context, or of that size, there is none. bytes 0: any. */
static CUdeviceptr find_unused(CUcontext context, uint64_t bytes)
{
    CUdeviceptr address = 0;
    struct unused **at, *found;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    at = &all_unused;
    while ((found = *at) != NULL &&
           (found->context != context || (bytes != 0 && found->bytes != bytes)))
        at = &found->next;
    if (found != NULL) {
        *at = found->next;
        address = found->address;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(found);
    return address;
}

static CUresult reserve_range(struct gs_range *range)
{
    range->node.base = find_unused(range->context, range->reserved);
    if (range->node.base != 0)
        return CUDA_SUCCESS;
    return gs_driver.cuMemAllocManaged((CUdeviceptr *)&range->node.base, range->reserved,
                                       CU_MEM_ATTACH_GLOBAL);
}

static void free_memory(CUcontext owner, CUdeviceptr address)
{
    const struct gs_context *context;

    /* the memory ended with its context, and may be another's by now */
    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle == owner) {
            gs_driver.cuMemFree_v2(address);
            return;
        }
}

static void give_back_range(struct gs_range *range)
{
    free_memory(range->context, range->node.base);
}

static void take_unused_range(struct gs_range *range, bool touched)
{
    struct unused *unused = malloc(sizeof *unused), *oldest = NULL, **at = &all_unused;
    unsigned count = 0;

    if (touched)
        prefetch_bytes(CU_DEVICE_CPU, range->node.base, range->reserved);
    if (unused == NULL)
        return; /* the driver frees it with its context */
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    *unused = (struct unused){all_unused, range->context, range->node.base, range->reserved};
    all_unused = unused;
    for (struct unused **each = at; *each != NULL; each = &(*each)->next, count++)
        at = each;
    if (count > UNUSED_MOST) {
        oldest = *at;
        *at = NULL;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (oldest != NULL)
        free_memory(oldest->context, oldest->address);
    free(oldest);
}

void gs_managed_context_ended(CUcontext context)
{
    while (find_unused(context, 0) != 0)
        continue;
}

const struct gs_backend gs_managed_backend = {.reserve = reserve_range,
                                              .give_back = give_back_range,
                                              .take_unused = take_unused_range,
                                              .place = place_chunk,
                                              .place_all = place_all_chunks,
                                              .remove = remove_nothing,
                                              .send = send_chunk};
