/* SPDX-License-Identifier: Apache-2.0
 *
 * range.c: owns the ranges of movable memory, the tree of their addresses, and the accounts of
 * what is where.
 *
 * Invariants (under gs_memory_lock): demand = sum of reserved over live ranges that are not
 * pinned, less their chunks that are OVER, whose sum is over; missing = bytes of their chunks that
 * are needed and neither RESIDENT nor OVER, or adrift; resident = bytes of RESIDENT chunks of all
 * ranges that are not pinned, plus claims of allocations under way, for which works_begun is ahead of
 * works_ended; the tree holds exactly the live ranges that have an address, `gone` cuMemAlloc's
 * other ones; an application thread that makes missing grow shuts the gate under the same lock.
 * Chunks are touched by: the allocating thread before the range is in the tree; the client
 * thread; the disposing thread.
 */
#include "runtime/range/range.h"
#include "runtime/range/backend.h"
#include "runtime/range/edge.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/range/over.h"
#include "runtime/range/shares.h"
#include "runtime/range/slab.h"
#include "runtime/range/uses.h"
#include "runtime/range/program_managed.h"

static struct gs_range_tree tree GS_ZERO_IN_CHILD;
static struct gs_range_tree gone
    GS_ZERO_IN_CHILD; /* cuMemAlloc's that have ended and still have their address */
static _Atomic(uint64_t) next_id = 1;

/* bytes of it that the card has, or has room for */
static uint64_t on_card(const struct gs_range *range)
{
    return range->reserved - range->over;
}

static void set_pinned(struct gs_range *range)
{
    if (range->pinned)
        return;
    range->pinned = true;
    range->device->accounts.demand -= on_card(range);
    range->device->accounts.resident -= on_card(range);
    range->device->accounts.pinned += on_card(range);
}

void gs_range_pin(struct gs_range *range)
{
    range->pin.for_good = true;
    set_pinned(range);
}

void gs_range_share(struct gs_range *range)
{
    if (range->pin.shares++ == 0)
        range->device->accounts.shared += range->reserved;
    set_pinned(range);
}

void gs_range_unshare(struct gs_range *range)
{
    if (--range->pin.shares != 0)
        return;
    range->device->accounts.shared -= range->reserved;
    if (range->pin.for_good)
        return;
    range->pinned = false;
    range->device->accounts.demand += on_card(range);
    range->device->accounts.resident += on_card(range);
    range->device->accounts.pinned -= on_card(range);
}

bool gs_range_overlaps(CUdeviceptr address, uint64_t bytes)
{
    return gs_range_tree_overlap(&tree, address, bytes) != NULL ||
           gs_range_tree_overlap(&gone, address, bytes) != NULL ||
           gs_edge_reserved(address, bytes);
}

struct gs_range *gs_range_new(struct gs_device *device, uint64_t reserved, uint64_t chunk_bytes)
{
    const uint64_t chunks = (reserved + chunk_bytes - 1) / chunk_bytes;
    struct gs_range *range = calloc(1, sizeof *range + chunks * sizeof range->chunks[0]);

    if (range == NULL)
        return NULL;
    range->device = device;
    range->reserved = reserved;
    range->chunk_bytes = chunk_bytes;
    range->chunk_count = (uint32_t)chunks;
    range->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    return range;
}

/* under the lock */
static bool demand_more(struct gs_device *device, uint64_t bytes)
{
    const uint64_t capacity = gs_device_room(device);

    if (bytes > capacity)
        return false;
    if (device->accounts.demand > capacity - bytes)
        gs_program_managed_loosen(device, device->accounts.demand - (capacity - bytes));
    if (device->accounts.demand > capacity - bytes)
        return false;
    device->accounts.demand += bytes;
    return true;
}

bool gs_range_account(struct gs_device *device, uint64_t bytes)
{
    return GS_WITH_MEMORY(demand_more(device, bytes));
}

void gs_range_unaccount(struct gs_device *device, uint64_t bytes)
{
    GS_WITH_MEMORY(device->accounts.demand -= bytes);
}

/* Whether the chunk is among `picked` chunks that lie evenly between the others. */
static bool is_picked(const struct gs_range *range, uint32_t chunk, uint32_t picked)
{
    const uint64_t count = range->chunk_count;

    return (chunk + 1ull) * picked / count > (uint64_t)chunk * picked / count;
}

/* Under the lock: so many chunks, those of them that have no memory, lie beyond the card, if the
 * program may have so much there. Evenly between the others: a kernel that goes over all of them
 * waits for the card and for the bus at once. */
