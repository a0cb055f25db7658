/* SPDX-License-Identifier: Apache-2.0
 *
 * moving.c: decides which device should move memory now, in which direction and how much, and how
 * much host memory is needed for it. It stands between the targets (reconcile.c) and the pipeline
 * (swap.c).
 *
 * State: in struct gs_device, client thread only. Resident memory never grows beyond the budget.
 * Memory that has no place on the host, or that no copy can reach, counts as pinned for as long
 * as that is so (moving.kept).
 */
#include "runtime/swap/moving.h"
#include "lockd/protocol/wire.h"
#include "runtime/base/rdma.h"
#include "runtime/gate/gate.h"
#include "runtime/swap/exchange.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/swap/loose.h"
#include "runtime/swap/swap.h"

#define MS           1000000ull
#define HOST_KEPT_NS (10000 * MS) /* for so long after everything fitted again */
#define RESTLESS_NS  (30000 * MS) /* a program without a rest for so long has none soon */
#define KEPT_LOOK_NS (1000 * MS)
#define HANDED_NS    (100 * MS) /* see move_in() */
#define LOOK_MOST_NS                                                                           \
    (1000 * MS) /* between two looks; if it is longer, the process was stopped */

static void set_kept(struct gs_device *device, uint64_t bytes)
{
    atomic_store_explicit(&device->moving.kept, bytes, memory_order_relaxed);
}

static bool move_out(struct gs_device *device, uint64_t excess, uint64_t now)
{
    /* asked once for each way out: a look reads all of the process's descriptors, which are more
     * for each piece that came from others */
    const bool stays = !gs_swap_is_under_way(device, true) && gs_rdma_is_open();

    switch (stays ? GS_SWAP_KEPT : gs_swap_out(device, excess)) {
    case GS_SWAP_SHORT:
        device->moving.retry_at = now + 20 * MS;
        return false;
    case GS_SWAP_KEPT:
        device->moving.kept_looked_at = now;
        set_kept(device, excess);
        return false;
    case GS_SWAP_NOTHING: /* memory that has been freed leaves without being moved */
        device->moving.retry_at = now + 20 * MS;
        device->moving.kept_looked_at = now;
        set_kept(device, gs_smaller(excess, gs_memory_out_of_reach(device)));
        return false;
    default:
        device->moving.was_out = true;
        return true;
    }
}

/* No more is kept than there is beyond the budget. A program that is alone need not move
 * anything. */
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

/* No call waits for ever for memory that cannot be placed. After a while what is missing goes beyond
 * the card (beyond.c): sooner if the card has no room for it than if others may be about to leave.
 * If it cannot, calls fail, until there is a reason to wait again. (A refused call wants nothing, so
 * the daemon would never give this program a turn that opens the gate.) */
static void watch_lack(struct gs_device *device, const struct gs_accounts *accounts,
                       uint64_t now)
{
    struct gs_device_moving *moving = &device->moving;
    const bool runs = (gs_device_flags(device) & GS_TARGET_RUN) != 0,
               never = accounts->demand > gs_device_room(device) ||
                       (gs_device_flags(device) & GS_TARGET_FULL) != 0,
               counts = accounts->missing != 0 && (runs || never) &&
                        gs_context_for(device) != NULL, /* else no call waits */
        full = never || moving->short_since != 0;

    /* What the program lacks, and for how long: the time in its own turns, and while it needs more than
     * it may ever have, in which nothing more came than had come before. To come and go is no
     * progress. */
    if (accounts->missing == 0 || moving->lacks_least == 0 ||
        accounts->missing < moving->lacks_least) {
        moving->lacks_least = accounts->missing;
        moving->lacks_ns = 0;
    } else if (counts && moving->lacks_at != 0) {
        moving->lacks_ns += gs_smaller(now - moving->lacks_at, LOOK_MOST_NS);
    }
    moving->lacks_at = counts ? now : 0;
    if (moving->refuses && !counts)
        moving->lacks_ns = 0;
    moving->goes_beyond = runs && moving->lacks_ns > (full ? GS_BEYOND_NS : GS_BEYOND_LATER_NS);
    moving->refuses = moving->lacks_ns > GS_SHORT_LIMIT_NS;
}

/* Managed memory that is not counted takes turns as well. Memory that no longer fits into the
 * program's demand is not counted any more, so that it is not missing for ever. During the turn,
 * loose memory is in the way of missing memory in two cases: the budget does not suffice, since
 * the daemon takes its pages for other programs', or the driver has no room. (Work that still
 * runs brings its pages back.) True: there is more to send. */
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

    if (gs_daemon_has_news()) /* the program may have been stopped since the budget was read */
        return true;
    switch (gs_swap_in(device, room, news, &lacking)) {
    case GS_SWAP_MOVED:
        device->moving.short_since = 0;
        return true;
    case GS_SWAP_SHORT:
        device->moving.retry_at = now + 20 * MS;
        if (gs_context_for(device) == NULL)
            return false; /* no context to copy with, and no call that waits */
        if (device->moving.short_since == 0)
            device->moving.short_since = now;
        /* Memory that another program gave up, and that no third one took, becomes free only when
         * that program and the daemon have both closed its descriptor. That may be a moment after
         * its room was given to this program. So a shortage is tried again for a while before it is
         * reported. */
        if ((gs_device_flags(device) & GS_TARGET_GIVE) != 0 &&
            now - device->moving.short_since < HANDED_NS)
            device->moving.retry_at = now + 2 * MS;
        else
            device->report.short_bytes = lacking;
        return false;
    default:
        return false;
    }
}

