/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c: exchanges chunks between the card and the host memory beyond it.
 *
 * A look ends a window: as long as the program took to use, by what its calls show, WINDOW times
 * as many bytes as it has. So memory that is used in turns is used about as often in every
 * window, however long a turn takes, and stays where it is. An exchange must win twice its cost
 * within HORIZON such windows, and all of a window's take no more than half of its time.
 *
 * A chunk changes places as a whole or stays: its new memory is filled at an address of our
 * own, and only the mappings at its address are exchanged then. State: client thread only.
 */
#include "runtime/swap/placement.h"

#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/host/host.h"
#include "runtime/range/chunk.h"
#include "runtime/range/handover.h"
#include "runtime/range/memory_lock.h"
#include "runtime/range/over.h"
#include "runtime/range/owners.h"
#include "runtime/range/range.h"
#include "runtime/range/uses.h"
#include "runtime/range/vmm.h"

#define MS        1000000ull
#define LOOK_NS   (50 * MS)
#define WINDOW    4u
#define HORIZON   20u
#define COPYING   0.02 /* ns a byte, until it is measured: 50 GB/s */
#define MAP_TRIES 16

struct choice {
    struct gs_range *range;
    uint32_t index;
    uint64_t bytes, used;
};

static struct {
    bool pending;
    uint64_t looked_at, window_from; /* ns */
    uint64_t noted;                  /* bytes of this window */
    uint64_t until;                  /* ns: no exchange begins after, in this window */
    double cost;                     /* ns a byte that changes places; 0: not measured */
    double copying;                  /* of these, until it is copied; 0: not measured */
} self;

/* --- choosing --- */

/* Under the lock: it may change places. */
static bool is_free(const struct gs_range *range, uint32_t index)
{
    return range->life == GS_RANGE_LIVE && !range->pinned && range->exports == NULL &&
           range->moving == 0 && !range->chunks[index].moving && gs_over_suits(range) &&
           gs_range_is_needed(range) && (range->own == NULL || !range->own->worked_on);
}

static double density_of(const struct choice *choice)
{
    return (double)choice->used / (double)choice->bytes;
}

/* Under the lock: the most used chunk beyond the card, or the least used one on it, of at least so
 * many bytes. */
static bool find_chunk(const struct gs_device *device, uint8_t state, uint64_t least,
                       struct choice *found)
{
    found->range = NULL;
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++) {
            const struct choice it = {range, i, gs_range_chunk_bytes(range, i),
                                      range->chunks[i].heat};

            if (range->chunks[i].state != state || it.bytes < least || !is_free(range, i))
                continue;
            if (found->range == NULL ||
                (state == GS_CHUNK_OVER ? density_of(&it) > density_of(found)
                                        : density_of(&it) < density_of(found)))
                *found = it;
        }
    return found->range != NULL;
}

/* under the lock: bytes that the card has for chunks from beyond it */
static uint64_t room_on_card(const struct gs_device *device)
{
    const uint64_t budget = atomic_load_explicit(&device->target.budget, memory_order_relaxed),
                   room = gs_device_room(device);
    const uint64_t by_budget =
        budget > device->accounts.resident ? budget - device->accounts.resident : 0;
    const uint64_t by_room =
        room > device->accounts.demand ? room - device->accounts.demand : 0;

    return by_budget < by_room ? by_budget : by_room;
}

/* Kernels reach host memory about as fast as copies do: both wait for the bus. */
static double bus_ns(double bytes)
{
    return bytes * (self.copying != 0 ? self.copying : COPYING);
}

/* ns that the bytes of the difference take over the bus, in all windows to come */
static double gain_of(const struct choice *hot, const struct choice *cold)
{
    const double less = cold->range != NULL ? density_of(cold) * (double)hot->bytes : 0;

    return bus_ns((double)hot->used - less) * HORIZON;
}

static double cost_of(const struct choice *hot, const struct choice *cold)
{
    const uint64_t bytes = hot->bytes + (cold->range != NULL ? cold->bytes : 0);

    return self.cost != 0 ? self.cost * (double)bytes : bus_ns((double)bytes) + 10.0 * MS;
}

/* Under the lock: what is to come in next, and what makes room for it (range NULL: nothing has
 * to). */
static bool choose_exchange(const struct gs_device *device, struct choice *hot,
                            struct choice *cold)
{
    uint64_t room;

