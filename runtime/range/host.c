/* SPDX-License-Identifier: Apache-2.0
 *
 * host.c: owns the arena of host memory: segments, the blocks cut from them, and the thread that
 * makes segments before they are needed.
 *
 * State: the list of segments, under arena.lock (rank GS_LOCK_HOST), which is never held across a
 * driver call or while memory is touched. Only the client thread registers segments. Invariants:
 * a bit of a segment's map is set exactly while a block has that unit; held is the bytes of all
 * segments that blocks are cut from, of those being made, and of the common memory that this program
 * made, until it is unmapped.
 */
#include "runtime/range/host.h"
#include "runtime/range/host_file.h"
#include "runtime/range/host_memory.h"

#define UNIT GS_BLOCK_BYTES
#define SEGMENT_UNITS                                                                          \
    128u /* 256 MiB: 5 ms to register, some 10 ms to touch; more only                          \
            for what must be in one piece */
#define ROOM_STEP                                                                              \
    (64ull << 20) /* what the program allocates itself changes limits all the time */

enum registration { NEVER, WAITING, REGISTERED };

struct gs_host_segment {
    struct gs_host_segment *next;
    char *memory;
    uint64_t bytes;
    uint32_t units, used;           /* of UNIT bytes; no units: common memory, ... */
    bool ended;                     /* ... which nobody has any more */
    _Atomic(uint64_t) *account;     /* in which it counts */
    enum registration registration; /* NEVER: beyond the budget, or the driver refused it */
    CUcontext context; /* REGISTERED: the context in which it is, and with which that ends */
    uint8_t map[];     /* a bit for each unit */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct gs_host_segment *segments;
    bool started, hopeless; /* the thread; it could not make all of the goal */
    _Atomic(uint64_t) goal; /* bytes that should be ready */
    _Atomic(uint64_t) held, refused;
    _Atomic(uint64_t) limit;   /* the budget, plus 1; 0: there is none */
    _Atomic(uint64_t) foreign; /* bytes in common that other programs made; not held */
    _Atomic(uint64_t) claimed, unclaimed; /* by gs_host_claim(); and claims that have to wait */
    _Atomic(int) node;    /* to make memory on, plus 2 (1: any); 0: not asked yet */
} arena GS_ZERO_IN_CHILD; /* segments are not mapped there */

