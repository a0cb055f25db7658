/* SPDX-License-Identifier: Apache-2.0
 *
 * moving.c: what should move now, on which device, by how much, and the host memory for it:
 * between the targets (reconcile.c) and the pipeline (swap.c).
 *
 * State: in struct gs_device, client thread only. Resident never grows beyond the budget; what
 * has no place on the host, or that no copy can reach, counts as pinned as long (moving.kept).
 */
#include "runtime/swap/moving.h"

#include "lockd/protocol/wire.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/range/handover.h"
#include "runtime/host/host.h"
#include "runtime/range/range.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/swap/loose.h"
#include "runtime/swap/swap.h"

#define MS           1000000ull
#define HOST_KEPT_NS (10000 * MS) /* after everything fitted again */
#define KEPT_LOOK_NS (1000 * MS)
#define HANDED_NS    (100 * MS) /* see note_short */

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Where memory is handed over, what has left a program and goes to nobody is there when that
 * program and the daemon have both closed its descriptor, a moment after its room was given
 * away: tried again before anybody hears of it. */
static void note_short(struct gs_device *device, uint64_t lacking, uint64_t now)
{
    if (device->moving.short_since == 0)
        device->moving.short_since = now;
    if ((gs_device_flags(device) & GS_TARGET_GIVE) != 0 &&
        now - device->moving.short_since < HANDED_NS) {
        device->moving.retry_at = now + 2 * MS;
        return;
    }
    device->report.short_bytes = lacking;
    device->moving.retry_at = now + 20 * MS;
    if (now - device->moving.short_since > GS_SHORT_LIMIT_NS)
        gs_gate_refuse(true);
}

/* The reason to fail calls is over: they wait again. (A refused call wants nothing, so nobody
 * would give this program a turn that opens the gate.) */
static void stop_refusing(uint64_t *since, uint64_t now)
{
    if (*since != 0 && now - *since > GS_SHORT_LIMIT_NS)
        gs_gate_refuse(false);
    *since = 0;
}

static void set_kept(struct gs_device *device, uint64_t bytes)
{
    atomic_store_explicit(&device->moving.kept, bytes, memory_order_relaxed);
}

/* Kept memory is tried again now and then: there may be host memory, or an address. */
static bool should_leave(const struct gs_device *device, const struct gs_accounts *accounts,
                         uint64_t budget, uint64_t now)
{
    const uint64_t kept = atomic_load_explicit(&device->moving.kept, memory_order_relaxed);

    return accounts->resident > budget && (accounts->resident > budget + kept ||
                                           now - device->moving.kept_looked_at > KEPT_LOOK_NS);
}

static bool move_out(struct gs_device *device, uint64_t excess, uint64_t now)
{
    switch (gs_swap_out(device, excess)) {
    case GS_SWAP_SHORT:
        device->moving.retry_at = now + 20 * MS;
        return false;
    case GS_SWAP_KEPT:
        device->moving.kept_looked_at = now;
        set_kept(device, excess);
        return false;
    case GS_SWAP_NOTHING: /* what has been freed leaves by itself */
        device->moving.retry_at = now + 20 * MS;
        device->moving.kept_looked_at = now;
        set_kept(device, smaller_of(excess, gs_memory_out_of_reach(device)));
        return false;
    default:
        device->moving.was_out = true;
        return true;
    }
}

/* Never more is kept than there is beyond the budget; alone, nothing need leave. */
static void update_kept(struct gs_device *device, uint64_t resident, uint64_t budget)
{
    const uint64_t kept = atomic_load_explicit(&device->moving.kept, memory_order_relaxed);

    if (kept == 0)
        return;
    if ((gs_device_flags(device) & GS_TARGET_SOLE) != 0 || resident <= budget)
        set_kept(device, 0);
    else if (kept > resident - budget)
        set_kept(device, resident - budget);
}

/* More is needed than the program may ever have (others took it for good): its calls must not
 * wait for ever. */
static void watch_never(struct gs_device *device, const struct gs_accounts *accounts,
                        uint64_t now)
{
    if (accounts->missing == 0 || accounts->demand <= gs_device_room(device))
        stop_refusing(&device->moving.never_since, now);
    else if (device->moving.never_since == 0)
        device->moving.never_since = now;
    else if (now - device->moving.never_since > GS_SHORT_LIMIT_NS)
        gs_gate_refuse(true);
}

/* Managed memory that is not counted has its turns as well; what no longer has room in the
 * program's demand is counted no more, and so is not missing for ever. In the turn it is in the
 * way of memory that is missing if the budget does not suffice, since the daemon takes its pages
 * for others', or if the driver has no room. (Work that still runs brings its pages back.) True:
 * there is more to send. */
static bool move_loose(struct gs_device *device, const struct gs_accounts *accounts,
                       uint64_t budget, bool stopped, bool may_leave)
{
    const bool in_the_way = accounts->missing != 0 &&
                            (accounts->demand > budget || device->moving.short_since != 0);
    const bool runs = (gs_device_flags(device) & GS_TARGET_RUN) != 0 && !in_the_way;
    const uint64_t room = gs_device_room(device);

    if (accounts->managed != 0 && accounts->demand > room)
        gs_loose_more(device, accounts->demand - room);
    if (runs && device->moving.loose_out) {
        gs_loose_begin(device, stopped);
        device->moving.loose_out = false;
    }
    if (runs || (!stopped && !in_the_way) || !may_leave || !gs_loose_send_one(device))
        return false;
    device->moving.loose_out = true;
    return true;
}

