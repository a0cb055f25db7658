/* SPDX-License-Identifier: Apache-2.0
 *
 * retire.c: memory that the program has freed, until it is kept or released (retire.h).
 *
 * State, under gs_memory_lock: the dead ranges of each device (in struct gs_device, exactly those
 * whose life is DEAD), and the late pieces, which were freed during a capture. A thread that
 * takes one out owns it.
 */
#include "runtime/memory/retire.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/stream_position.h"
#include "runtime/range/slab.h"
#include "runtime/swap/swap.h"

static struct late_piece {
    struct late_piece *next;
    struct gs_range *range;
    CUdeviceptr address;
} * late_pieces GS_ZERO_IN_CHILD;

void gs_retire_bury(struct gs_range *range)
{
    struct gs_device *device = range->device;

    range->life = GS_RANGE_DEAD;
    range->dead.next = NULL;
    *(device->dead.first != NULL ? &device->dead.last->dead.next : &device->dead.first) = range;
    device->dead.last = range;
}

unsigned gs_retire_unbury(struct gs_device *device, CUcontext context, struct gs_range **batch,
                          unsigned count, unsigned most)
{
    struct gs_range **at = &device->dead.first, *range, *last = NULL;

    while ((range = *at) != NULL && count < most)
        if (context == NULL || range->context == context) {
            *at = range->dead.next;
            range->life = GS_RANGE_DISPOSING;
            batch[count++] = range;
        } else {
            last = range;
            at = &range->dead.next;
        }
    if (range == NULL)
        device->dead.last = last;
    return count;
}

void gs_retire_keep_or_drop(struct gs_range *range)
{
    bool kept;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    kept = gs_idle_put(range);
    if (!kept)
        gs_pool_leave(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!kept)
        gs_swap_dispose(range);
    gs_worker_wake_soon();
}

void gs_retire(struct gs_range *range)
{
    gs_range_forget_contents(range);
    gs_retire_keep_or_drop(range);
}

void gs_retire_piece(struct gs_range *range, CUdeviceptr address)
{
    unsigned pass;
    const bool entered = gs_gate_try_enter(&pass);
    bool quiet = entered, empty;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    empty = gs_slab_put(range, address);
    if (range->exports != NULL) /* the client thread may be at its chunks */
        quiet = false;
    if (empty) {
        gs_range_end_life(range, GS_RANGE_DISPOSING);
        if (!quiet) {
            gs_pool_leave(range);
            gs_retire_bury(range);
        }
        range->dead.at_rest = true;
        gs_slab_free(range->slab);
        range->slab = NULL;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (empty && quiet)
        gs_retire(range);
    if (entered)
        gs_gate_leave(pass);
    if (empty && !quiet)
        gs_worker_wake();
}

/* If there is no memory for the note, the piece stays retired until its context ends. */
void gs_retire_piece_later(struct gs_range *range, CUdeviceptr address)
{
    struct late_piece *piece = malloc(sizeof *piece);

    if (piece == NULL)
        return;
    *piece = (struct late_piece){.range = range, .address = address};
    GS_HOLD_MEMORY;
    piece->next = late_pieces;
    late_pieces = piece;
}

bool gs_retire_late_pieces(bool moving)
{
    struct late_piece *piece, *next;

    GS_WITH_MEMORY(piece = late_pieces; late_pieces = NULL);
    for (; piece != NULL; piece = next) {
        next = piece->next;
        if (!moving && (gs_capture_active() ||
                        gs_capture_forbids(gs_synchronize_context(piece->range->context))))
            gs_retire_piece_later(piece->range, piece->address);
        else
            gs_retire_piece(piece->range, piece->address);
        free(piece);
    }
    piece = GS_WITH_MEMORY(late_pieces);
    return piece != NULL;
}

void gs_retire_forget_late_pieces(CUcontext context)
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
