/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: what cuMemAlloc and cuMemFree mean, on top of ranges (range.h) and slabs (slab.h).
 *
 * State: the list of slab pieces whose reuse must wait (under gs_memory_lock). Any thread.
 */
#include "runtime/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/lock.h"
#include "runtime/slab.h"
#include "runtime/virtual.h"

/* pieces of slabs that were freed during a capture; under gs_memory_lock */
static struct late_piece {
    struct late_piece *next;
    struct gs_range *range;
    CUdeviceptr address;
} * late_pieces;

/* an empty range with address space of its own */
static struct gs_range *range_new(struct gs_device *device, uint64_t bytes, CUresult *result)
{
    const uint64_t reserved = (bytes + device->granule - 1) / device->granule * device->granule;
    struct gs_range *range = gs_range_new(device, reserved, GS_CHUNK_BYTES);

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (range == NULL)
        return NULL;
    *result = gs_driver.cuCtxGetCurrent(&range->context);
    if (*result == CUDA_SUCCESS)
        *result = gs_driver.cuMemAddressReserve((CUdeviceptr *)&range->node.base, reserved,
                                                device->granule, 0, 0);
    if (*result != CUDA_SUCCESS) {
        free(range);
        return NULL;
    }
    return range;
}

/* a range that never got into the tree, and has no memory */
static void discard(struct gs_range *range)
{
    gs_driver.cuMemAddressFree(range->node.base, range->reserved);
    free(range);
}

/* A range in the tree, in place or missing. slab_for: cut it for pieces of that size and take
 * the first. */
static CUresult allocate_range(struct gs_device *device, uint64_t bytes, uint64_t slab_for,
                               CUdeviceptr *address)
{
    CUresult result;
    struct gs_range *range = range_new(device, bytes, &result);
    unsigned pass;
    bool entered, placed;

    if (range == NULL)
        return result;
    gs_client_await_target(
        device); /* what there is to have; known from the first allocation on */
    if (!gs_range_account(device, range->reserved)) {
        discard(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    entered = gs_gate_try_enter(&pass);
    placed = entered && gs_range_place(range);
    if (entered && !placed && gs_client_is_alone()) { /* nobody will make room */
        gs_range_take_back(range);
        gs_gate_leave(pass);
        gs_range_unaccount(device, range->reserved);
        discard(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!placed)
        gs_range_miss(range);
    *address = range->node.base;
    if (slab_for != 0 && gs_slab_make(range, slab_for))
        *address = gs_slab_take(device, range->context, slab_for);
    gs_range_set_address(range, range->node.base, bytes);
    gs_range_link(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (entered)
        gs_gate_leave(pass);
    gs_client_wake();
    return CUDA_SUCCESS;
}

CUresult gs_memory_allocate(struct gs_device *device, uint64_t bytes, CUdeviceptr *address)
{
    CUcontext context = NULL;
    CUdeviceptr piece = 0;

    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > device->total) /* also bounds the bookkeeping */
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes > GS_SLAB_MAX_BYTES || device->granule > GS_SLAB_BYTES)
        return allocate_range(device, bytes, 0, address);
    gs_driver.cuCtxGetCurrent(&context);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    piece = gs_slab_take(device, context, bytes);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (piece == 0)
        return allocate_range(device, GS_SLAB_BYTES, bytes, address);
    *address = piece;
    return CUDA_SUCCESS;
}

/* The context has a capture under way: waiting is not allowed now (and was not done). */
static bool is_captured(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_CAPTURED_EVENT;
}

/* cuMemFree waits for the work that may use the memory. The failure of a
 * single call is no reason to take it away under a kernel; a broken context fails always. */
static CUresult synchronize(CUcontext context)
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
        if (result == CUDA_SUCCESS || is_captured(result))
            break;
    }
    gs_capture_release();
    return result;
}

static CUresult wait_for_use(struct gs_range *range, enum gs_free_when when, CUstream stream)
{
    switch (when) {
    case GS_FREE_STREAM:
        return gs_driver.cuStreamSynchronize(stream);
    case GS_FREE_STREAM_PTSZ:
        return gs_driver.cuStreamSynchronize_ptsz(stream);
    default:
        return synchronize(range->context);
    }
}

static void put_piece(struct gs_range *range, CUdeviceptr address)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (gs_slab_put(range, address))
        gs_range_end_life(range, GS_RANGE_DEAD);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
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

