/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c: changes the memory behind a chunk: of the card, or of the host.
 *
 * A chunk changes places as a whole or stays. Its new memory is filled at an address of our own,
 * and only the mappings at the chunk's address are exchanged then. If the driver maps neither of
 * the two there, the chunk keeps the memory that it had and is *adrift*: it counts as missing,
 * which keeps the gate closed until a later attempt succeeds.
 *
 * The driver takes long to make host memory (20 ms for 64 MiB). So the host memory of the last
 * chunk that came in is kept as a *spare* for the next one that goes out. It counts as claimed
 * until then.
 *
 * The accounts change before the copy, so that no allocation takes the same room meanwhile. They
 * change back if the copy fails. State: client thread only.
 */
#include "runtime/swap/exchange.h"
#include "runtime/range/host.h"
#include "runtime/range/handover.h"
#include "runtime/range/over.h"
#include "runtime/range/vmm.h"

#define MAP_TRIES       16
#define REFUSE_AFTER_NS 10000000000ull /* adrift for so long: calls fail and no longer wait */

static struct {
    bool adrift;    /* a chunk may be adrift */
    bool refusing;  /* calls fail because of it */
    uint64_t since; /* ns: a chunk has been adrift since then */
    struct {
        CUmemGenericAllocationHandle handle;
        uint64_t bytes; /* 0: there is none */
        const struct gs_device *device;
    } spare;
} self GS_ZERO_IN_CHILD;
static double copying; /* ns a byte; 0: not measured */

bool gs_exchange_is_free(const struct gs_range *range, uint32_t index)
{
    return range->life == GS_RANGE_LIVE && !range->pinned &&
           (range->exports == NULL || range->chunks[index].state == GS_CHUNK_OVER) &&
           range->moving == 0 && !range->chunks[index].moving && !range->chunks[index].adrift &&
           gs_over_suits(range) && gs_range_is_needed(range) &&
           (range->own == NULL || !range->own->worked_on);
}

uint64_t gs_exchange_room(const struct gs_device *device)
{
    const uint64_t budget = atomic_load_explicit(&device->target.budget, memory_order_relaxed),
                   room = gs_device_room(device);
    const uint64_t by_budget =
        budget > device->accounts.resident ? budget - device->accounts.resident : 0;
    const uint64_t by_room =
        room > device->accounts.demand ? room - device->accounts.demand : 0;

    return by_budget < by_room ? by_budget : by_room;
}

double gs_exchange_copying(void)
{
    return copying;
}

/* --- the mappings --- */

static void set_adrift(const struct gs_exchange_chunk *it, bool adrift)
{
    struct gs_range *range = it->range;

    GS_HOLD_MEMORY;
    if (range->life == GS_RANGE_LIVE && gs_range_is_needed(range)) {
        if (adrift)
            range->device->accounts.missing += it->bytes;
        else
            range->device->accounts.missing -= it->bytes;
    }
    range->chunks[it->index].adrift = adrift;
}

/* Maps the fresh memory in the place of the chunk's memory. On error the chunk has its old
 * memory. */
