/* SPDX-License-Identifier: Apache-2.0
 *
 * managed_memory.c: the program's calls on its managed memory, as changes of ranges.
 *
 * Small pieces do not count: a program may have very many of them, which together are little.
 * Memory that is attached to the host or to one stream does not count in that time. The program's
 * advice about it is kept here until it is attached to all streams again. State: that list, and
 * the ranges, under gs_memory_lock.
 */
#include "runtime/memory/managed_memory.h"
#include "runtime/gate/gate.h"
#include "runtime/range/program_managed.h"
#include "runtime/swap/swap.h"

#define LEAST_BYTES (64ull << 10)

/* how a location is kept in a span */
#define AT_HOST (-1) /* CU_DEVICE_CPU */
#define AT_NODE (-2) /* and lower: NUMA node 0, 1, ... */

/* Memory that does not count for a while. */
struct aside {
    struct aside *next;
    CUdeviceptr base;
    uint64_t bytes;
    struct gs_program_managed theirs;
};

static struct aside *asides;
static _Atomic(bool) has_lent; /* relaxed: set before the program has the address */

bool gs_managed_has_lent(void)
{
    return atomic_load_explicit(&has_lent, memory_order_relaxed);
}

/* --- what is set aside; under the lock --- */

static struct aside **find_aside(CUdeviceptr base)
{
    struct aside **at = &asides;

    while (*at != NULL && (*at)->base != base)
        at = &(*at)->next;
    return at;
}

static struct aside *remove_aside(CUdeviceptr base)
{
    struct aside **at = find_aside(base), *aside = *at;

    if (aside != NULL)
        *at = aside->next;
    return aside;
}

static void forget_aside(CUdeviceptr base)
{
    struct aside *aside = GS_WITH_MEMORY(remove_aside(base));

    if (aside != NULL)
        gs_program_managed_clear(&aside->theirs);
    free(aside);
}

/* --- making and ending --- */

/* Inside the gate, memory that fits is brought in at once. The rest is missing, or left to the
 * driver if there is no daemon to make room. */
static void enter_life(struct gs_range *range, uint64_t bytes)
{
    unsigned pass;
    const bool entered = gs_gate_try_enter(&pass);
    const bool placed = entered && gs_range_place(range);

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!placed && gs_daemon_is_absent())
        gs_program_managed_loosen_absent(range);
    if (!placed)
        gs_range_miss(range);
    gs_range_set_address(range, range->node.base, bytes);
    gs_range_link(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (entered)
        gs_gate_leave(pass);
    gs_worker_wake();
}

static bool can_count(const struct gs_device *device, uint64_t bytes)
{
    return device != NULL && gs_device_is_movable(device) && device->prefetches &&
           bytes >= LEAST_BYTES;
}

/* Makes a range for the memory. like: what is known of it already; its spans go to the range, if
 * it is made. */
static void adopt_memory(CUdeviceptr address, uint64_t bytes, struct gs_program_managed *like)
{
    struct gs_device *device = gs_device_current();
    CUcontext context = NULL;
    struct gs_range *range;
    bool known;

    if (!can_count(device, bytes) || gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return;
    known = GS_WITH_MEMORY(gs_range_first(address, bytes) != NULL);
    range = known ? NULL : gs_program_managed_new(device, address, bytes);
    if (range == NULL) /* or no host memory: then it is as without gpushare */
        return;
    range->context = gs_context_home(context);
    range->node.size = bytes;
    *range->theirs = *like;
    *like = (struct gs_program_managed){.lent = like->lent};
    if (range->theirs->lent)
        atomic_store_explicit(&has_lent, true, memory_order_relaxed);
    gs_daemon_await_target(device); /* the target says how much there is */
    GS_WITH_MEMORY(gs_program_managed_count(range));
    enter_life(range, bytes);
}

void gs_managed_adopt(CUdeviceptr address, uint64_t bytes, bool lent, const void *library)
{
    forget_aside(address);
    adopt_memory(address, bytes,
                 &(struct gs_program_managed){.lent = lent, .library = library});
}

/* Inside the gate, where nothing of it moves. */
static void end_range(struct gs_range *range)
{
    gs_swap_dispose(range);
    gs_worker_wake();
}

/* Under the lock: the memory is the driver's from now on; the caller ends the range. */
static struct gs_range *take_theirs(struct gs_range *range)
{
    range->theirs->lent = true;
    gs_range_end_life(range, GS_RANGE_DISPOSING);
    return range;
}

bool gs_managed_disown(CUdeviceptr address)
{
    struct gs_range *range;
    const unsigned pass = gs_gate_enter();

    if (pass == GS_PASS_REFUSED)
        return false;
    forget_aside(address);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    range = range != NULL && range->theirs != NULL ? take_theirs(range) : NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range != NULL)
        end_range(range);
    gs_gate_leave(pass);
    return range != NULL;
}