/* Memory in hand is for missing chunks. If none is missing, or there is no room, it is released.
 * (With RUN off there is none: gs_handover_heard.) */
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
        most = in_hand - gs_smaller(in_hand, accounts.resident - budget);
    gs_handover_shrink(device, most);
    return gs_memory_accounts(device);
}

bool gs_moving_step(uint64_t now, bool stopped, bool may_leave, int news)
{
    const bool stays = atomic_load_explicit(&gs_runtime.partial, memory_order_acquire);
    bool more = false, refuse;

    may_leave = may_leave && !stays;

    gs_each_device (device) {
        const uint64_t budget =
            atomic_load_explicit(&device->target.budget, memory_order_relaxed);
        struct gs_accounts accounts = look_at(device, budget);
        uint64_t here, in_hand, kept;

        /* the memory may stay after all; chunks that have come in count */
        if (((!stopped || stays || accounts.resident <= budget) &&
             gs_swap_is_under_way(device, true)) ||
            ((gs_device_flags(device) & GS_TARGET_RUN) == 0 &&
             gs_swap_is_under_way(device, false))) {
            gs_swap_settle();
            accounts = gs_memory_accounts(device);
        }
        more |= move_loose(device, &accounts, budget, stopped, may_leave);
        accounts = gs_memory_accounts(device);
        in_hand = gs_handover_in_hand(device);
        /* the memory of a partly covered program stays: all that is on the device counts as pinned;
         * what is missing comes in, and counts then */
        if (stays)
            set_kept(device, accounts.resident - in_hand);
        else
            update_kept(device, accounts.resident, budget);
        watch_lack(device, &accounts, now);
        if ((gs_device_flags(device) & GS_TARGET_RUN) == 0)
            device->moving.short_since = 0; /* the next turn may find memory */
        kept = atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
        here = accounts.resident - in_hand - kept;
        if (now < device->moving.retry_at)
            continue;
        /* now and then it is tried again to move kept memory: there may be host memory, or an
         * address, by then */
        if (stopped && may_leave && accounts.resident > budget &&
            (accounts.resident > budget + kept ||
             now - device->moving.kept_looked_at > KEPT_LOOK_NS))
            more |= move_out(device, accounts.resident - budget, now);
        else if ((gs_device_flags(device) & GS_TARGET_RUN) != 0 && accounts.missing != 0 &&
                 here < budget)
            more |= move_in(device, budget - here, now, news);
        else
            continue;
        device->moving.spent_ns += gs_now() - now;
        now = gs_now();
    }
    refuse = gs_exchange_refuses();
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_each_device (device) /* what the program has freed since the look is less to wait for */
        refuse |=
            device->moving.refuses && device->accounts.missing >= device->moving.lacks_least;
    gs_gate_refuse(refuse);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return more;
}

/* --- host memory --- */

/* Does that with a current context, if there is one; true: there is more to do. */
static bool tend_host(bool (*one)(void))
{
    const bool entered = GS_ANY_DEVICE(gs_context_enter(device)), more = one();

    if (entered)
        gs_context_pop();
    return entered && more;
}

static void give_back_host_memory(uint64_t keep, bool quiet)
{
    gs_each_device (device) {
        if (!quiet || gs_host_used() + (keep == 0 ? gs_host_foreign() : 0) <= keep)
            return;
        gs_swap_drop_copies(device);
        if (!gs_context_enter(device))
            continue;
        gs_host_trim(keep);
        gs_context_pop();
    }
}

uint64_t gs_moving_keep_host(uint64_t now, bool needed, bool quiet)
{
    static uint64_t needed_at, quiet_at; /* ns; client thread */
    uint64_t leaving = 0;

    if (quiet || quiet_at == 0)
        quiet_at = now;
    quiet = now - quiet_at <= RESTLESS_NS ? quiet : true;

    /* what may have to leave when another program has its turn, but for managed memory, which the
     * driver keeps itself */
    gs_each_device (device) {
        const uint64_t shortfall =
            atomic_load_explicit(&device->target.shortfall, memory_order_relaxed);
        const struct gs_accounts accounts = gs_memory_accounts(device);

        if (gs_device_is_movable(device) && !device->managed)
            leaving += gs_smaller(accounts.demand - accounts.managed, shortfall);
    }
    if (leaving != 0)
        gs_host_prepare(leaving);
    if (leaving != 0 || needed)
        needed_at = now;
    if ((quiet && gs_host_has_ended() && tend_host(gs_host_release_one)) ||
        (gs_host_has_unregistered() && tend_host(gs_host_register_one)))
        return 1;
    if (gs_host_used() > gs_host_budget())
        give_back_host_memory(gs_host_budget(), quiet);
    else if (gs_host_used() + gs_host_foreign() != 0 && now - needed_at > HOST_KEPT_NS)
        give_back_host_memory(0, quiet);
    return gs_host_used() + gs_host_foreign() != 0 ? 200 * MS : UINT64_MAX;
}

void gs_moving_arrived(void)
{
    bool switched = false;

    gs_each_device (device) {
        if (device->moving.was_out) {
            /* the time for its way out and its way back */
            device->moving.switch_ns = device->moving.spent_ns;
            switched = true;
        }
        device->moving.spent_ns = 0;
        device->moving.was_out = false;
        device->report.short_bytes = 0;
    }
    if (switched)
        atomic_fetch_add_explicit(&gs_counts.switches, 1, memory_order_relaxed);
}