    *cold = (struct choice){.range = NULL};
    if (device->accounts.over == 0 || device->accounts.missing != 0 || device->broken ||
        !find_chunk(device, GS_CHUNK_OVER, 0, hot) || hot->used == 0)
        return false;
    room = room_on_card(device);
    /* one that makes all of the room, if there is such a one */
    if (room < hot->bytes &&
        ((!find_chunk(device, GS_CHUNK_RESIDENT, hot->bytes - room, cold) &&
          !find_chunk(device, GS_CHUNK_RESIDENT, 0, cold)) ||
         density_of(hot) < 2 * density_of(cold)))
        return false;
    return gain_of(hot, cold) > 2 * cost_of(hot, cold);
}

static bool choose_any(struct choice *hot, struct choice *cold)
{
    const struct gs_device *device;
    bool found = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; !found && (device = gs_device_at(i)) != NULL; i++)
        found = choose_exchange(device, hot, cold);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return found;
}

/* --- changing places --- */

static void learn_cost(double *figure, uint64_t from, uint64_t bytes)
{
    const double each = (double)(gs_now() - from) / (double)bytes;

    *figure = *figure == 0 ? each : (3 * *figure + each) / 4;
}

static CUresult copy_chunk(const struct choice *it, CUdeviceptr there)
{
    const uint64_t from = gs_now();
    CUresult result = gs_driver.cuMemcpyDtoD_v2(
        there, gs_range_chunk_address(it->range, it->index), it->bytes);

    if (result == CUDA_SUCCESS)
        result = gs_driver.cuCtxSynchronize(); /* the copy does not wait for itself */
    if (result == CUDA_SUCCESS)
        learn_cost(&self.copying, from, it->bytes);
    return result;
}

/* New memory at an address of our own; the chunk's contents are copied there. */
static CUresult fill_elsewhere(const struct choice *it, CUmemGenericAllocationHandle fresh)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->range->device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr there = 0;
    CUresult result = gs_driver.cuMemAddressReserve(&there, it->bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_driver.cuMemMap(there, it->bytes, 0, fresh, 0);
    if (result == CUDA_SUCCESS) {
        result = gs_driver.cuMemSetAccess(there, it->bytes, &access, 1);
        if (result == CUDA_SUCCESS)
            result = copy_chunk(it, there);
        gs_vmm_unmap_at(there, it->bytes);
    }
    gs_driver.cuMemAddressFree(there, it->bytes);
    return result;
}

/* Maps the one memory in the other's place. On error the old one is back. */
static CUresult exchange_mappings(const struct choice *it, CUmemGenericAllocationHandle fresh)
{
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    const CUmemGenericAllocationHandle old = chunk->handle;
    CUresult result = gs_vmm_unmap(it->range, it->index);

    if (result != CUDA_SUCCESS)
        return result;
    /* One of them must be there in the end: they hold the same. A failure may be that call's
     * alone. */
    for (unsigned i = 0; i < MAP_TRIES; i++) {
        chunk->handle = i % 2 == 0 ? fresh : old;
        result = gs_vmm_map(it->range, it->index);
        if (result == CUDA_SUCCESS)
            break;
    }
    return chunk->handle == fresh ? result : CUDA_ERROR_UNKNOWN;
}

/* The accounts follow; a range that has ended meanwhile is in some of them no more. */
static void settle_accounts(const struct choice *it, bool to_card)
{
    struct gs_accounts *accounts = &it->range->device->accounts;
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    struct gs_host_block *stale;
    bool live;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    live = it->range->life == GS_RANGE_LIVE;
    if (to_card) {
        accounts->over -= live ? it->bytes : 0;
        accounts->demand += live ? it->bytes : 0;
        accounts->resident += it->bytes;
        it->range->over -= it->bytes;
    } else {
        accounts->over += live ? it->bytes : 0;
        accounts->demand -= live ? it->bytes : 0;
        accounts->resident -= it->bytes;
        it->range->over += it->bytes;
    }
    chunk->state = to_card ? GS_CHUNK_RESIDENT : GS_CHUNK_OVER;
    chunk->discarded = 0;
    stale = chunk->host;
    chunk->host = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_host_put(stale);
    if (to_card)
        gs_host_unclaim(it->bytes);
}