static bool put_over(struct gs_range *range, uint32_t picked, uint64_t limit)
{
    struct gs_accounts *accounts = &range->device->accounts;
    const uint64_t bytes = GS_CHUNK_BYTES_IF(range, chunk->state == GS_CHUNK_ABSENT &&
                                                        is_picked(range, i, picked));

    if (!gs_over_suits(range) || bytes > limit || accounts->over > limit - bytes)
        return false;
    for (uint32_t i = 0; i < range->chunk_count; i++)
        if (range->chunks[i].state == GS_CHUNK_ABSENT && is_picked(range, i, picked)) {
            range->chunks[i].state = GS_CHUNK_OVER;
            range->chunks[i].handle = 0;
        }
    accounts->over += bytes;
    range->over += bytes;
    gs_uses_begin();
    return true;
}

/* under the lock */
static bool admit_both(struct gs_range *range, uint64_t limit)
{
    struct gs_device *device = range->device;
    const uint64_t room = gs_device_room(device) > device->accounts.demand
                              ? gs_device_room(device) - device->accounts.demand
                              : 0;
    const uint64_t fit = room / range->chunk_bytes;

    if (fit >= range->chunk_count ||
        !put_over(range, range->chunk_count - (uint32_t)fit, limit))
        return false;
    device->accounts.demand += on_card(range);
    return true;
}

bool gs_range_admit(struct gs_range *range)
{
    const uint64_t limit = gs_over_limit(range->device);
    bool admitted = GS_WITH_MEMORY(demand_more(range->device, range->reserved) ||
                                   (limit != 0 && admit_both(range, limit)));

    if (!admitted || range->over == 0 || gs_over_fill(range))
        return admitted;
    gs_range_unaccount(range->device, on_card(range));
    gs_range_withdraw(range);
    return false;
}

bool gs_range_go_over(struct gs_range *range)
{
    const uint64_t limit = gs_over_limit(range->device), before = range->over;
    bool put;

    if (limit == 0)
        return false;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    put = put_over(range, range->chunk_count, limit);
    if (put)
        range->device->accounts.demand -= range->over - before;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return put && gs_over_fill(range);
}

void gs_range_begin_work(struct gs_device *device)
{
    GS_WITH_MEMORY(device->accounts.works_begun++);
}

void gs_range_end_work(struct gs_device *device)
{
    GS_WITH_MEMORY(device->accounts.works_ended++);
}

void gs_range_take_back(struct gs_range *range)
{
    gs_range_begin_work(range->device);
    for (uint32_t i = 0; i < range->chunk_count; i++) {
        struct gs_chunk *chunk = &range->chunks[i];
        const bool resident = chunk->state == GS_CHUNK_RESIDENT;

        if (gs_chunk_is_there(chunk))
            gs_backend_of(range)->remove(range, i);
        chunk->state = GS_CHUNK_ABSENT;
        chunk->zero = chunk->adrift = false;
        gs_host_put(chunk->host);
        chunk->host = NULL;
        if (!resident)
            continue;
        GS_WITH_MEMORY(*(range->pinned ? &range->device->accounts.pinned
                                       : &range->device->accounts.resident) -=
                       gs_range_chunk_bytes(range, i));
    }
    gs_range_end_work(range->device);
}

void gs_range_withdraw(struct gs_range *range)
{
    gs_range_take_back(range);
    GS_HOLD_MEMORY;
    range->device->accounts.over -= range->over;
    range->over = 0;
}

static uint64_t absent_bytes(const struct gs_range *range)
{
    return GS_CHUNK_BYTES_IF(
        range,
        (chunk->state != GS_CHUNK_RESIDENT && gs_chunk_is_counted(chunk)) || chunk->adrift);
}

/* Takes the range out of the demand, which does not include loose chunks. */
static void end_demand(const struct gs_range *range)
{
    const uint64_t loose =
        range->theirs == NULL ? 0 : GS_CHUNK_BYTES_IF(range, !gs_chunk_is_counted(chunk));
    const uint64_t counted = on_card(range) - loose;

    range->device->accounts.demand -= counted;
    if (range->theirs == NULL)
        return;
    range->device->accounts.managed -= counted;
    range->device->accounts.loose -= range->reserved - counted;
}

