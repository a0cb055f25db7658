/* SPDX-License-Identifier: Apache-2.0
 *
 * beyond.c: memory that went beyond the card because it could not come to it.
 *
 * The daemon says BEYOND to a program of a job whose others wait for it in a kernel, while the
 * memory that it lacks belongs to a program of another job that is in the same state. Chunks go
 * there that have no contents yet, and once the program has stopped also those on the host: their
 * contents are copied. The driver makes and maps memory while kernels run (H200, 580.159.04: 0.6 ms
 * for 64 MiB of the card, 15 ms for as much host memory).
 *
 * While BEYOND is on, the memory is not part of the demand. Without it, it is, and the program
 * stops for as long as it takes to bring it to the card. With overcommit, placement.c decides about
 * that instead.
 *
 * What found no room on the card for too long goes there as well (moving.c), whatever the reason: a
 * program that lacks memory must not wait for ever.
 *
 * With overcommit memory goes beyond the card in the same way when less of the card is left than the
 * program's part of it, since others' contexts came later. If nothing that is missing can go there, as
 * memory that may be exported cannot, what is on the card goes and makes room.
 *
 * State: client thread only.
 */
#include "runtime/swap/beyond.h"
#include "lockd/protocol/wire.h"
#include "runtime/base/rdma.h"
#include "runtime/range/host.h"
#include "runtime/range/backend.h"
#include "runtime/range/over.h"
#include "runtime/range/uses.h"
#include "runtime/swap/exchange.h"
#include "runtime/swap/swap.h"

#define PATIENCE_NS 10000000000ull /* for room that does not come */
#define AGAIN_NS    20000000ull
#define ROUND_NS    100000000ull /* the driver takes 20 ms for 64 MiB; the daemon wants answers */

static struct {
    bool asks;         /* for host memory */
    bool any;          /* some may be there */
    bool coming;       /* it is brought back */
    bool excess;       /* the card has become too small for the program's part */
    uint64_t since;    /* ns: it waits, or has got ahead */
    uint64_t retry_at; /* ns */
    uint64_t
        away_until; /* ns: before, what had no room on the card does not come back: meanwhile the
                            daemon learns how much there is */
} self;

static bool is_told(const struct gs_device *device)
{
    return (gs_device_flags(device) & GS_TARGET_BEYOND) != 0;
}

/* The bytes that may go beyond the card because it has become too small; 0: it has not. Not in
 * others' turns: it may be large enough again in the program's own. */
static uint64_t most_of_excess(const struct gs_device *device)
{
    const struct gs_accounts accounts = gs_memory_accounts(device);
    const uint64_t limit = gs_over_limit(device);

    return (gs_device_flags(device) & GS_TARGET_RUN) != 0 && accounts.missing != 0 &&
                   accounts.demand - accounts.managed > gs_device_room(device) &&
                   limit > accounts.over
               ? limit - accounts.over
               : 0;
}

/* The same for what is on the card, which makes room for what is missing and cannot go there. */
static uint64_t most_of_present(const struct gs_device *device)
{
    return device->moving.goes_beyond ? UINT64_MAX : most_of_excess(device);
}

/* Under the lock: a chunk in that state, with at most so many bytes. Chunks of a range that is
 * not live are not looked at: the thread that frees it changes them without the lock. */
static bool pick_chunk(const struct gs_device *device, uint8_t state, uint64_t most,
                       struct gs_exchange_chunk *found)
{
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++)
            if (gs_exchange_is_free(range, i) && range->chunks[i].state == state &&
                gs_range_chunk_bytes(range, i) <= most) {
                *found =
                    (struct gs_exchange_chunk){range, i, gs_range_chunk_bytes(range, i), 0};
                return true;
            }
    return false;
}

/* What is missing. */
static bool find_missing(const struct gs_device *device, bool stopped,
                         struct gs_exchange_chunk *found)
{
    const uint64_t most = is_told(device) ? UINT64_MAX : most_of_present(device);

    GS_HOLD_MEMORY;
    return pick_chunk(device, GS_CHUNK_ABSENT, most, found) ||
           (stopped && pick_chunk(device, GS_CHUNK_HOST, most, found));
}

/* --- there --- */

/* The range may have ended meanwhile: then it is in no account any more. */
static void book_chunk(const struct gs_exchange_chunk *it)
{
    struct gs_accounts *accounts = &it->range->device->accounts;
    struct gs_chunk *chunk = &it->range->chunks[it->index];
    struct gs_host_block *stale;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (it->range->life == GS_RANGE_LIVE) {
        accounts->over += it->bytes;
        accounts->demand -= it->bytes;
        accounts->missing -= gs_range_is_needed(it->range) ? it->bytes : 0;
    }
    it->range->over += it->bytes;
    chunk->state = GS_CHUNK_OVER;
    stale = chunk->host;
    chunk->host = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_host_put(stale);
}

/* False: the driver refuses, or there is no host memory, at least not yet: the daemon is asked. */
static bool put_chunk(const struct gs_exchange_chunk *it)
{
    const enum gs_host_claim claim = gs_host_claim(it->bytes);

    self.asks = claim == GS_HOST_LATER;
    if (claim != GS_HOST_CLAIMED)
        return false;
    if (!gs_over_make(it->range, it->index)) {
        gs_host_unclaim(it->bytes);
        return false;
    }
    if (it->range->chunks[it->index].state == GS_CHUNK_HOST &&
        !gs_swap_fill(it->range, it->index)) {
        gs_backend_of(it->range)->remove(it->range, it->index);
        gs_host_unclaim(it->bytes);
        return false;
    }
    book_chunk(it);
    return true;
}

