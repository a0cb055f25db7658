/* SPDX-License-Identifier: Apache-2.0
 *
 * free.c: what cuMemFree and cuMemFreeAsync mean, and what becomes of memory that nobody uses
 * any more. What has to wait for that: dispose.c.
 *
 * No state. Any thread.
 */
#include <stdlib.h>

#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/idle.h"
#include "runtime/lock.h"
#include "runtime/memory.h"
#include "runtime/order.h"
#include "runtime/pool.h"
#include "runtime/slab.h"

bool gs_memory_is_captured(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_CAPTURED_EVENT;
}

/* The failure of a single call is no reason to take memory away under a kernel; a broken
 * context fails always. */
CUresult gs_memory_synchronize(CUcontext context)
{
    CUcontext current = NULL, popped;
    CUresult result = CUDA_SUCCESS;

    if (!gs_capture_hold_off()) /* it would invalidate the capture */
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    gs_driver.cuCtxGetCurrent(&current);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        const bool other = current != context && context != NULL;

        result = other ? gs_context_push(context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            continue;
        result = gs_driver.cuCtxSynchronize();
        if (other)
            gs_driver.cuCtxPopCurrent_v2(&popped);
        if (result == CUDA_SUCCESS || gs_memory_is_captured(result))
            break;
    }
    gs_capture_release();
    if (result != CUDA_SUCCESS)
        gs_context_failed(context, result);
    return result;
}

/* cuMemFree waits for all that may use the memory; in stream order, for want of an event, for
 * the stream. */
static CUresult wait_for_use(const struct gs_range *range, const struct gs_position *position)
{
    return position != NULL ? gs_order_wait(position) : gs_memory_synchronize(range->context);
}

/* --- what nobody uses any more --- */

void gs_memory_keep_or_drop(struct gs_range *range)
{
    bool kept;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    kept = gs_idle_put(range);
    if (!kept)
        gs_pool_leave(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!kept)
        gs_range_dispose(range);
    gs_client_wake_soon();
}

/* Out of the accounts and the tree, at rest inside the gate. */
static void retire(struct gs_range *range)
{
    gs_range_forget_contents(range);
    gs_memory_keep_or_drop(range);
}

void gs_memory_put_piece(struct gs_range *range, CUdeviceptr address)
{
    unsigned pass;
    const bool quiet = gs_gate_try_enter(&pass);
    bool empty;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    empty = gs_slab_put(range, address);
    if (empty) {
        gs_range_end_life(range, GS_RANGE_DISPOSING);
        if (!quiet) {
            gs_pool_leave(range);
            gs_memory_bury(range);
        }
        range->at_rest = true;
        gs_slab_free(range->slab);
        range->slab = NULL;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (empty && quiet)
        retire(range);
    if (quiet)
        gs_gate_leave(pass);
    if (empty && !quiet)
        gs_client_wake();
}

/* --- freeing --- */

/* a piece of a slab: reused only after the GPU is done with it, or behind that */
static CUresult free_piece(struct gs_range *range, CUdeviceptr address, uint64_t bytes,
                           const struct gs_position *position)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

    if (position != NULL &&
        gs_order_put(range, address, gs_slab_piece_bytes(bytes), position)) {
        gs_client_wake_soon();
        return CUDA_SUCCESS;
    }
    if (!gs_capture_active())
        result = wait_for_use(range, position);
    if (gs_memory_is_captured(result)) {
        gs_memory_put_later(range, address);
        gs_client_wake();
        return CUDA_SUCCESS;
    }
    gs_memory_put_piece(range, address);
    return result;
}

/* Inside the gate, where nothing moves. False: it has to be done later. */
static bool free_in_place(struct gs_range *range, const struct gs_position *position,
                          CUresult *result)
{
    if (position != NULL && gs_range_is_whole(range) && range->own == NULL && !range->pinned) {
        gs_range_forget_contents(range);
        if (gs_order_put(range, 0, range->reserved, position))
            return true;
    }
    if (gs_capture_active())
        return false;
    *result = wait_for_use(range, position);
    if (gs_memory_is_captured(*result)) {
        *result = CUDA_SUCCESS;
        return false;
    }
    retire(range);
    return true;
}

/* A whole range, taken out of the tree by the caller (life is DISPOSING). */
static CUresult free_range(struct gs_range *range, const struct gs_position *position)
{
    CUresult result = CUDA_SUCCESS;
    CUevent after = NULL;
    bool done = false;
    unsigned pass;

    if (gs_gate_try_enter(&pass)) {
        done = free_in_place(range, position, &result);
        gs_gate_leave(pass);
    }
    if (done) {
        gs_client_wake_soon();
        return result;
    }
    /* closed (nothing runs), or captured: the client thread does it */
    if (position != NULL)
        after = gs_order_mark(position);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range->after = after;
    if (after != NULL) /* with which it ends */
        range->context = position->context;
    gs_memory_bury(range);
    gs_pool_leave(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_client_wake();
    return result;
}

CUresult gs_memory_free(CUdeviceptr address, const struct gs_position *position, bool *ours)
{
    CUresult result = CUDA_SUCCESS;
    struct gs_range *range;
    CUdeviceptr base;
    uint64_t bytes;
    bool piece;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    *ours = range != NULL || gs_range_is_near(address);
    piece = range != NULL && range->slab != NULL;
    bytes = range != NULL ? range->node.size : 0;
    if (piece)
        gs_slab_piece(range, address, &base, &bytes);
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
