/* SPDX-License-Identifier: Apache-2.0
 *
 * loose.c: moves loose managed memory to the host and back (loose.h). The driver may have brought
 * any of its pages to the device. State: in the ranges, under gs_memory_lock. A chunk is `moving`
 * while it is being sent.
 */
#include "runtime/swap/loose.h"
#include "runtime/range/backend.h"
#include "runtime/range/program_managed.h"
#include "runtime/swap/swap_mover.h"

static void settle_loose(struct gs_range *range, uint32_t chunk, uint8_t state)
{
    GS_WITH_MEMORY(range->chunks[chunk].state = state; range->chunks[chunk].moving = false);
}

bool gs_loose_send_one(struct gs_device *device)
{
    struct gs_mover *mover;
    struct gs_range *range;
    uint32_t chunk = 0;
    CUresult result;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_program_managed_next_loose(device, &chunk);
    if (range != NULL)
        range->chunks[chunk].moving = true;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL)
        return false;
    mover = gs_mover_enter(device);
    if (mover == NULL) {
        settle_loose(range, chunk, GS_CHUNK_LOOSE);
        return false;
    }
    result = gs_backend_of(range)->send(range, chunk, mover->copies);
    if (result == CUDA_SUCCESS)
        result = gs_driver.cuStreamSynchronize(mover->copies);
    gs_backend_of(range)->remove(range, chunk);
    gs_mover_leave();
    if (result != CUDA_SUCCESS) /* the driver will push it out itself */
        gs_log("sending managed memory away: CUresult %d", result);
    settle_loose(range, chunk, GS_CHUNK_AWAY);
    return true;
}

void gs_loose_begin(struct gs_device *device, bool closed)
{
    GS_WITH_MEMORY(gs_program_managed_recount(device, closed));
}

void gs_loose_more(struct gs_device *device, uint64_t bytes)
{
    GS_WITH_MEMORY(gs_program_managed_loosen(device, bytes));
}