/* Under the lock: moves the range's advice to the new entry of the list. NULL: there is no
 * range. */
static struct gs_range *set_aside(struct aside *aside)
{
    struct gs_range *range = gs_range_at(aside->base);

    if (range != NULL && range->theirs == NULL)
        range = NULL;
    if (range != NULL) {
        aside->theirs = *range->theirs;
        *range->theirs = (struct gs_program_managed){.lent = true};
        take_theirs(range);
    }
    aside->next = asides;
    asides = aside;
    return range;
}

void gs_managed_set_aside(CUdeviceptr base, uint64_t bytes)
{
    struct gs_range *range = NULL;
    struct aside *aside;
    unsigned pass;

    if (!can_count(gs_device_current(), bytes))
        return;
    aside = calloc(1, sizeof *aside);
    if (aside == NULL) { /* the advice about it is lost */
        gs_managed_disown(base);
        return;
    }
    aside->base = base;
    aside->bytes = bytes;
    pass = gs_gate_enter();
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (pass != GS_PASS_REFUSED && *find_aside(base) == NULL) {
        range = set_aside(aside);
        aside = NULL;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    /* from now on frees of memory that is not ours are checked */
    atomic_store_explicit(&has_lent, true, memory_order_relaxed);
    free(aside);
    if (range != NULL)
        end_range(range);
    if (pass != GS_PASS_REFUSED)
        gs_gate_leave(pass);
}

void gs_managed_take_back(CUdeviceptr base, uint64_t bytes)
{
    struct gs_program_managed like = {.lent = false};
    struct aside *aside = GS_WITH_MEMORY(remove_aside(base));

    if (aside != NULL)
        like = aside->theirs;
    free(aside);
    adopt_memory(base, bytes, &like);
    gs_program_managed_clear(&like);
}

/* Under the lock: a variable of the library, on any device. */
static struct gs_range *find_variable(const void *library)
{
    gs_each_device (device)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            if (range->theirs != NULL && range->theirs->library == library &&
                range->life == GS_RANGE_LIVE)
                return range;
    return NULL;
}

void gs_managed_disown_library(const void *library)
{
    struct gs_range *range;
    CUdeviceptr address = 0;

    if (!gs_managed_has_lent() || library == NULL)
        return;
    do {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        range = find_variable(library);
        if (range != NULL)
            address = range->node.base;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    } while (range != NULL && gs_managed_disown(address));
}

/* --- advice and prefetches --- */

typedef void note_part(struct gs_program_managed *theirs, uint64_t from, uint64_t to,
                       const void *what);

/* Calls `note` for each of the program's ranges that has a part of these addresses. */
static void note_parts(CUdeviceptr address, uint64_t bytes, note_part *note, const void *what)
{
    const uint64_t to = address + bytes;
    struct gs_range *range;

    GS_HOLD_MEMORY;
    for (uint64_t at = address; at < to; at = range->node.base + range->node.size) {
        range = gs_range_first(at, to - at);
        if (range == NULL)
            break;
        if (range->theirs != NULL)
            note(range->theirs, range->node.base > at ? range->node.base : at,
                 range->node.base + range->node.size < to ? range->node.base + range->node.size
                                                          : to,
                 what);
    }
    for (struct aside *aside = asides; aside != NULL; aside = aside->next)
        if (aside->base < to && address < aside->base + aside->bytes)
            note(&aside->theirs, aside->base > address ? aside->base : address,
                 aside->base + aside->bytes < to ? aside->base + aside->bytes : to, what);
}

struct advice {
    CUmem_advise advice;
    bool at_host;
};

static void note_advice(struct gs_program_managed *theirs, uint64_t from, uint64_t to,
                        const void *what)
{
    const struct advice *given = what;
    const int32_t yes = 1;

    switch (given->advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        gs_spans_set(&theirs->read_mostly, from, to, &yes);
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        gs_spans_set(&theirs->read_mostly, from, to, NULL);
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        gs_spans_set(&theirs->stays_host, from, to, given->at_host ? &yes : NULL);
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        gs_spans_set(&theirs->stays_host, from, to, NULL);
        break;
    default: /* access by other devices does not change where the memory is */
        break;
    }
}

void gs_managed_advised(CUdeviceptr address, uint64_t bytes, CUmem_advise advice, bool at_host)
{
    note_parts(address, bytes, note_advice, &(struct advice){advice, at_host});
}

static void note_prefetch(struct gs_program_managed *theirs, uint64_t from, uint64_t to,
                          const void *what)
{
    gs_spans_set(&theirs->prefetched, from, to, what);
}

void gs_managed_prefetched(CUdeviceptr address, uint64_t bytes, const CUmemLocation *location)
{
    int32_t kept = AT_HOST;

    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        kept = location->id;
    else if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        kept = AT_NODE - location->id;
    note_parts(address, bytes, note_prefetch, &kept);
}

/* --- answers --- */

/* Under the lock: what is known about all of these bytes; NULL: nothing. */
static const struct gs_program_managed *find_theirs(CUdeviceptr address, uint64_t bytes)
{
    const struct gs_range *range = gs_range_at(address);

    for (const struct aside *aside = asides; aside != NULL; aside = aside->next)
        if (address >= aside->base && address < aside->base + aside->bytes &&
            bytes <= aside->base + aside->bytes - address)
            return &aside->theirs;
    return range != NULL && range->theirs != NULL &&
                   bytes <= range->node.base + range->node.size - address
               ? range->theirs
               : NULL;
}

bool gs_managed_last_prefetch(CUdeviceptr address, uint64_t bytes, CUmemLocation *location)
{
    const struct gs_program_managed *theirs;
    int32_t kept = 0;
    bool ours, agree;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    theirs = find_theirs(address, bytes);
    ours = theirs != NULL && theirs->moved;
    agree = ours && gs_spans_agree(&theirs->prefetched, address, address + bytes, &kept);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    *location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
    if (agree)
        *location = (CUmemLocation){.type = kept >= 0         ? CU_MEM_LOCATION_TYPE_DEVICE
                                            : kept == AT_HOST ? CU_MEM_LOCATION_TYPE_HOST
                                                              : CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                    .id = kept >= 0 ? kept : AT_NODE - kept};
    if (agree && kept == AT_HOST)
        location->id = 0;
    return ours;
}

bool gs_managed_read_mostly(CUdeviceptr address, uint64_t bytes, bool *read_mostly)
{
    GS_HOLD_MEMORY;
    int32_t value;
    const struct gs_program_managed *theirs = find_theirs(address, bytes);

    *read_mostly = theirs != NULL &&
                   gs_spans_agree(&theirs->read_mostly, address, address + bytes, &value);
    return theirs != NULL && theirs->moved;
}
