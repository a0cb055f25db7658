/* SPDX-License-Identifier: Apache-2.0
 *
 * over.c: how much a program may have beyond the card, and host memory for its chunks there.
 *
 * State: what `auto` came to, which is found out once. Any thread.
 */
#include "runtime/range/over.h"
#include "runtime/range/host.h"
#include "runtime/range/host_memory.h"
#include "runtime/range/vmm.h"

#define ATTEMPTS 100 /* 1 s in all: the daemon answers within milliseconds */
#define PAUSE_NS 10000000u
#define MOST     (1ull << 50) /* so that sums with it cannot overflow */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t half_of_host;

static void look_at_host(void)
{
    const uint64_t available = gs_host_available();

    half_of_host = available == UINT64_MAX ? UINT64_MAX : available / 2;
}

/* 0: overcommit is off */
static uint64_t chosen_limit(const struct gs_device *device)
{
    if (device->managed)
        return 0;
    return gs_runtime.config.overcommit_set
               ? gs_runtime.config.overcommit
               : atomic_load_explicit(&device->target.overcommit, memory_order_relaxed);
}

bool gs_over_is_on(const struct gs_device *device)
{
    return chosen_limit(device) != 0;
}

uint64_t gs_over_limit(const struct gs_device *device)
{
    const uint64_t limit = chosen_limit(device);

    if (limit != GS_OVERCOMMIT_AUTO)
        return limit < MOST ? limit : MOST;
    pthread_once(&once, look_at_host);
    return half_of_host < device->total ? half_of_host : device->total;
}

uint64_t gs_over_chunk_bytes(const struct gs_device *device, uint64_t otherwise)
{
    const uint64_t grain = gs_runtime.config.grain;

    return gs_over_limit(device) == 0 || grain > otherwise || grain % device->granule != 0
               ? otherwise
               : grain;
}

bool gs_over_suits(const struct gs_range *range)
{
    return range->theirs == NULL &&
           (range->own == NULL ||
            range->own->prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
}

/* The daemon raises the budget when it hears of the need. */
static bool claim_memory(uint64_t bytes)
{
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        const enum gs_host_claim claim = gs_host_claim(bytes);

        if (claim != GS_HOST_LATER)
            return claim == GS_HOST_CLAIMED;
        gs_worker_wake();
        gs_pause(PAUSE_NS);
    }
    gs_host_give_up_claim();
    return false;
}

bool gs_over_make(struct gs_range *range, uint32_t index)
{
    CUresult result = gs_vmm_create_on_host(range, index);

    if (result == CUDA_SUCCESS && gs_range_is_mapped(range)) {
        result = gs_vmm_map(range, index);
        if (result != CUDA_SUCCESS)
            gs_vmm_release(range->chunks[index].handle);
    }
    if (result == CUDA_SUCCESS)
        return true;
    range->chunks[index].handle = 0;
    gs_log("%llu bytes beyond the card: CUresult %d",
           (unsigned long long)gs_range_chunk_bytes(range, index), result);
    return false;
}

/* without memory of its own yet */
#define IS_EMPTY(chunk) ((chunk)->state == GS_CHUNK_OVER && (chunk)->handle == 0)

/* The daemon is asked once for all of it: each answer takes milliseconds. */
bool gs_over_fill(struct gs_range *range)
{
    const uint64_t wanted = GS_CHUNK_BYTES_IF(range, IS_EMPTY(chunk));
    const bool claimed = wanted == 0 || claim_memory(wanted);
    bool filled = claimed;

    if (!claimed)
        gs_log("no host memory for %llu bytes beyond the card", (unsigned long long)wanted);
    for (uint32_t i = 0; i < range->chunk_count && filled; i++)
        if (IS_EMPTY(&range->chunks[i]))
            filled = gs_over_make(range, i);
    if (filled)
        return true;
    if (claimed)
        gs_host_unclaim(GS_CHUNK_BYTES_IF(range, IS_EMPTY(chunk)));
    for (uint32_t i = 0; i < range->chunk_count; i++) /* what has none was never there */
        if (IS_EMPTY(&range->chunks[i]))
            range->chunks[i].state = GS_CHUNK_ABSENT;
    return false;
}