/* Copies the chunk to the memory that make() makes, which takes its place. */
static bool change_place(const struct choice *it, bool to_card)
{
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    struct gs_chunk before = *chunk;
    CUmemGenericAllocationHandle fresh;
    bool sendable;
    CUresult result = to_card ? gs_vmm_create(it->range, it->index)
                              : gs_vmm_create_on_host(it->range, it->index);

    fresh = chunk->handle;
    sendable = chunk->sendable;
    chunk->handle = before.handle;
    chunk->sendable = before.sendable;
    if (result != CUDA_SUCCESS)
        return false;
    result = fill_elsewhere(it, fresh);
    if (result == CUDA_SUCCESS)
        result = exchange_mappings(it, fresh);
    if (result != CUDA_SUCCESS) {
        gs_log("%llu bytes at %#llx do not change places: CUresult %d",
               (unsigned long long)it->bytes,
               (unsigned long long)gs_range_chunk_address(it->range, it->index), result);
        gs_vmm_release(fresh);
        return false;
    }
    chunk->sendable = sendable;
    gs_vmm_release(before.handle);
    if (!to_card)
        gs_handover_forget(chunk);
    settle_accounts(it, to_card);
    return true;
}

static bool send_beyond(const struct choice *it)
{
    if (gs_host_claim(it->bytes) != GS_HOST_CLAIMED)
        return false;
    if (change_place(it, false))
        return true;
    gs_host_unclaim(it->bytes);
    return false;
}

static bool fits_now(const struct choice *hot)
{
    bool fits;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    fits = room_on_card(hot->range->device) >= hot->bytes;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return fits;
}

/* In a context of the device. False: the driver, or the host, has refused something. */
static bool exchange_chunks(const struct choice *hot, const struct choice *cold)
{
    const struct gs_context *context = gs_context_for(hot->range->device);
    const uint64_t from = gs_now();
    uint64_t bytes = 0;
    bool done = true;
    CUcontext popped;

    if (context == NULL || gs_context_push(context->handle) != CUDA_SUCCESS)
        return false;
    if (cold->range != NULL) {
        done = send_beyond(cold);
        bytes += done ? cold->bytes : 0;
    }
    if (done && fits_now(hot)) { /* else another one has to go, too */
        done = change_place(hot, true);
        bytes += done ? hot->bytes : 0;
    }
    gs_driver.cuCtxPopCurrent_v2(&popped);
    if (bytes != 0) {
        learn_cost(&self.cost, from, bytes);
        atomic_fetch_add_explicit(&gs_runtime.exchanged, bytes, memory_order_relaxed);
    }
    return done;
}

/* --- when --- */

/* A window has ended: what was used in it counts twice as much as in the one before. */
static void close_window(uint64_t now)
{
    struct gs_device *device;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            for (uint32_t k = 0; k < range->chunk_count; k++) {
                range->chunks[k].heat = (range->chunks[k].heat + range->chunks[k].used) / 2;
                range->chunks[k].used = 0;
            }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    self.until = now + (now - self.window_from) / 2;
    self.window_from = now;
    self.noted = 0;
}

static uint64_t all_memory(void)
{
    const struct gs_device *device;
    uint64_t bytes = 0;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        const struct gs_accounts accounts = gs_memory_accounts(device);

        bytes += accounts.demand + accounts.over;
    }
    return bytes;
}

uint64_t gs_placement_look(uint64_t now, bool may_run)
{
    struct choice hot, cold;

    if (!atomic_load_explicit(&gs_uses_noted, memory_order_relaxed))
        return UINT64_MAX;
    if (!may_run) {
        self.pending = false;
        return UINT64_MAX;
    }
    if (now - self.looked_at < LOOK_NS)
        return LOOK_NS - (now - self.looked_at);
    self.looked_at = now;
    if (self.window_from == 0)
        self.window_from = now;
    self.noted += gs_uses_take();
    if (self.noted >= WINDOW * all_memory()) {
        close_window(now);
        self.pending = choose_any(&hot, &cold);
    }
    return LOOK_NS;
}

bool gs_placement_needs_stop(void)
{
    return self.pending;
}

bool gs_placement_step(void)
{
    struct choice hot, cold;

    if (!self.pending)
        return false;
    self.pending =
        gs_now() < self.until && choose_any(&hot, &cold) && exchange_chunks(&hot, &cold);
    return self.pending;
}

void gs_placement_after_fork(void)
{
    self.pending = false;
    self.looked_at = self.window_from = self.noted = self.until = 0;
}