/* Where nothing that is missing can go, and nothing is on its way: a chunk that is on the card. */
static bool send_chunk(const struct gs_device *device, struct gs_exchange_chunk *it)
{
    const uint64_t most = most_of_present(device);
    bool sent;

    if (most == 0 || gs_rdma_is_open() || gs_swap_is_under_way(device, false) ||
        gs_swap_is_under_way(device, true) ||
        !GS_WITH_MEMORY(pick_chunk(device, GS_CHUNK_RESIDENT, most, it)))
        return false;
    sent = gs_exchange_send_beyond(it);
    self.asks = !sent;
    return sent;
}

/* True: some went, and there may be more. */
static bool put_device(struct gs_device *device, bool stopped, uint64_t until)
{
    struct gs_exchange_chunk it;
    uint64_t bytes = 0;

    if (!gs_context_enter(device))
        return false;
    while ((bytes == 0 || gs_now() < until) && find_missing(device, stopped, &it) &&
           put_chunk(&it))
        bytes += it.bytes;
    while (stopped && (bytes == 0 || gs_now() < until) && send_chunk(device, &it))
        bytes += it.bytes;
    gs_context_pop();
    if (bytes == 0)
        return false;
    gs_log("%llu bytes went beyond the card: %s", (unsigned long long)bytes,
           is_told(device)              ? "jobs wait for each other's memory"
           : device->moving.goes_beyond ? "there was no room on it for too long"
                                        : "others have more of it");
    self.any = true;
    if (device->moving.goes_beyond)
        self.away_until = gs_now() + PATIENCE_NS;
    /* placement.c goes by the uses, which cost each call something */
    if (gs_over_limit(device) != 0)
        gs_uses_begin();
    return true;
}

bool gs_beyond_put(bool closed, bool stopped)
{
    const uint64_t until = gs_now() + ROUND_NS;
    const bool asked = self.asks;
    struct gs_device *device;
    bool more = false;

    self.asks = false;
    for (unsigned i = 0; closed && !more && (device = gs_device_at(i)) != NULL; i++)
        if (!device->managed && gs_memory_accounts(device).missing != 0)
            more = put_device(device, stopped, until);
    if (asked && !self.asks)
        gs_host_give_up_claim();
    return more;
}

/* --- and back --- */

uint64_t gs_beyond_due(const struct gs_device *device, const struct gs_accounts *accounts)
{
    uint64_t room = gs_device_room(device), bytes = 0;

    if (accounts->over == 0 || is_told(device) || gs_over_limit(device) != 0 ||
        gs_now() < self.away_until || gs_rdma_is_open() || room <= accounts->demand)
        return 0;
    room -= accounts->demand;
    GS_HOLD_MEMORY; /* of the chunks that may come; not of what was pinned there, which stays */
    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count && range->over != 0; i++)
            if (gs_exchange_is_free(range, i) && range->chunks[i].state == GS_CHUNK_OVER &&
                gs_range_chunk_bytes(range, i) <= room - bytes)
                bytes += gs_range_chunk_bytes(range, i);
    return bytes;
}

/* A program that runs stops once, for all of it. */
static uint64_t look_for_return(uint64_t now, bool may_run, bool stopped)
{
    bool due = false, any = false;

    if (!self.any)
        return UINT64_MAX;
    gs_each_device (device) {
        const struct gs_accounts accounts = gs_memory_accounts(device);
        const uint64_t bytes = gs_beyond_due(device, &accounts);

        any |= accounts.over != 0;
        due |= bytes != 0 &&
               (self.coming || stopped || GS_WITH_MEMORY(gs_exchange_room(device)) >= bytes);
    }
    if (!any)
        gs_log("no memory is beyond the card any more");
    self.any = any;
    if (!due || !may_run || !self.coming)
        self.since = now;
    if (now - self.since > PATIENCE_NS)
        self.retry_at = now + PATIENCE_NS;
    due = due && may_run && now >= self.retry_at;
    if (self.coming && !due)
        gs_exchange_end();
    self.coming = due;
    return due ? AGAIN_NS : UINT64_MAX;
}

uint64_t gs_beyond_look(uint64_t now, bool may_run, bool stopped)
{
    const uint64_t due = look_for_return(now, may_run, stopped);

    self.excess = may_run && GS_ANY_DEVICE(most_of_present(device) != 0);
    return self.excess ? AGAIN_NS : due;
}

bool gs_beyond_needs_stop(void)
{
    return self.coming || self.excess;
}

bool gs_beyond_step(uint64_t now)
{
    struct gs_device *device;
    struct gs_exchange_chunk it;

    for (unsigned i = 0; self.coming && (device = gs_device_at(i)) != NULL; i++) {
        const struct gs_accounts accounts = gs_memory_accounts(device);
        bool fetched;

        if (gs_beyond_due(device, &accounts) == 0 ||
            !GS_WITH_MEMORY(pick_chunk(device, GS_CHUNK_OVER, gs_exchange_room(device), &it)))
            continue;
        if (!gs_context_enter(device))
            return false;
        fetched = gs_exchange_fetch(&it);
        gs_context_pop();
        if (fetched) /* else others' memory may be about to become free */
            self.since = now;
        return fetched;
    }
    return false;
}

void gs_beyond_after_fork(void)
{
    self.asks = self.any = self.coming = self.excess = false;
    self.since = self.retry_at = self.away_until = 0;
}
