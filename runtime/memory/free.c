/* SPDX-License-Identifier: Apache-2.0
 *
 * free.c: cuMemFree and cuMemFreeAsync on memory of ours, until nothing uses it any more.
 * retire.c goes on from there.
 *
 * No state. Any thread.
 */
#include "runtime/memory/free.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/exports.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/stream_order.h"
#include "runtime/range/program_managed.h"
#include "runtime/range/slab.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/retire.h"
#include "runtime/memory/stream_position.h"

/* cuMemFree waits for everything that may use the memory, and for the current context. A free in
 * stream order waits for the stream if there is no event. */
static CUresult wait_for_use(const struct gs_range *range,
                             const struct gs_stream_position *position)
{
    CUcontext current = NULL;
    CUresult result;

    if (position != NULL)
        return gs_stream_position_wait(position);
    result = gs_synchronize_context(range->context);
    if (range->pool != NULL && !gs_capture_forbids(result))
        result = CUDA_SUCCESS; /* of the context, and to the driver it has none */
    if (result == CUDA_SUCCESS && gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current != NULL && gs_context_home(current) != range->context)
        result = gs_synchronize_context(current);
    return result;
}

/* Frees a piece of a slab: it is reused only after the GPU has finished with it, or behind that
 * work. */
static CUresult free_piece(struct gs_range *range, CUdeviceptr address, uint64_t bytes,
                           const struct gs_stream_position *position)
{
    CUresult result;

    if (position != NULL &&
        gs_stream_order_put(range, address, gs_slab_piece_bytes(bytes), position)) {
        gs_worker_wake_soon();
        return CUDA_SUCCESS;
    }
    result = wait_for_use(range, position);
    if (gs_capture_forbids(result)) {
        gs_retire_piece_later(range, address);
        gs_worker_wake();
        return CUDA_SUCCESS;
    }
    gs_retire_piece(range, address);
    return result;
}

/* Inside the gate, where nothing moves. False: it must be done later. Memory beyond the card is
 * not kept for the next allocation. */
static bool free_in_place(struct gs_range *range, const struct gs_stream_position *position,
                          CUresult *result)
{
    if (position != NULL && gs_range_is_whole(range) && range->own == NULL &&
        range->theirs == NULL && !range->pinned && range->over == 0) {
        gs_range_forget_contents(range);
        if (gs_stream_order_put(range, 0, range->reserved, position))
            return true;
    }
    if (position != NULL && (range->over != 0 || gs_capture_active()))
        return false;
    *result = wait_for_use(range, position);
    if (gs_capture_forbids(*result)) {
        *result = CUDA_SUCCESS;
        return false;
    }
    gs_retire(range);
    return true;
}

/* Frees a whole range that the caller has taken out of the tree (life is DISPOSING). The gate
 * closes before the submitted work has ended, so cuMemFree also waits while the gate is closed. */
static CUresult free_range(struct gs_range *range, const struct gs_stream_position *position)
{
    /* exported: the client thread may be at its chunks, and disposes of it */
    const bool exported = GS_WITH_MEMORY(range->exports != NULL);
    bool done = false, waited = false;
    CUresult result = CUDA_SUCCESS;
    CUevent after = NULL;
    unsigned pass;

    if (!exported && gs_gate_try_enter(&pass)) {
        done = free_in_place(range, position, &result);
        gs_gate_leave(pass);
    } else if (position == NULL) {
        result = wait_for_use(range, NULL);
        waited = result == CUDA_SUCCESS;
        if (gs_capture_forbids(result))
            result = CUDA_SUCCESS;
    }
    if (done) {
        gs_worker_wake_soon();
        return result;
    }
    /* left to the client thread */
    if (position != NULL)
        after = gs_stream_position_mark(position);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range->dead.after = after;
    range->dead.at_rest |= waited;
    if (after != NULL) /* the range ends with it */
        range->context = position->context;
    gs_retire_bury(range);
    gs_pool_leave(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_worker_wake();
    return result;
}

/* The error of the context that the memory was allocated in, if that has failed for good: the
 * driver frees nothing of it, whatever context is current, but memory of a pool. An address inside
 * is wrong in any case. */
static CUresult check_owner(CUdeviceptr address)
{
    struct gs_allocation allocation;

    if (!atomic_load_explicit(&gs_any_suspect, memory_order_relaxed) ||
        gs_memory_find(address, &allocation) != GS_MEMORY_LIVE || allocation.own ||
        allocation.base != address || allocation.context == NULL || allocation.pool != NULL)
        return CUDA_SUCCESS;
    return gs_context_check(allocation.context);
}

CUresult gs_memory_free(CUdeviceptr address, const struct gs_stream_position *position,
                        bool *ours)
{
    CUresult result = position == NULL ? check_owner(address) : CUDA_SUCCESS;
    struct gs_range *range;
    CUdeviceptr base;
    uint64_t bytes;
    bool piece;

    if (result != CUDA_SUCCESS) {
        *ours = true;
        return result;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    if (range != NULL && range->theirs != NULL && range->theirs->lent)
        range = NULL; /* the driver frees it, or refuses to */
    *ours = range != NULL || gs_range_is_near(address);
    piece = range != NULL && range->slab != NULL;
    bytes = range != NULL ? range->node.size : 0;
    if (piece)
        gs_slab_piece(range, address, &base, &bytes);
    if (range != NULL && range->exports != NULL && piece)
        gs_exports_end(range, address);
    if (piece ? !gs_slab_retire(range, address)
              : range != NULL && (range->node.base != address || range->own != NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (range != NULL) {
        gs_pool_unuse(range->pool, bytes);
        if (piece)
            atomic_fetch_add_explicit(&gs_memory_frees, 1, memory_order_release);
        else
            gs_range_end_life(range, GS_RANGE_DISPOSING);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL || result != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return piece ? free_piece(range, address, bytes, position) : free_range(range, position);
}