static bool move_in(struct gs_device *device, uint64_t room, uint64_t now, int news)
{
    uint64_t lacking;

    switch (gs_swap_in(device, room, news, &lacking)) {
    case GS_SWAP_MOVED:
        device->moving.short_since = 0;
        return true;
    case GS_SWAP_SHORT:
        if (gs_context_for(device) != NULL)
            note_short(device, lacking, now);
        else /* nowhere to copy, and nobody to call: it is not the card that lacks anything */
            device->moving.retry_at = now + 20 * MS;
        return false;
    default:
        return false;
    }
}

/* Memory in hand is for what is missing: without that, or without room, it is released. (With
 * RUN off there is none: gs_handover_heard.) */
static struct gs_accounts look_at(struct gs_device *device, uint64_t budget)
{
    const struct gs_accounts accounts = gs_memory_accounts(device);
    const uint64_t in_hand = gs_handover_in_hand(device);
    uint64_t most = in_hand;

    if (in_hand == 0)
        return accounts;
    if (accounts.missing == 0)
        most = 0;
    else if (accounts.resident > budget)
        most = in_hand - smaller_of(in_hand, accounts.resident - budget);
    gs_handover_shrink(device, most);
    return gs_memory_accounts(device);
}

bool gs_moving_step(uint64_t now, bool stopped, bool may_leave, int news)
{
    struct gs_device *device;
    bool more = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        const uint64_t budget =
            atomic_load_explicit(&device->target.budget, memory_order_relaxed);
        struct gs_accounts accounts = look_at(device, budget);
        uint64_t here;

        /* it may stay after all; chunks that have come in count */
        if (((!stopped || accounts.resident <= budget) && gs_swap_is_under_way(device, true)) ||
            ((gs_device_flags(device) & GS_TARGET_RUN) == 0 &&
             gs_swap_is_under_way(device, false))) {
            gs_swap_settle();
            accounts = gs_memory_accounts(device);
        }
        more |= move_loose(device, &accounts, budget, stopped, may_leave);
        accounts = gs_memory_accounts(device);
        update_kept(device, accounts.resident, budget);
        watch_never(device, &accounts, now);
        if ((gs_device_flags(device) & GS_TARGET_RUN) == 0)
            stop_refusing(&device->moving.short_since, now); /* the next turn may find memory */
        here = accounts.resident - gs_handover_in_hand(device) -
               atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
        if (now < device->moving.retry_at)
            continue;
        if (stopped && may_leave && should_leave(device, &accounts, budget, now))
            more |= move_out(device, accounts.resident - budget, now);
        else if ((gs_device_flags(device) & GS_TARGET_RUN) != 0 && accounts.missing != 0 &&
                 here < budget)
            more |= move_in(device, budget - here, now, news);
        else
            continue;
        device->moving.spent_ns += gs_now() - now;
        now = gs_now();
    }
    return more;
}

/* --- host memory --- */

/* Bytes that may have to go out when another program has its turn. */
static uint64_t leaving_of(const struct gs_device *device)
{
    const uint64_t shortfall =
        atomic_load_explicit(&device->target.shortfall, memory_order_relaxed);
    const struct gs_accounts accounts = gs_memory_accounts(device);

    return gs_device_is_movable(device) && !device->managed
               ? smaller_of(accounts.demand - accounts.managed, shortfall) /* the rest is the
                                                                              driver's to keep */
               : 0;
}

static bool register_one(void)
{
    const struct gs_context *context = NULL;
    struct gs_device *device;
    CUcontext popped;
    bool more = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && context == NULL; i++)
        context = gs_context_for(device);
    if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return false;
    more = gs_host_register_one();
    gs_driver.cuCtxPopCurrent_v2(&popped);
    return more;
}

static void give_back_host_memory(uint64_t keep)
{
    const struct gs_context *context;
    struct gs_device *device;
    CUcontext popped;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        if (gs_host_used() <= keep)
            return;
        gs_swap_drop_copies(device);
        context = gs_context_for(device);
        if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
            continue;
        gs_host_trim(keep);
        gs_driver.cuCtxPopCurrent_v2(&popped);
    }
}

uint64_t gs_moving_keep_host(uint64_t now, bool needed)
{
    static uint64_t needed_at; /* ns; client thread */
    struct gs_device *device;
    uint64_t leaving = 0;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        leaving += leaving_of(device);
    if (leaving != 0)
        gs_host_prepare(leaving);
    if (leaving != 0 || needed)
        needed_at = now;
    if (gs_host_has_unregistered() && register_one())
        return 1;
    if (gs_host_used() > gs_host_budget())
        give_back_host_memory(gs_host_budget());
    else if (gs_host_used() != 0 && now - needed_at > HOST_KEPT_NS)
        give_back_host_memory(0);
    return gs_host_used() != 0 ? 200 * MS : UINT64_MAX;
}

void gs_moving_arrived(void)
{
    struct gs_device *device;
    bool switched = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++) {
        if (device->moving.was_out) {
            /* its way out and its way back */
            device->moving.switch_ns = device->moving.spent_ns;
            switched = true;
        }
        device->moving.spent_ns = 0;
        device->moving.was_out = false;
        device->report.short_bytes = 0;
    }
    if (switched)
        atomic_fetch_add_explicit(&gs_runtime.switches, 1, memory_order_relaxed);
}
