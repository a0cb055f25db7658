/* SPDX-License-Identifier: Apache-2.0
 *
 * dispose.c: the client thread disposes of freed memory that had to wait (retire.h), because the
 * gate was closed or a stream had not passed the free; and of all memory of a context that ends.
 * No state.
 */
#include "runtime/memory/dispose.h"
#include "lockd/protocol/wire.h"
#include "runtime/gate/capture.h"
#include "runtime/memory/arrays.h"
#include "runtime/memory/exports.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/memory/mapping.h"
#include "runtime/memory/graph_memory.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/memory/openings.h"
#include "runtime/swap/swap.h"
#include "runtime/memory/stream_order.h"
#include "runtime/range/managed.h"
#include "runtime/range/slab.h"
#include "runtime/memory/virtual.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/stream_position.h"
#include "runtime/memory/retire.h"

#define BATCH 64

/* Takes ranges for disposal: dead ranges, or (context != NULL) the live and dead ranges of
 * that context. */
static unsigned collect_ranges(CUcontext context, struct gs_range **batch)
{
    unsigned count = 0;

    GS_HOLD_MEMORY;
    gs_each_device (device) {
        count = gs_retire_unbury(device, context, batch, count, BATCH);
        for (struct gs_range *range = context != NULL ? device->ranges : NULL;
             range != NULL && count < BATCH; range = range->next) {
            if (range->life != GS_RANGE_LIVE || range->context != context)
                continue;
            gs_pool_unuse(range->pool,
                          range->slab != NULL ? gs_slab_asked(range->slab) : range->node.size);
            gs_range_end_life(range, GS_RANGE_DISPOSING);
            gs_pool_leave(range);
            batch[count++] = range;
        }
    }
    return count;
}

void gs_memory_context_ended(CUcontext context)
{
    struct gs_range *batch[BATCH];
    unsigned count;

    gs_openings_context_ended(context);
    gs_stream_order_context_ended(context);
    gs_retire_forget_late_pieces(context);
    gs_managed_context_ended(context);
    gs_memory_mend();
    while ((count = collect_ranges(context, batch)) != 0)
        for (unsigned i = 0; i < count; i++) {
            batch[i]->dead.after = NULL; /* events end with their context */
            gs_swap_dispose(batch[i]);
        }
    gs_worker_wake();
}

/* The event's context must be current for the query (this thread has none). Without an answer
 * the event counts as not passed. */
static bool has_passed(const struct gs_range *range)
{
    CUresult result = CUDA_ERROR_NOT_READY;

    if (gs_context_push(range->context) != CUDA_SUCCESS)
        return false;
    result = gs_driver.cuEventQuery(range->dead.after);
    gs_context_pop();
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return result == CUDA_SUCCESS;
    return !gs_capture_forbids(
        gs_synchronize_context(range->context)); /* a broken context uses nothing any more */
}

static bool may_dispose(const struct gs_range *range, bool moving)
{
    if (moving || range->dead.at_rest)
        return true; /* everything submitted has finished, or all users have */
    if (range->dead.after != NULL)
        return has_passed(range);
    if (gs_capture_active())
        return false;
    /* freed while the gate was shut: other work may still be under way */
    return !gs_capture_forbids(gs_synchronize_context(range->context));
}

bool gs_memory_dispose_dead(bool moving)
{
    struct gs_range *batch[BATCH];
    bool waits = gs_retire_late_pieces(moving);
    unsigned count;

    waits |= gs_stream_order_collect(moving);
    count = collect_ranges(NULL, batch);
    waits |= count == BATCH;
    for (unsigned i = 0; i < count; i++) {
        if (may_dispose(batch[i], moving)) {
            gs_swap_dispose(batch[i]);
            continue;
        }
        GS_WITH_MEMORY(gs_retire_bury(batch[i]));
        waits = true;
    }
    gs_each_device (device) {
        gs_idle_trim(device, gs_now());
        gs_graph_memory_look(device, moving && (gs_device_flags(device) & GS_TARGET_RUN) == 0,
                             gs_now());
    }
    return waits;
}