/* a piece of a slab: reused only after the GPU is done with it */
static CUresult free_piece(struct gs_range *range, CUdeviceptr address, enum gs_free_when when,
                           CUstream stream)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

    if (!gs_capture_active())
        result = wait_for_use(range, when, stream);
    if (is_captured(result)) {
        put_later(range, address);
        gs_client_wake();
        return CUDA_SUCCESS;
    }
    put_piece(range, address);
    return result;
}

static CUevent mark(enum gs_free_when when, CUstream stream)
{
    CUevent event = NULL;

    if (gs_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return NULL;
    if ((when == GS_FREE_STREAM ? gs_driver.cuEventRecord(event, stream)
                                : gs_driver.cuEventRecord_ptsz(event, stream)) == CUDA_SUCCESS)
        return event;
    gs_driver.cuEventDestroy_v2(event);
    return NULL;
}

/* A whole range, taken out of the tree by the caller (life is DISPOSING). */
static CUresult free_range(struct gs_range *range, enum gs_free_when when, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    CUevent after = NULL;
    unsigned pass;

    if (gs_gate_try_enter(&pass)) {
        if (!gs_capture_active()) {
            if (when != GS_FREE_SYNC)
                after = mark(when, stream);
            if (after == NULL) {
                result = wait_for_use(range, when, stream);
                if (!is_captured(result)) {
                    gs_range_dispose(range);
                    gs_gate_leave(pass);
                    gs_client_wake();
                    return result;
                }
                result = CUDA_SUCCESS;
            }
        }
        gs_gate_leave(pass);
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY); /* closed (nothing runs), captured, or in stream
                                            order: the client thread does it */
    range->after = after;
    range->life = GS_RANGE_DEAD;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_client_wake();
    return result;
}

CUresult gs_memory_free(CUdeviceptr address, enum gs_free_when when, CUstream stream,
                        bool *ours)
{
    CUresult result = CUDA_SUCCESS;
    struct gs_range *range;
    bool piece;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    *ours = range != NULL;
    piece = range != NULL && range->slab != NULL;
    if (piece ? !gs_slab_retire(range, address)
              : range != NULL && (range->node.base != address || range->own != NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (range != NULL && !piece)
        gs_range_end_life(range, GS_RANGE_DISPOSING);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL || result != CUDA_SUCCESS)
        return result;
    return piece ? free_piece(range, address, when, stream) : free_range(range, when, stream);
}

enum gs_memory_found gs_memory_find(CUdeviceptr address, struct gs_allocation *allocation)
{
    enum gs_memory_found found = GS_MEMORY_FOREIGN;
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    if (range != NULL) {
        found = GS_MEMORY_LIVE;
        *allocation = (struct gs_allocation){.base = range->node.base,
                                             .bytes = range->node.size,
                                             .context = range->context,
                                             .device = range->device,
                                             .id = range->id,
                                             .own = range->own != NULL};
        if (range->slab != NULL &&
            !gs_slab_piece(range, address, &allocation->base, &allocation->bytes))
            found = GS_MEMORY_HOLE;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return found;
}

#define BATCH 64

/* Takes up to BATCH ranges for disposal: dead ones, or (context != NULL) all of that context.
 */
static unsigned collect(CUcontext context, struct gs_range **batch)
{
    struct gs_device *device;
    unsigned count = 0;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL && count < BATCH;
             range = range->next) {
            if (context != NULL ? range->context != context || range->life == GS_RANGE_DISPOSING
                                : range->life != GS_RANGE_DEAD)
                continue;
            if (range->life == GS_RANGE_LIVE)
                gs_range_end_life(range, GS_RANGE_DISPOSING);
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
    return !is_captured(
        synchronize(range->context)); /* a broken context uses nothing any more */
}

static bool may_dispose(struct gs_range *range, bool moving)
{
    if (moving)
        return true; /* everything submitted has finished */
    if (range->after != NULL)
        return has_passed(range);
    if (gs_capture_active())
        return false;
    /* freed while the gate was shut: other work may still be under way */
    return !is_captured(synchronize(range->context));
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
        if (!moving && (gs_capture_active() || is_captured(synchronize(piece->range->context))))
            put_later(piece->range, piece->address);
        else
            put_piece(piece->range, piece->address);
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
    bool waits = put_late_pieces(moving);
    const unsigned count = collect(NULL, batch);

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
    return waits;
}

void gs_memory_after_fork(void)
{
    gs_ranges_after_fork();
    late_pieces = NULL;
    gs_slabs_after_fork();
    gs_virtual_after_fork();
}
