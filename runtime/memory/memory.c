/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: cuMemAlloc and cuMemAllocAsync, on top of ranges (range.h), slabs (slab.h) and
 * memory that was freed before (idle_ranges.h, stream_order.h). Freeing: free.c.
 *
 * No state. Any thread.
 */
#include "runtime/memory/memory.h"
#include "runtime/range/backend.h"
#include "runtime/gate/capture.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/memory/openings.h"
#include "runtime/memory/stream_order.h"
#include "runtime/range/over.h"
#include "runtime/range/shares.h"
#include "runtime/range/slab.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/retire.h"

#define GIVING_BACK_NS 5000000000ull
#define LOOK_NS        500000ull
#define SETTLE_NS      5000000ull
#define SETTLED_NS     2000000000ull /* as in shares.c */

/* An allocation under way: the request, and what follows from it. */
struct need {
    const struct gs_request *request;
    CUcontext context; /* the context that owns the memory */
    uint64_t reserved; /* bytes of its range */
    uint64_t slab_for; /* the range is cut into pieces of that size; 0: it is not */
};

/* For a range that was never in the tree: the program has never had it. */
static void discard_range(struct gs_range *range)
{
    bool touched = false;

    for (uint32_t i = 0; i < range->chunk_count; i++)
        touched |= range->chunks[i].state == GS_CHUNK_RESIDENT;
    gs_range_withdraw(range);
    GS_WITH_MEMORY(gs_pool_leave(range));
    gs_backend_of(range)->take_unused(range, touched);
    free(range);
}

bool gs_memory_admit(struct gs_range *range)
{
    const uint64_t until = gs_now() + SETTLED_NS;

    if (gs_range_admit(range))
        return true;
    gs_daemon_ask_room(range->device);
    while (!gs_range_admit(range)) {
        if (!gs_shares_unsettled() || gs_daemon_is_absent() || gs_now() >= until)
            return false;
        gs_worker_wake();
        gs_pause(SETTLE_NS);
    }
    return true;
}

