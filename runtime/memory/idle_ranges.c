/* SPDX-License-Identifier: Apache-2.0
 *
 * idle_ranges.c: owns the lists of idle ranges of each device (in struct gs_device, by size, the
 * newest first).
 *
 * Invariants, under gs_memory_lock: a range is in a list exactly while its life is IDLE. Then it
 * is resident as a whole, in no account but `resident`, and nothing on the GPU uses it.
 * device->accounts.idle is the sum of all. A thread that takes a range out of its list owns it.
 * Any thread.
 */
#include "runtime/memory/idle_ranges.h"
#include "lockd/protocol/wire.h"
#include "runtime/range/backend.h"
#include "runtime/swap/swap.h"
#include "runtime/memory/pool_accounts.h"

#define KEPT_NS    1000000000ull
#define LOOK_NS    250000000ull
#define BATCH      64
#define SCAN_LIMIT 64 /* ranges of a list that are looked at for one of the right size */

static struct gs_range **list_of(struct gs_device *device, uint64_t reserved)
{
    const unsigned list = 63u - (unsigned)__builtin_clzll(reserved / device->granule | 1);

    return &device->idle.lists[list < GS_IDLE_SIZES ? list : GS_IDLE_SIZES - 1];
}

static void enlist_range(struct gs_range *range)
{
    struct gs_range **head = list_of(range->device, range->reserved);

    range->idle.next = *head;
    if (range->idle.next != NULL)
        range->idle.next->idle.link = &range->idle.next;
    range->idle.link = head;
    *head = range;
    range->device->accounts.idle += range->reserved;
    range->life = GS_RANGE_IDLE;
}

static void delist_range(struct gs_range *range)
{
    *range->idle.link = range->idle.next;
    if (range->idle.next != NULL)
        range->idle.next->idle.link = range->idle.link;
    range->device->accounts.idle -= range->reserved;
    range->life = GS_RANGE_DISPOSING;
}

/* Bytes that may be idle now: half of the card for a program that is alone, an eighth without a
 * daemon to ask, and a small part beside others; nothing while others wait. */
static uint64_t most_idle(const struct gs_device *device)
{
    const uint32_t flags = gs_device_flags(device);

    if ((flags & GS_TARGET_RUN) == 0 || (flags & GS_TARGET_WAITERS) != 0)
        return 0;
    if (gs_daemon_is_absent())
        return device->total / 8;
    return (flags & GS_TARGET_SOLE) != 0 ? device->total / 2 : device->total / 64;
}

bool gs_idle_put(struct gs_range *range)
{
    const struct gs_device *device = range->device;

    if (gs_backend_of(range)->send != NULL) /* it ends with the context that it was made in */
        return false;
    if (range->own != NULL || range->pinned || range->over != 0 || device->broken ||
        (range->pool != NULL && range->pool->peer_count != 0) || !gs_range_is_whole(range) ||
        device->accounts.idle + range->reserved > most_idle(device))
        return false;
    gs_pool_settle(range);
    range->idle.since = gs_now();
    enlist_range(range);
    return true;
}

struct gs_range *gs_idle_take(struct gs_device *device, const struct gs_pool *pool,
                              uint64_t reserved)
{
    struct gs_range *range = *list_of(device, reserved);

    if (pool != NULL && pool->peer_count != 0)
        return NULL; /* it must be mapped with their access */
    for (unsigned i = 0; range != NULL && i < SCAN_LIMIT; i++, range = range->idle.next)
        if (range->reserved == reserved && (range->pool == NULL || range->pool == pool)) {
            delist_range(range);
            return range;
        }
    return NULL;
}

struct wanted {
    const struct gs_pool *pool; /* of this pool; NULL: any */
    uint64_t bytes;             /* at least so many */
    uint64_t before;            /* ns; those idle since before go too, but for pools' */
};

static unsigned collect_idle(struct gs_device *device, const struct wanted *wanted,
                             uint64_t *sum, struct gs_range **batch)
{
    unsigned count = 0;

    GS_HOLD_MEMORY;
    for (unsigned i = GS_IDLE_SIZES; i-- > 0;)
        for (struct gs_range *range = device->idle.lists[i], *next;
             range != NULL && count < BATCH; range = next) {
            next = range->idle.next;
            if (wanted->pool != NULL && range->pool != wanted->pool)
                continue;
            if (*sum >= wanted->bytes &&
                (range->pool != NULL || range->idle.since >= wanted->before))
                continue;
            delist_range(range);
            gs_pool_leave(range);
            *sum += range->reserved;
            batch[count++] = range;
        }
    return count;
}

static uint64_t give_back(struct gs_device *device, const struct wanted *wanted)
{
    struct gs_range *batch[BATCH];
    uint64_t sum = 0;
    unsigned count;

    do {
        count = collect_idle(device, wanted, &sum, batch);
        for (unsigned i = 0; i < count; i++)
            gs_swap_dispose(batch[i]);
    } while (count == BATCH);
    return sum;
}

uint64_t gs_idle_give_back(struct gs_device *device, const struct gs_pool *pool, uint64_t bytes)
{
    return give_back(device, &(struct wanted){.pool = pool, .bytes = bytes});
}

void gs_idle_trim(struct gs_device *device, uint64_t now)
{
    const struct gs_accounts accounts = gs_memory_accounts(device);
    const uint64_t budget = atomic_load_explicit(&device->target.budget, memory_order_relaxed),
                   limit = most_idle(device);
    struct wanted wanted = {0};

    if (accounts.idle == 0)
        return;
    if (accounts.resident + accounts.missing > budget)
        wanted.bytes = accounts.resident + accounts.missing - budget;
    if (accounts.idle > limit && accounts.idle - limit > wanted.bytes)
        wanted.bytes = accounts.idle - limit;
    if (now - device->idle.looked_at > LOOK_NS) {
        device->idle.looked_at = now;
        wanted.before = now > KEPT_NS ? now - KEPT_NS : 0;
    }
    if ((wanted.bytes != 0 || wanted.before != 0) && give_back(device, &wanted) != 0)
        gs_worker_wake(); /* the daemon is to learn of it */
}
