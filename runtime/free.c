/* SPDX-License-Identifier: Apache-2.0
 *
 * free.c: what cuMemFree and cuMemFreeAsync mean, and what becomes of memory that nobody uses
 * any more.
 *
 * State: the list of slab pieces that were freed during a capture and whose reuse must wait
 * (under gs_memory_lock). Any thread.
 */
#include <stdlib.h>

#include "lockd/wire.h"
#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/graph_memory.h"
#include "runtime/idle.h"
#include "runtime/lock.h"
#include "runtime/memory.h"
#include "runtime/order.h"
#include "runtime/pool.h"
#include "runtime/runtime.h"
#include "runtime/slab.h"
#include "runtime/virtual.h"

/* pieces of slabs that were freed during a capture; under gs_memory_lock */
static struct late_piece {
    struct late_piece *next;
    struct gs_range *range;
    CUdeviceptr address;
} * late_pieces;

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

        result = other ? gs_driver.cuCtxPushCurrent_v2(context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            continue;
        result = gs_driver.cuCtxSynchronize();
        if (other)
            gs_driver.cuCtxPopCurrent_v2(&popped);
        if (result == CUDA_SUCCESS || gs_memory_is_captured(result))
            break;
    }
    gs_capture_release();
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
        gs_range_end_life(range, quiet ? GS_RANGE_DISPOSING : GS_RANGE_DEAD);
        if (!quiet)
            gs_pool_leave(range);
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

/* Freed during a capture: not handed out before the client thread could wait for its use.
 * Without memory for the note the piece stays retired until its context ends. */
static void put_later(struct gs_range *range, CUdeviceptr address)
{
    struct late_piece *piece = malloc(sizeof *piece);

    if (piece == NULL)
        return;
    *piece = (struct late_piece){.range = range, .address = address};
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    piece->next = late_pieces;
    late_pieces = piece;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
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
        put_later(range, address);
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
    range->life = GS_RANGE_DEAD;
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
    *ours = range != NULL || gs_range_was_at(address);
    piece = range != NULL && range->slab != NULL;
    bytes = range != NULL ? range->node.size : 0;
    if (piece)
        gs_slab_piece(range, address, &base, &bytes);
    if (piece ? !gs_slab_retire(range, address)
              : range != NULL && (range->node.base != address || range->own != NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (range != NULL) {
        gs_pool_unuse(range->pool, bytes);
        if (!piece)
            gs_range_end_life(range, GS_RANGE_DISPOSING);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL || result != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return piece ? free_piece(range, address, bytes, position) : free_range(range, position);
}

/* --- later --- */

#define BATCH 64

/* Takes up to BATCH ranges for disposal: dead ones, or (context != NULL) the live and dead ones
 * of that context. */
static unsigned collect(CUcontext context, struct gs_range **batch)
{
    struct gs_device *device;
    unsigned count = 0;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL && count < BATCH;
             range = range->next) {
            if (range->life != GS_RANGE_DEAD &&
                (range->life != GS_RANGE_LIVE || context == NULL))
                continue;
            if (context != NULL && range->context != context)
                continue;
            if (range->life == GS_RANGE_LIVE) {
                gs_pool_unuse(range->pool, range->slab != NULL ? gs_slab_asked(range->slab)
                                                               : range->node.size);
                gs_range_end_life(range, GS_RANGE_DISPOSING);
            }
            gs_pool_leave(range);
            range->life = GS_RANGE_DISPOSING;
            batch[count++] = range;
        }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return count;
}

static void forget_late_pieces(CUcontext context)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (struct late_piece **at = &late_pieces, *piece; (piece = *at) != NULL;) {
        if (piece->range->context == context) {
            *at = piece->next;
            free(piece);
        } else {
            at = &piece->next;
        }
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

void gs_memory_context_ended(CUcontext context)
{
    struct gs_range *batch[BATCH];
    unsigned count;

    gs_order_context_ended(context);
    forget_late_pieces(context);
    gs_memory_mend();
    while ((count = collect(context, batch)) != 0)
        for (unsigned i = 0; i < count; i++) {
            batch[i]->after = NULL; /* events end with their context */
            gs_range_dispose(batch[i]);
        }
    gs_client_wake();
}

/* The event's context must be current to ask (this thread has none). No answer is no yes. */
static bool has_passed(const struct gs_range *range)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    CUcontext popped;

    if (gs_driver.cuCtxPushCurrent_v2(range->context) != CUDA_SUCCESS)
        return false;
    result = gs_driver.cuEventQuery(range->after);
    gs_driver.cuCtxPopCurrent_v2(&popped);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return result == CUDA_SUCCESS;
    return !gs_memory_is_captured(
        gs_memory_synchronize(range->context)); /* a broken context uses nothing any more */
}

static bool may_dispose(const struct gs_range *range, bool moving)
{
    if (moving || range->at_rest)
        return true; /* everything submitted has finished, or all that used it */
    if (range->after != NULL)
        return has_passed(range);
    if (gs_capture_active())
        return false;
    /* freed while the gate was shut: other work may still be under way */
    return !gs_memory_is_captured(gs_memory_synchronize(range->context));
}

/* True while some of them still wait for the end of a capture. */
static bool put_late_pieces(bool moving)
{
    struct late_piece *piece, *next;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    piece = late_pieces;
    late_pieces = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (; piece != NULL; piece = next) {
        next = piece->next;
        if (!moving && (gs_capture_active() ||
                        gs_memory_is_captured(gs_memory_synchronize(piece->range->context))))
            put_later(piece->range, piece->address);
        else
            gs_memory_put_piece(piece->range, piece->address);
        free(piece);
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    piece = late_pieces;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return piece != NULL;
}

bool gs_memory_dispose_dead(bool moving)
{
    struct gs_range *batch[BATCH];
    struct gs_device *device;
    bool waits = put_late_pieces(moving);
    unsigned count;

    waits |= gs_order_collect(moving);
    count = collect(NULL, batch);
    waits |= count == BATCH;
    for (unsigned i = 0; i < count; i++) {
        if (may_dispose(batch[i], moving)) {
            gs_range_dispose(batch[i]);
            continue;
        }
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        batch[i]->life = GS_RANGE_DEAD;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        waits = true;
    }
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        gs_idle_trim(device, gs_now());
        gs_graph_memory_look(device, moving && (gs_device_flags(device) & GS_TARGET_RUN) == 0,
                             gs_now());
    }
    return waits;
}

void gs_memory_after_fork(void)
{
    gs_ranges_after_fork();
    late_pieces = NULL;
    gs_slabs_after_fork();
    gs_virtual_after_fork();
    gs_order_after_fork();
    gs_pools_after_fork();
}