bool gs_range_place(struct gs_range *range)
{
    struct gs_device *device = range->device;
    const uint64_t wanted = absent_bytes(range);
    uint64_t placed = 0;
    bool claimed;

    for (uint32_t i = 0; i < range->chunk_count; i++)
        if (range->chunks[i].state == GS_CHUNK_HOST)
            return false; /* only the client thread copies */
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    /* The budget has room only while nothing that the daemon said is unread: what a stopped program
     * may hold beyond what it has is given to others. A program that is stopped between this look and
     * the driver call has too much afterwards; it says so, and moves that out. */
    claimed = !gs_daemon_has_news() &&
              device->accounts.resident + wanted <=
                  atomic_load_explicit(&device->target.budget, memory_order_relaxed) +
                      atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
    if (claimed) {
        device->accounts.resident += wanted;
        device->accounts.works_begun++;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!claimed)
        return false;
    gs_worker_wake(); /* reported before: else it is measured as nobody's */
    if (wanted == range->reserved && range->own == NULL) {
        const uint32_t count = gs_backend_of(range)->place_all(range);

        for (uint32_t i = 0; i < count; i++) {
            range->chunks[i].state = GS_CHUNK_RESIDENT;
            placed += gs_range_chunk_bytes(range, i);
        }
    }
    for (uint32_t i = 0; i < range->chunk_count && placed < wanted; i++) {
        if (range->chunks[i].state == GS_CHUNK_RESIDENT ||
            !gs_chunk_is_counted(&range->chunks[i]))
            continue;
        if (gs_backend_of(range)->place(range, i) != CUDA_SUCCESS)
            break;
        range->chunks[i].state = GS_CHUNK_RESIDENT;
        placed += gs_range_chunk_bytes(range, i);
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    device->accounts.resident -= wanted - placed;
    device->accounts.works_ended++;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return placed == wanted;
}

void gs_range_miss(struct gs_range *range)
{
    const uint64_t absent = absent_bytes(range);

    if (absent == 0)
        return;
    range->device->accounts.missing += absent;
    gs_gate_shut();
}

void gs_range_unneed(struct gs_range *range)
{
    range->device->accounts.missing -= absent_bytes(range);
    gs_gate_refuse(false); /* until the client thread has looked at what is left */
}

void gs_range_set_address(struct gs_range *range, uint64_t address, uint64_t bytes)
{
    range->node.base = address;
    range->node.size = bytes;
    gs_range_tree_insert(&tree, &range->node);
}

void gs_range_clear_address(struct gs_range *range)
{
    gs_range_tree_remove(&tree, range->node.base);
}

const struct gs_range *gs_range_was_at(CUdeviceptr address)
{
    return (const struct gs_range *)gs_range_tree_find(&gone, address);
}

bool gs_range_is_near(CUdeviceptr address)
{
    return gs_range_was_at(address) != NULL || gs_edge_reserved(address, 1);
}

struct gs_range *gs_range_at(CUdeviceptr address)
{
    return (struct gs_range *)gs_range_tree_find(&tree, address);
}

struct gs_range *gs_range_first(CUdeviceptr address, uint64_t bytes)
{
    return (struct gs_range *)gs_range_tree_first(&tree, address, bytes);
}

void gs_range_link(struct gs_range *range)
{
    struct gs_device *device = range->device;

    range->next = device->ranges;
    if (range->next != NULL)
        range->next->link = &range->next;
    range->link = &device->ranges;
    device->ranges = range;
}

_Atomic(uint32_t) gs_memory_frees;

void gs_range_end_life(struct gs_range *range, enum gs_range_life life)
{
    atomic_fetch_add_explicit(&gs_memory_frees, 1, memory_order_release);
    if (range->own == NULL) { /* the program's own mapping was removed before */
        gs_range_clear_address(range);
        range->node.size = range->reserved;
        gs_range_tree_insert(&gone, &range->node);
    }
    if (gs_range_is_needed(range))
        gs_range_unneed(range);
    if (!range->pinned)
        end_demand(range);
    range->device->accounts.over -= range->over;
    if (range->pin.shares != 0) {
        range->device->accounts.shared -= range->reserved;
        gs_shares_freed(range, NULL);
    }
    range->pin.shares = 0; /* the driver keeps it for the processes that have it open */
    range->life = (uint8_t)life;
}

bool gs_range_begin_life(struct gs_range *range)
{
    if (!demand_more(range->device, range->reserved))
        return false;
    gs_range_tree_remove(&gone, range->node.base);
    range->life = GS_RANGE_LIVE;
    range->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    return true;
}

bool gs_range_is_whole(const struct gs_range *range)
{
    return absent_bytes(range) == 0;
}

void gs_range_forget_contents(struct gs_range *range)
{
    for (uint32_t i = 0; i < range->chunk_count; i++) {
        gs_host_put(range->chunks[i].host);
        range->chunks[i].host = NULL;
    }
}

bool gs_range_any_leaves(const struct gs_device *device)
{
    GS_HOLD_MEMORY;
    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        if (range->life == GS_RANGE_IDLE || range->life == GS_RANGE_DISPOSING ||
            (range->life == GS_RANGE_DEAD && range->dead.at_rest))
            return true;
    return false;
}

void gs_range_dispose(struct gs_range *range)
{
    const struct gs_context *context = gs_context_for(range->device);
    struct gs_export *export;
    CUcontext current = NULL;
    bool pushed = false;

    /* destroying events needs a context; the client thread has none of its own */
    if (gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL &&
        context != NULL)
        pushed = gs_driver.cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
    gs_range_take_back(range);
    if (range->own == NULL) {
        GS_WITH_MEMORY(gs_range_tree_remove(&gone, range->node.base));
        gs_backend_of(range)->give_back(range);
    }
    if (range->dead.after != NULL)
        gs_driver.cuEventDestroy_v2(range->dead.after);
    if (pushed)
        gs_driver.cuCtxPopCurrent_v2(&current);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    *range->link = range->next;
    if (range->next != NULL)
        range->next->link = range->link;
    if (range->device->sweep.cursor == range)
        range->device->sweep.cursor = range->next;
    gs_slab_free(range->slab);
    while ((export = range->exports) != NULL) { /* handles for other processes */
        range->exports = export->next;
        free(export);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_program_managed_end(range);
    free(range->own);
    free(range);
}

struct gs_accounts gs_memory_accounts(const struct gs_device *device)
{
    return GS_WITH_MEMORY(device->accounts);
}

uint64_t gs_memory_pinned(const struct gs_device *device, const struct gs_accounts *accounts)
{
    return accounts->pinned + device->graphs.bytes +
           atomic_load_explicit(&device->arrays, memory_order_relaxed) +
           atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
}

uint64_t gs_memory_copied(const struct gs_device *device)
{
    uint64_t bytes = 0;

    GS_HOLD_MEMORY;
    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        bytes +=
            GS_CHUNK_BYTES_IF(range, chunk->state == GS_CHUNK_RESIDENT && chunk->host != NULL);
    return bytes;
}

uint64_t gs_memory_out_of_reach(const struct gs_device *device)
{
    uint64_t sum = 0;

    GS_HOLD_MEMORY;
    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        if (range->life == GS_RANGE_LIVE && !range->pinned)
            sum += gs_range_is_needed(range)
                       ? GS_CHUNK_BYTES_IF(range,
                                           chunk->adrift && chunk->state == GS_CHUNK_RESIDENT)
                       : on_card(range) - absent_bytes(range);
    return sum;
}

void gs_memory_mend(void)
{
    GS_HOLD_MEMORY;
    gs_each_device (device)
        device->broken = false;
}

bool gs_memory_if_complete(void (*then)(void))
{
    GS_HOLD_MEMORY;
    const bool complete = !GS_ANY_DEVICE(device->accounts.missing != 0 && !device->broken);

    if (complete)
        then();
    return complete;
}

struct placed {
    CUdeviceptr address;
    uint64_t bytes;
};

/* Under the lock: lists the chunks that are mapped, of a pool or (NULL) of all that cuMemAlloc and
 * pools gave; list NULL: only counts them. Another thread changes chunks that are disposed of. */
static size_t list_placed(const struct gs_device *device, const struct gs_pool *pool,
                          struct placed *list)
{
    size_t count = 0;

    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++)
            if (range->life != GS_RANGE_DISPOSING && range->own == NULL &&
                range->theirs == NULL && (pool == NULL || range->pool == pool) &&
                gs_chunk_is_mapped(&range->chunks[i])) {
                if (list != NULL)
                    list[count] = (struct placed){gs_range_chunk_address(range, i),
                                                  gs_range_chunk_bytes(range, i)};
                count++;
            }
    return count;
}

CUresult gs_range_grant(const struct gs_device *device, const struct gs_pool *pool,
                        const CUmemAccessDesc *access, size_t access_count)
{
    CUresult result = CUDA_SUCCESS;
    struct placed *list = NULL;
    size_t count;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    count = list_placed(device, pool, NULL);
    list = calloc(count + 1, sizeof *list);
    if (list != NULL)
        list_placed(device, pool, list);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (list == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) { /* a chunk that is released meanwhile fails alone */
        const CUresult one =
            gs_driver.cuMemSetAccess(list[i].address, list[i].bytes, access, access_count);

        if (one == CUDA_SUCCESS)
            continue;
        gs_log("access to %llu bytes at %#llx: %d", (unsigned long long)list[i].bytes,
               (unsigned long long)list[i].address, one);
        GS_HOLD_MEMORY;
        if (gs_range_at(list[i].address) != NULL)
            result = one;
    }
    free(list);
    return result;
}