/* Makes an empty range with address space of its own, and adds it to the accounts. */
static CUresult make_range(const struct need *need, struct gs_range **made)
{
    struct gs_device *device = need->request->device;
    struct gs_range *range;
    CUresult result;

    gs_daemon_await_target(device); /* it says how much there is to have */
    range = gs_range_new(device, need->reserved,
                         gs_over_chunk_bytes(device, need->reserved < GS_LARGE_RANGE_BYTES
                                                         ? GS_CHUNK_BYTES
                                                         : GS_LARGE_CHUNK_BYTES));
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->context = need->context;
    result = gs_backend_of(range)->reserve(range);
    if (result != CUDA_SUCCESS) {
        free(range);
        return result;
    }
    if (!GS_WITH_MEMORY(gs_pool_join(range, need->request->pool)) || !gs_memory_admit(range)) {
        discard_range(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = range;
    return CUDA_SUCCESS;
}

/* Under the lock: the range is the program's from now on. Returns its address, or that of a
 * slab's first piece. */
static CUdeviceptr enter_life(struct gs_range *range, const struct need *need)
{
    CUdeviceptr address = range->node.base;
    uint64_t bytes = need->request->bytes;

    range->dead.at_rest = false;
    if (need->slab_for != 0 && gs_slab_make(range, need->slab_for)) {
        address = gs_slab_take(range->device, range->context, range->pool, need->slab_for);
        bytes = range->reserved;
    }
    gs_range_set_address(range, range->node.base, bytes);
    gs_pool_use(need->request->pool, need->request->bytes);
    return address;
}

/* Under the lock: a range that was freed, with its memory, lives again. False: that is more than
 * the pool, or the program, may have; the range goes. */
static bool revive_range(struct gs_range *range, const struct need *need, CUdeviceptr *address)
{
    if (!gs_pool_join(range, need->request->pool) || !gs_range_begin_life(range)) {
        gs_pool_leave(range);
        gs_retire_bury(range);
        return false;
    }
    range->context = need->context;
    *address = enter_life(range, need);
    return true;
}

/* Memory that a stream has freed and not passed is for that stream, or for a stream that waits for
 * it. The pieces of a slab are for all streams. */
static bool may_follow_a_free(const struct need *need)
{
    return need->request->position != NULL && need->slab_for == 0;
}

/* Finds freed memory of the right size. false: there is none */
static bool reuse_freed(const struct need *need, CUdeviceptr *address)
{
    const struct gs_request *request = need->request;
    struct gs_range *range = NULL;
    bool good = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (may_follow_a_free(need))
        range = gs_stream_order_take(request->position, request->device, request->pool,
                                     need->reserved, false)
                    .range;
    if (range == NULL)
        range = gs_idle_take(request->device, request->pool, need->reserved);
    if (range != NULL && request->pool == NULL)
        gs_pool_leave(range);
    if (range != NULL)
        good = revive_range(range, need, address);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (good)
        gs_worker_wake_soon();
    else if (range != NULL)
        gs_worker_wake();
    return good;
}

/* Gives the new range its memory if there is some for it; waits for what other threads are
 * giving back, and for a daemon that has just come back. False: not, and nobody will make room. */
static bool place_range(struct gs_range *range, bool *placed)
{
    const uint64_t until = gs_now() + GIVING_BACK_NS;

    for (;;) {
        /* before the attempt: what leaves during it may make room too late for it, and a daemon
         * that comes back may speak */
        bool soon = gs_range_any_leaves(range->device) || gs_daemon_has_news();

        *placed = gs_range_place(range);
        if (*placed)
            return true;
        if (gs_idle_give_back(range->device, NULL, range->reserved) != 0) {
            *placed = gs_range_place(range);
            if (*placed)
                return true;
        }
        if (!gs_daemon_is_absent())
            return true;
        soon = soon || gs_daemon_has_news();
        if (!soon || gs_now() >= until)
            return false;
        gs_pause(LOOK_NS);
    }
}

/* There is no room now: memory that another stream has freed and not passed, for which this
 * stream is made to wait. Inside the gate. */
static bool reuse_behind_another(const struct need *need, CUdeviceptr *address)
{
    const struct gs_request *request = need->request;
    struct gs_range *range;

    if (!may_follow_a_free(need) || !request->pool->may_wait)
        return false;
    range = gs_stream_order_take_behind(request->position, request->device, request->pool,
                                        need->reserved);
    if (range == NULL)
        return false;
    GS_HOLD_MEMORY;
    return revive_range(range, need, address);
}

/* A new range in the tree, in place or missing. */
static CUresult allocate_range(const struct need *need, CUdeviceptr *address)
{
    struct gs_device *device = need->request->device;
    bool entered, can_wait, placed = false;
    struct gs_range *range;
    uint64_t counted;
    CUresult result = make_range(need, &range);
    unsigned pass;

    if (result != CUDA_SUCCESS)
        return result;
    entered = gs_gate_try_enter(&pass);
    can_wait = !entered || place_range(range, &placed);
    if (!can_wait) /* nobody makes room on the card */
        placed = gs_range_go_over(range);
    counted = need->reserved - range->over; /* 0: all of it is beyond the card, and there */
    if (entered && !placed && (!can_wait || (counted != 0 && may_follow_a_free(need)))) {
        bool found;

        gs_range_unaccount(device, counted);
        found = reuse_behind_another(need, address);
        if (found || !can_wait || !gs_range_account(device, counted)) {
            discard_range(range);
            gs_gate_leave(pass);
            gs_worker_wake();
            return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!placed)
        gs_range_miss(range);
    *address = enter_life(range, need);
    gs_range_link(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (entered)
        gs_gate_leave(pass);
    gs_worker_wake();
    return CUDA_SUCCESS;
}

/* Takes a free piece of a slab. */
static bool take_piece(const struct need *need, CUdeviceptr *address)
{
    const struct gs_request *request = need->request;
    const uint64_t size = gs_slab_piece_bytes(request->bytes);
    struct gs_freed_memory freed = {0};
    CUdeviceptr piece;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (request->position != NULL)
        freed =
            gs_stream_order_take(request->position, request->device, request->pool, size, true);
    piece = freed.piece;
    if (piece != 0)
        gs_slab_revive(freed.range, piece, request->bytes);
    else
        piece = gs_slab_take(request->device, need->context, request->pool, request->bytes);
    if (piece != 0)
        gs_pool_use(request->pool, request->bytes);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    *address = piece;
    return piece != 0;
}

CUresult gs_memory_allocate(const struct gs_request *request, CUdeviceptr *address)
{
    const uint64_t granule = request->device->granule;
    const bool small = request->bytes <= GS_SLAB_MAX_BYTES && granule <= GS_SLAB_BYTES;
    struct need need = {.request = request,
                        .reserved = small ? GS_SLAB_BYTES
                                          : (request->bytes + granule - 1) / granule * granule,
                        .slab_for = small ? request->bytes : 0};
    CUresult result = CUDA_SUCCESS;

    if (request->position != NULL) /* the thread may have another current context, or none */
        need.context = request->position->context;
    else
        result = gs_driver.cuCtxGetCurrent(&need.context);
    if (result == CUDA_SUCCESS)
        result = gs_context_check(need.context);
    if (result != CUDA_SUCCESS)
        return result;
    if (request->bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (request->bytes > request->device->total +
                             gs_over_limit(request->device)) /* also bounds the bookkeeping */
        return CUDA_ERROR_OUT_OF_MEMORY;
    need.context = gs_context_home(need.context);
    if ((small && take_piece(&need, address)) || reuse_freed(&need, address))
        return CUDA_SUCCESS;
    return allocate_range(&need, address);
}

enum gs_memory_found gs_memory_find(CUdeviceptr address, struct gs_allocation *allocation)
{
    enum gs_memory_found found = GS_MEMORY_FOREIGN;
    const struct gs_foreign *foreign;
    const struct gs_opening *opening;
    struct gs_range *range;

    GS_HOLD_MEMORY;
    foreign = gs_foreign_at(address);
    range = gs_range_at(address);
    if (foreign != NULL && foreign->of != NULL) {
        found = GS_MEMORY_LIVE;
        *allocation =
            (struct gs_allocation){.base = foreign->node.base,
                                   .bytes = foreign->node.size,
                                   .device = foreign->of->device,
                                   .id = foreign->of->id,
                                   .over = foreign->of->over != 0,
                                   .own = true,
                                   .without_access = !foreign->accessible,
                                   .handle_types = foreign->of->own->prop.requestedHandleTypes};
    } else if (range != NULL && range->theirs == NULL) { /* else only the driver knows it */
        found = GS_MEMORY_LIVE;
        *allocation =
            (struct gs_allocation){.base = range->node.base,
                                   .bytes = range->node.size,
                                   .context = range->context,
                                   .device = range->device,
                                   .id = range->id,
                                   .pool = range->pool != NULL ? range->pool->handle : NULL,
                                   .over = range->over != 0,
                                   .own = range->own != NULL};
        if (range->own != NULL) {
            allocation->without_access = true;
            for (unsigned i = 0; i < range->own->access_count && allocation->without_access;
                 i++)
                allocation->without_access =
                    range->own->access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
            allocation->handle_types = range->own->prop.requestedHandleTypes;
        }
        if (range->slab != NULL &&
            !gs_slab_piece(range, address, &allocation->base, &allocation->bytes))
            found = GS_MEMORY_HOLE;
    } else if (range == NULL && gs_range_is_near(address)) {
        found = GS_MEMORY_HOLE; /* the driver would still know it */
    } else if ((opening = gs_openings_at(address)) != NULL) {
        found = GS_MEMORY_LIVE;
        *allocation = (struct gs_allocation){.base = opening->node.base,
                                             .bytes = opening->node.size,
                                             .context = opening->context,
                                             .device = opening->device,
                                             .id = opening->id,
                                             .opened = true};
    }
    return found;
}

enum use { IN_USE, ENDING, ENDED };

/* Under the lock: ENDING: freed in stream order. *room: bytes from there to where memory of the
 * range's ends; of addresses that are not cuMemAlloc's the driver knows it. */
static enum use use_of(CUdeviceptr address, uint64_t *room)
{
    const struct gs_range *range = gs_range_at(address);

    *room = UINT64_MAX;
    if (range != NULL && range->own == NULL && range->theirs == NULL)
        *room = range->node.base + range->node.size - address;
    if (range != NULL && range->slab != NULL) {
        const enum gs_slab_state state = gs_slab_state(range, address);
        CUdeviceptr base;
        uint64_t bytes;

        *room = gs_slab_piece(range, address, &base, &bytes) ? base + bytes - address : 0;

        return state == GS_SLAB_LIVE ? IN_USE : state == GS_SLAB_RETIRED ? ENDING : ENDED;
    }
    if (range == NULL) {
        range = gs_range_was_at(address);
        if (range == NULL && gs_range_is_near(address))
            *room = 0;
    }
    if (range == NULL || range->life == GS_RANGE_LIVE)
        return IN_USE;
    return range->life == GS_RANGE_ORDERED ? ENDING : ENDED;
}

/* Addresses that the thread has found in use since something was last freed: loops work on
 * the same few buffers, and need not take the lock each time. */
static _Thread_local struct {
    uint32_t frees;
    struct {
        CUdeviceptr address;
        uint64_t room;
    } known[4];
} found_in_use;

bool gs_memory_is_refused(CUdeviceptr address, uint64_t bytes)
{
    const uint32_t frees = atomic_load_explicit(&gs_memory_frees, memory_order_acquire);
    const unsigned slot = (address >> GS_SLAB_MIN_SHIFT) % 4;
    uint64_t room;
    enum use use;

    if (found_in_use.frees == frees && found_in_use.known[slot].address == address &&
        bytes <= found_in_use.known[slot].room)
        return false;
    use = GS_WITH_MEMORY(use_of(address, &room));
    if (use == ENDING && !gs_capture_active()) {
        const bool waits = gs_stream_order_collect(false);

        use = GS_WITH_MEMORY(use_of(address, &room));
        if (use == ENDING && !waits) /* another thread is about to give it back */
            use = ENDED;
    }
    if (use == IN_USE) {
        if (found_in_use.frees != frees)
            memset(found_in_use.known, 0, sizeof found_in_use.known);
        found_in_use.frees = frees;
        found_in_use.known[slot].address = address;
        found_in_use.known[slot].room = room;
    }
    return use == ENDED || bytes > room;
}