static uint64_t load_counter(_Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* --- segments --- */

/* The floor is kept free, so that this never makes the OOM killer act. */
static bool machine_has(uint64_t bytes)
{
    const uint64_t available = gs_host_available();

    return available == UINT64_MAX || available >= bytes + GS_HOST_FLOOR;
}

/* Makes a segment and touches it; it is not in the list yet. */
static struct gs_host_segment *make_segment(uint32_t units)
{
    struct gs_host_segment *segment;
    const uint64_t bytes = units * UNIT;
    const int node = atomic_load_explicit(&arena.node, memory_order_relaxed) - 2;
    const uint64_t held = atomic_fetch_add_explicit(&arena.held, bytes, memory_order_relaxed);

    segment = machine_has(bytes) ? calloc(1, sizeof *segment + (units + 7) / 8) : NULL;
    if (segment != NULL)
        segment->memory = gs_host_map(bytes, node);
    if (segment == NULL || segment->memory == NULL) {
        free(segment);
        atomic_fetch_sub_explicit(&arena.held, bytes, memory_order_relaxed);
        return NULL;
    }
    segment->bytes = bytes;
    segment->units = units;
    segment->account = &arena.held;
    segment->registration = held + bytes <= gs_host_budget() ? WAITING : NEVER;
    return segment;
}

static void link_segment(struct gs_host_segment *segment)
{
    struct gs_host_segment **at = &arena.segments;

    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    while (*at != NULL && (*at)->registration != NEVER)
        at = &(*at)->next; /* unregistered segments are used last */
    segment->next = *at;
    *at = segment;
}

static void register_segment(struct gs_host_segment *segment)
{
    CUcontext context = NULL;
    CUresult result;

    if (gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
        return;
    result = gs_driver.cuMemHostRegister_v2(
        segment->memory, segment->bytes,
        CU_MEMHOSTREGISTER_PORTABLE |
            (segment->units != 0 ? 0u : CU_MEMHOSTREGISTER_READ_ONLY));
    if (result != CUDA_SUCCESS)
        gs_log("the driver could not register %llu bytes of host memory (CUresult %d): "
               "copies will be slower",
               (unsigned long long)segment->bytes, result);
    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    segment->context = context;
    segment->registration = result == CUDA_SUCCESS ? REGISTERED : NEVER;
}

static void free_segment(struct gs_host_segment *segment)
{
    if (segment->registration == REGISTERED)
        gs_driver.cuMemHostUnregister(segment->memory);
    gs_host_unmap(segment->memory, segment->bytes);
    atomic_fetch_sub_explicit(segment->account, segment->bytes, memory_order_relaxed);
    free(segment);
}

/* --- blocks --- */

static void mark_units(struct gs_host_segment *segment, uint32_t from, uint32_t count)
{
    for (uint32_t unit = from; unit < from + count; unit++)
        segment->map[unit / 8] ^= (uint8_t)(1u << (unit % 8));
}

/* first fit: the first of count adjacent free units; `units` if there are none */
static uint32_t find_units(const struct gs_host_segment *segment, uint32_t count)
{
    uint32_t run = 0;

    if (segment->units - segment->used < count)
        return segment->units;
    for (uint32_t unit = 0; unit < segment->units; unit++) {
        run = (segment->map[unit / 8] >> (unit % 8) & 1) != 0 ? 0 : run + 1;
        if (run == count)
            return unit + 1 - count;
    }
    return segment->units;
}

static bool cut_block(struct gs_host_block *block, uint32_t units)
{
    struct gs_host_segment *segment;

    gs_lock(&arena.lock, GS_LOCK_HOST);
    for (segment = arena.segments; segment != NULL; segment = segment->next) {
        const uint32_t from = find_units(segment, units);

        if (from == segment->units)
            continue;
        mark_units(segment, from, units);
        segment->used += units;
        block->segment = segment;
        block->offset = from * UNIT;
        block->memory = segment->memory + block->offset;
        break;
    }
    gs_unlock(&arena.lock, GS_LOCK_HOST);
    if (segment != NULL && segment->registration == WAITING)
        register_segment(segment);
    return segment != NULL;
}

static uint32_t units_to_make(uint32_t least)
{
    const uint64_t held = load_counter(&arena.held), goal = load_counter(&arena.goal);
    const uint64_t more = goal > held ? (goal - held + UNIT - 1) / UNIT : 0;

    if (more <= least || least >= SEGMENT_UNITS) /* a large block gets a segment of its own */
        return least;
    return more < SEGMENT_UNITS ? (uint32_t)more : SEGMENT_UNITS;
}

static bool grow_arena(uint32_t units)
{
    struct gs_host_segment *segment = make_segment(units_to_make(units));

    if (segment == NULL && units_to_make(units) != units)
        segment = make_segment(units);
    if (segment != NULL)
        link_segment(segment);
    return segment != NULL;
}

struct gs_host_block *gs_host_get(uint64_t bytes)
{
    const uint32_t units = (uint32_t)((bytes + UNIT - 1) / UNIT);
    struct gs_host_block *block = calloc(1, sizeof *block + units * sizeof block->hashes[0]);

    if (block == NULL)
        return NULL;
    block->bytes = bytes;
    atomic_store_explicit(&block->holders, 1, memory_order_relaxed);
    gs_host_file_begin();
    while (!cut_block(block, units))
        if (!grow_arena(units)) {
            if (gs_host_file_get(units * UNIT, &block->offset))
                return block;
            gs_log("no host memory for another %llu bytes (%llu bytes are in use)",
                   (unsigned long long)bytes, (unsigned long long)load_counter(&arena.held));
            atomic_store_explicit(&arena.refused, bytes, memory_order_relaxed);
            free(block);
            return NULL;
        }
    atomic_store_explicit(&arena.refused, 0, memory_order_relaxed);
    return block;
}

struct gs_host_common *gs_host_share(char *memory, uint64_t bytes, uint64_t number,
                                     bool foreign, bool whole)
{
    struct gs_host_common *common = malloc(sizeof *common);

    if (common == NULL) {
        gs_host_unmap(memory, bytes);
        return NULL;
    }
    *common = (struct gs_host_common){memory, bytes, number, NULL, foreign, whole, 1};
    if (!foreign) /* else it counts when a block has it: its maker counts it as well */
        atomic_fetch_add_explicit(&arena.held, bytes, memory_order_relaxed);
    return common;
}

/* What may be registered is released by the client thread. */
void gs_host_unshare(struct gs_host_common *common)
{
    bool last;

    gs_lock(&arena.lock, GS_LOCK_HOST);
    last = --common->holders == 0;
    if (last && common->segment != NULL)
        common->segment->ended = true;
    gs_unlock(&arena.lock, GS_LOCK_HOST);
    if (!last)
        return;
    if (common->segment == NULL) {
        gs_host_unmap(common->memory, common->bytes);
        if (!common->foreign)
            atomic_fetch_sub_explicit(&arena.held, common->bytes, memory_order_relaxed);
    }
    free(common);
}

static bool have_segment(struct gs_host_common *common)
{
    struct gs_host_segment *segment;

    if (common->segment != NULL)
        return true;
    segment = calloc(1, sizeof *segment);
    if (segment == NULL)
        return false;
    segment->memory = common->memory;
    segment->bytes = common->bytes;
    segment->account = common->foreign ? &arena.foreign : &arena.held;
    segment->registration = common->whole ? WAITING : NEVER;
    common->segment = segment;
    if (common->foreign)
        atomic_fetch_add_explicit(&arena.foreign, common->bytes, memory_order_relaxed);
    link_segment(segment);
    return true;
}

struct gs_host_block *gs_host_adopt(const struct gs_host_block *like,
                                    struct gs_host_common *common)
{
    const size_t size = sizeof *like + (like->bytes + UNIT - 1) / UNIT * sizeof like->hashes[0];
    struct gs_host_block *block = have_segment(common) ? malloc(size) : NULL;

    if (block == NULL)
        return NULL;
    memcpy(block, like, size);
    block->memory = common->memory;
    block->segment = NULL;
    block->offset = 0;
    block->common = common;
    atomic_store_explicit(&block->holders, 1, memory_order_relaxed);
    gs_lock(&arena.lock, GS_LOCK_HOST);
    common->holders++;
    gs_unlock(&arena.lock, GS_LOCK_HOST);
    return block;
}

bool gs_host_needs_stage(const struct gs_host_block *block)
{
    GS_HOLD(&arena.lock, GS_LOCK_HOST);

    return block->common != NULL && block->common->segment->registration != REGISTERED;
}

uint64_t gs_host_foreign(void)
{
    return load_counter(&arena.foreign);
}

void gs_host_keep(struct gs_host_block *block)
{
    atomic_fetch_add_explicit(&block->holders, 1, memory_order_relaxed);
}

void gs_host_put(struct gs_host_block *block)
{
    struct gs_host_segment *segment = block != NULL ? block->segment : NULL;
    const uint32_t units = block != NULL ? (uint32_t)((block->bytes + UNIT - 1) / UNIT) : 0;

    /* acq_rel: what any holder did with it comes before its end */
    if (block == NULL ||
        atomic_fetch_sub_explicit(&block->holders, 1, memory_order_acq_rel) != 1)
        return;
    if (segment != NULL) {
        gs_lock(&arena.lock, GS_LOCK_HOST);
        mark_units(segment, (uint32_t)(block->offset / UNIT), units);
        segment->used -= units;
        gs_unlock(&arena.lock, GS_LOCK_HOST);
    } else if (block->common != NULL) {
        gs_host_unshare(block->common);
    } else {
        gs_host_file_put(block->offset, units * UNIT);
    }
    free(block);
}

/* --- before it is needed --- */

static void *prepare_main(void *unused)
{
    (void)unused;
    gs_cancel_off();
    for (;;) {
        uint64_t goal, budget;
        bool made;

        gs_lock(&arena.lock, GS_LOCK_HOST);
        while (arena.hopeless || load_counter(&arena.goal) <= load_counter(&arena.held))
            pthread_cond_wait(&arena.wanted, &arena.lock);
        goal = load_counter(&arena.goal);
        budget = gs_host_budget();
        gs_unlock(&arena.lock, GS_LOCK_HOST);
        /* beyond the budget no memory is made that may not be needed */
        made = load_counter(&arena.held) < budget && grow_arena(1);
        gs_lock(&arena.lock, GS_LOCK_HOST);
        /* if the goal has changed meanwhile, another attempt is worth it: no other call will ask
         * for one */
        arena.hopeless =
            !made && goal == load_counter(&arena.goal) && budget == gs_host_budget();
        gs_unlock(&arena.lock, GS_LOCK_HOST);
    }
    return NULL;
}

/* finds the NUMA node next to the device; asked once for each device */
static void find_node(void)
{
    const struct gs_device *device = gs_device_at(0);
    int node = -1;

    if (atomic_load_explicit(&arena.node, memory_order_relaxed) != 0 || device == NULL)
        return;
    if (gs_driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                       device->ordinal) != CUDA_SUCCESS)
        node = -1;
    atomic_store_explicit(&arena.node, node + 2, memory_order_relaxed);
}

void gs_host_device_changed(void)
{
    atomic_store_explicit(&arena.node, 0, memory_order_relaxed);
}

void gs_host_prepare(uint64_t bytes)
{
    const uint64_t foreign = load_counter(&arena.foreign);

    bytes = bytes > foreign ? bytes - foreign : 0; /* that much is there */
    find_node();
    gs_host_file_begin(); /* it needs a buffer, before memory is made ready */
    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    if (atomic_exchange_explicit(&arena.goal, bytes, memory_order_relaxed) != bytes)
        arena.hopeless = false;
    if (!arena.started && bytes > load_counter(&arena.held))
        arena.started = gs_worker_thread("gpushare-host", prepare_main) == 0;
    pthread_cond_signal(&arena.wanted);
}

/* The first of them; NULL: there is none. take: out of the list. */
static struct gs_host_segment *find_segment(bool (*suits)(const struct gs_host_segment *),
                                            bool take)
{
    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    struct gs_host_segment **at = &arena.segments, *segment;

    while (*at != NULL && !suits(*at))
        at = &(*at)->next;
    segment = *at;
    if (take && segment != NULL)
        *at = segment->next;
    return segment;
}

static bool is_unused(const struct gs_host_segment *segment)
{
    return segment->units != 0 && segment->used == 0;
}

static bool has_ended(const struct gs_host_segment *segment)
{
    return segment->ended;
}

static bool is_waiting(const struct gs_host_segment *segment)
{
    return segment->registration == WAITING && !segment->ended;
}

bool gs_host_has_unregistered(void)
{
    return find_segment(is_waiting, false) != NULL;
}

bool gs_host_register_one(void)
{
    struct gs_host_segment *segment = find_segment(is_waiting, false);

    if (segment != NULL)
        register_segment(segment);
    return gs_host_has_unregistered();
}

bool gs_host_has_ended(void)
{
    return find_segment(has_ended, false) != NULL;
}

bool gs_host_release_one(void)
{
    struct gs_host_segment *segment = find_segment(has_ended, true);

    if (segment != NULL)
        free_segment(segment);
    return gs_host_has_ended();
}

void gs_host_trim(uint64_t keep)
{
    struct gs_host_segment *segment;

    if (load_counter(&arena.goal) > keep) /* client thread only, as gs_host_prepare() */
        atomic_store_explicit(&arena.goal, keep, memory_order_relaxed);
    while (load_counter(&arena.held) > keep &&
           (segment = find_segment(is_unused, true)) != NULL)
        free_segment(segment);
}

bool gs_host_shrink(void)
{
    struct gs_host_segment *segment = load_counter(&arena.held) > load_counter(&arena.goal)
                                          ? find_segment(is_unused, true)
                                          : NULL;

    if (segment == NULL)
        return false;
    if (load_counter(&arena.held) - segment->bytes < load_counter(&arena.goal)) {
        link_segment(segment); /* it would be made again */
        return false;
    }
    free_segment(segment);
    return true;
}

void gs_host_context_ended(const void *context)
{
    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    for (struct gs_host_segment *segment = arena.segments; segment != NULL;
         segment = segment->next)
        if (segment->registration == REGISTERED && segment->context == context)
            segment->registration = WAITING;
}

uint64_t gs_host_used(void)
{
    return load_counter(&arena.held);
}

uint64_t gs_host_room(void)
{
    const uint64_t limits = gs_host_limits();
    uint64_t units = 0;

    if (limits == UINT64_MAX)
        return UINT64_MAX;
    gs_host_file_begin();
    if (gs_host_file_buffer() != NULL)
        return UINT64_MAX;
    gs_lock(&arena.lock, GS_LOCK_HOST);
    for (const struct gs_host_segment *segment = arena.segments; segment != NULL;
         segment = segment->next)
        units += segment->units - segment->used;
    gs_unlock(&arena.lock, GS_LOCK_HOST);
    return (limits > GS_HOST_FLOOR ? limits - GS_HOST_FLOOR : 0) / ROOM_STEP * ROOM_STEP +
           units * UNIT;
}

uint64_t gs_host_wanted(void)
{
    const uint64_t held = load_counter(&arena.held) + load_counter(&arena.refused);
    const uint64_t goal = load_counter(&arena.goal);

    return (held > goal ? held : goal) + load_counter(&arena.claimed) +
           load_counter(&arena.unclaimed);
}

void gs_host_set_budget(uint64_t bytes)
{
    if (atomic_exchange_explicit(&arena.limit, bytes + 1, memory_order_relaxed) - 1 >= bytes)
        return;
    GS_HOLD(&arena.lock, GS_LOCK_HOST);
    arena.hopeless = false;
    pthread_cond_signal(&arena.wanted);
}

uint64_t gs_host_budget(void)
{
    const uint64_t budget = load_counter(&arena.limit) - 1;
    const uint64_t claimed = load_counter(&arena.claimed);

    if (budget == UINT64_MAX)
        return budget;
    return budget > claimed ? budget - claimed : 0;
}

enum gs_host_claim gs_host_claim(uint64_t bytes)
{
    enum gs_host_claim claim = machine_has(bytes) ? GS_HOST_CLAIMED : GS_HOST_NONE;

    gs_lock(&arena.lock, GS_LOCK_HOST); /* two claims must not take the same bytes */
    if (claim == GS_HOST_CLAIMED &&
        (gs_host_budget() < bytes || gs_host_budget() - bytes < load_counter(&arena.held)))
        claim = GS_HOST_LATER;
    if (claim == GS_HOST_CLAIMED)
        atomic_fetch_add_explicit(&arena.claimed, bytes, memory_order_relaxed);
    atomic_store_explicit(&arena.unclaimed, claim == GS_HOST_LATER ? bytes : 0,
                          memory_order_relaxed);
    gs_unlock(&arena.lock, GS_LOCK_HOST);
    return claim;
}

void gs_host_give_up_claim(void)
{
    atomic_store_explicit(&arena.unclaimed, 0, memory_order_relaxed);
}

void gs_host_unclaim(uint64_t bytes)
{
    atomic_fetch_sub_explicit(&arena.claimed, bytes, memory_order_relaxed);
}

uint64_t gs_host_claimed(void)
{
    return load_counter(&arena.claimed);
}