static CUresult exchange_mappings(const struct gs_exchange_chunk *it,
                                  CUmemGenericAllocationHandle fresh)
{
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    const CUmemGenericAllocationHandle old = chunk->handle;
    CUresult result = gs_vmm_unmap(it->range, it->index);

    if (result != CUDA_SUCCESS)
        return result;
    /* Both hold the same bytes, so either will do. A single call may fail for reasons of its
     * own. */
    for (unsigned i = 0; i < MAP_TRIES; i++) {
        chunk->handle = i % 2 == 0 ? fresh : old;
        result = gs_vmm_map(it->range, it->index);
        if (result == CUDA_SUCCESS)
            return chunk->handle == fresh ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
    chunk->handle = old;
    set_adrift(it, true);
    if (!self.adrift)
        self.since = gs_now();
    self.adrift = true;
    gs_log("%llu bytes at %#llx cannot be mapped (CUresult %d); trying again",
           (unsigned long long)it->bytes,
           (unsigned long long)gs_range_chunk_address(it->range, it->index), result);
    return result;
}

/* --- what is adrift --- */

static bool find_adrift(struct gs_exchange_chunk *found)
{
    *found = (struct gs_exchange_chunk){.range = NULL};
    GS_HOLD_MEMORY;
    gs_each_device (device)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            for (uint32_t k = 0; k < range->chunk_count && range->life == GS_RANGE_LIVE; k++)
                if (range->chunks[k].adrift)
                    *found =
                        (struct gs_exchange_chunk){range, k, gs_range_chunk_bytes(range, k), 0};
    return found->range != NULL;
}

void gs_exchange_mend(uint64_t now)
{
    struct gs_exchange_chunk it;

    if (!self.adrift)
        return;
    while (find_adrift(&it) && gs_context_enter(it.range->device)) {
        const CUresult result = gs_vmm_map(it.range, it.index);

        gs_context_pop();
        if (result != CUDA_SUCCESS)
            break;
        set_adrift(&it, false);
    }
    self.adrift = it.range != NULL;
    self.refusing = self.adrift && now > self.since && now - self.since > REFUSE_AFTER_NS;
}

bool gs_exchange_refuses(void)
{
    return self.refusing;
}

bool gs_exchange_is_adrift(void)
{
    return self.adrift;
}

/* --- one chunk --- */

/* Under the lock. Updates the accounts for a chunk that goes to the card, or leaves it. A range
 * that has ended is no longer in all of them. */
static void book_chunk(const struct gs_exchange_chunk *it, bool on_card)
{
    struct gs_accounts *accounts = &it->range->device->accounts;
    const uint64_t live = it->range->life == GS_RANGE_LIVE ? it->bytes : 0;

    if (on_card) {
        accounts->over -= live;
        accounts->demand += live;
        accounts->resident += it->bytes;
        it->range->over -= it->bytes;
    } else {
        accounts->over += live;
        accounts->demand -= live;
        accounts->resident -= it->bytes;
        it->range->over += it->bytes;
    }
}

static void settle_chunk(const struct gs_exchange_chunk *it, uint8_t state)
{
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    struct gs_host_block *stale;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (state == GS_CHUNK_OVER)
        book_chunk(it, false);
    chunk->state = state;
    chunk->discarded = 0;
    stale = chunk->host;
    chunk->host = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_host_put(stale);
}

/* --- the spare --- */

static void drop_spare(void)
{
    if (self.spare.bytes == 0)
        return;
    gs_vmm_release(self.spare.handle);
    gs_host_unclaim(self.spare.bytes);
    self.spare.bytes = 0;
}

void gs_exchange_end(void)
{
    const bool pushed = self.spare.bytes != 0 && gs_context_enter(self.spare.device);

    drop_spare();
    if (pushed)
        gs_context_pop();
}

/* Makes memory for the chunk, copies the chunk to it, and exchanges the two. *left is the memory
 * that the chunk had. */
static bool change_place(const struct gs_exchange_chunk *it, bool to_card,
                         CUmemGenericAllocationHandle *left)
{
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    const struct gs_chunk before = *chunk;
    CUmemGenericAllocationHandle fresh;
    bool sendable, network;
    CUresult result = CUDA_SUCCESS;
    uint64_t ns = 0;

    if (to_card) {
        result = gs_vmm_create(it->range, it->index);
    } else if (self.spare.bytes == 0) {
        result = gs_vmm_create_on_host(it->range, it->index);
    } else {
        chunk->handle = self.spare.handle;
        chunk->sendable = chunk->network = false;
        self.spare.bytes = 0; /* the claim belongs to the chunk now */
    }
    fresh = chunk->handle;
    sendable = chunk->sendable;
    network = chunk->network;
    chunk->handle = before.handle;
    chunk->sendable = before.sendable;
    chunk->network = before.network;
    if (result != CUDA_SUCCESS)
        return false;
    result = gs_vmm_copy(it->range, it->index, fresh, &ns);
    if (result == CUDA_SUCCESS) {
        const double each = (double)ns / (double)it->bytes;

        copying = copying == 0 ? each : (3 * copying + each) / 4;
        result = exchange_mappings(it, fresh);
    }
    if (result != CUDA_SUCCESS) {
        gs_log("%llu bytes at %#llx do not change places: CUresult %d",
               (unsigned long long)it->bytes,
               (unsigned long long)gs_range_chunk_address(it->range, it->index), result);
        gs_vmm_release(fresh);
        return false;
    }
    chunk->sendable = sendable;
    chunk->network = network;
    *left = before.handle;
    return true;
}

bool gs_exchange_send_beyond(const struct gs_exchange_chunk *it)
{
    CUmemGenericAllocationHandle left;

    /* a spare has its claim already */
    if (self.spare.bytes != it->bytes || self.spare.device != it->range->device) {
        drop_spare();
        if (gs_host_claim(it->bytes) != GS_HOST_CLAIMED)
            return false;
    }
    if (!change_place(it, false, &left)) {
        gs_host_unclaim(it->bytes);
        return false;
    }
    gs_vmm_release(left);
    gs_handover_forget(&it->range->chunks[it->index]);
    settle_chunk(it, GS_CHUNK_OVER);
    return true;
}

bool gs_exchange_fetch(const struct gs_exchange_chunk *it)
{
    CUmemGenericAllocationHandle left;
    bool fits;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    /* another thread may have taken the room since the look */
    fits = !gs_daemon_has_news() && gs_exchange_room(it->range->device) >= it->bytes;
    if (fits)
        book_chunk(it, true);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!fits)
        return false;
    if (!change_place(it, true, &left)) {
        GS_WITH_MEMORY(book_chunk(it, false));
        return false;
    }
    settle_chunk(it, GS_CHUNK_RESIDENT);
    drop_spare();
    self.spare.handle = left;
    self.spare.bytes = it->bytes;
    self.spare.device = it->range->device;
    return true;
}
