/* SPDX-License-Identifier: Apache-2.0
 *
 * test_placement.c: random sequences of allocations, frees, uses, turns, budgets and exchanges of one
 * program that is larger than the card, with driver calls that fail. After each step the accounts are
 * counted anew, every chunk that the program can reach is at its address, and its contents are right.
 *
 * One thread plays the program and the client thread: the library's own files run on the simulated
 * driver, without a daemon. What another thread would do meanwhile happens inside a driver call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/host/host.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/free.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/memory/memory.h"
#include "runtime/range/chunk.h"
#include "runtime/range/range.h"
#include "runtime/range/uses.h"
#include "runtime/swap/exchange.h"
#include "runtime/swap/placement.h"
#include "runtime/swap/swap.h"
#include "tests/runtime/random.h"

#define MIB     ((uint64_t)1 << 20)
#define BLOCKS  12u
#define ROOM    (256 * MIB) /* of the card */
#define BEYOND  (256 * MIB)
#define STEPS   100u
#define REFUSED 40u /* mappings in a row: more than any loop of attempts makes */

struct block {
    CUdeviceptr address; /* 0: none */
    uint64_t bytes;
    uint32_t value; /* the first word of each 2 MiB holds it, plus the number of those 2 MiB */
};

static struct {
    struct gs_device *device;
    struct gs_driver driver; /* the simulated one, as it is */
    struct block blocks[BLOCKS];
    char folder[32];
    uint64_t random;
    double failing;       /* probability of each call that may fail */
    unsigned refuse_maps; /* so many from now on, of the chunks' own addresses */
    bool during_copy;     /* the next copy of an exchange runs what another thread does */
    unsigned made_on_host;
    unsigned adrift; /* exchanges that left a chunk so */
    bool interfered; /* it has */
} self;

static uint64_t draw(uint64_t below)
{
    return random_below(&self.random, below);
}

static bool fails_now(void)
{
    return self.failing > 0 && (double)draw(1000000) < self.failing * 1e6;
}

/* --- the driver's calls that fail --- */

static bool is_a_chunk(CUdeviceptr address)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (address - self.blocks[i].address < self.blocks[i].bytes)
            return true;
    return false;
}

static CUresult create_or_fail(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    self.made_on_host += prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return fails_now() ? CUDA_ERROR_OUT_OF_MEMORY
                       : self.driver.cuMemCreate(handle, bytes, prop, flags);
}

static CUresult map_or_fail(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (self.refuse_maps != 0 && is_a_chunk(address)) {
        self.refuse_maps--;
        return CUDA_ERROR_UNKNOWN;
    }
    return fails_now() ? CUDA_ERROR_UNKNOWN
                       : self.driver.cuMemMap(address, bytes, offset, handle, flags);
}

static CUresult set_access_or_fail(CUdeviceptr address, size_t bytes,
                                   const CUmemAccessDesc *access, size_t count)
{
    return fails_now() ? CUDA_ERROR_UNKNOWN
                       : self.driver.cuMemSetAccess(address, bytes, access, count);
}

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    return fails_now() ? CUDA_ERROR_UNKNOWN : self.driver.cuMemUnmap(address, bytes);
}

static CUresult reserve_or_fail(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr at, unsigned long long flags)
{
    return fails_now() ? CUDA_ERROR_OUT_OF_MEMORY
                       : self.driver.cuMemAddressReserve(address, bytes, alignment, at, flags);
}

static void meanwhile(void);

static CUresult copy_or_fail(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (self.during_copy) {
        self.during_copy = false;
        meanwhile();
    }
    return fails_now() ? CUDA_ERROR_UNKNOWN : self.driver.cuMemcpyDtoD_v2(to, from, bytes);
}

/* --- the program --- */

static void fill_block(struct block *block, uint32_t value)
{
    block->value = value;
    for (uint64_t at = 0; at < block->bytes; at += 2 * MIB)
        assert_int_equal(self.driver.cuMemsetD32_v2(block->address + at,
                                                    value + (uint32_t)(at / (2 * MIB)), 16),
                         CUDA_SUCCESS);
    assert_int_equal(self.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

static void check_block(const struct block *block)
{
    uint32_t word;

    for (uint64_t at = 0; at < block->bytes; at += 2 * MIB) {
        assert_int_equal(self.driver.cuMemcpyDtoH_v2(&word, block->address + at, sizeof word),
                         CUDA_SUCCESS);
        assert_int_equal(word, block->value + (uint32_t)(at / (2 * MIB)));
    }
}

static struct block *pick_block(bool there)
{
    for (unsigned i = 0, from = (unsigned)draw(BLOCKS); i < BLOCKS; i++)
        if ((self.blocks[(from + i) % BLOCKS].address != 0) == there)
            return &self.blocks[(from + i) % BLOCKS];
    return NULL;
}

static bool allocate_block(struct block *block, uint64_t bytes)
{
    const struct gs_request request = {.device = self.device, .bytes = bytes};

    if (gs_memory_allocate(&request, &block->address) != CUDA_SUCCESS) {
        block->address = 0;
        return false;
    }
    block->bytes = bytes;
    return true;
}

static void free_block(struct block *block)
{
    bool ours;

    assert_int_equal(gs_memory_free(block->address, NULL, &ours), CUDA_SUCCESS);
    assert_true(ours);
    *block = (struct block){0};
}

/* In the middle of an exchange, as another thread. What is allocated then is not in place yet. */
static void meanwhile(void)
{
    struct block *block = pick_block(draw(2) == 0);

    if (block == NULL)
        return;
    if (block->address != 0)
        free_block(block);
    else
        allocate_block(block, (2 + 2 * draw(40)) * MIB);
    self.interfered = true;
}

/* --- the accounts, counted anew --- */

static void count_range(const struct gs_range *range, struct gs_accounts *sum, uint64_t *host)
{
    const bool live = range->life == GS_RANGE_LIVE, needed = gs_range_is_needed(range);
    uint64_t over = 0;

    for (uint32_t i = 0; i < range->chunk_count; i++) {
        const struct gs_chunk *chunk = &range->chunks[i];
        const uint64_t bytes = gs_range_chunk_bytes(range, i);
        const bool absent = chunk->state == GS_CHUNK_ABSENT || chunk->state == GS_CHUNK_HOST;

        over += chunk->state == GS_CHUNK_OVER ? bytes : 0;
        sum->resident += chunk->state == GS_CHUNK_RESIDENT ? bytes : 0;
        sum->missing += live && needed && (absent || chunk->adrift) ? bytes : 0;
        assert_false(chunk->moving);
    }
    assert_int_equal(range->over, over);
    *host += over;
    sum->over += live ? over : 0;
    sum->demand += live ? range->reserved - over : 0;
    sum->idle += range->life == GS_RANGE_IDLE ? range->reserved : 0;
}

/* spare: bytes that an exchange may have kept for the next one. */
static void check_books(uint64_t spare)
{
    const struct gs_accounts accounts = gs_memory_accounts(self.device);
    struct gs_accounts sum = {0};
    uint64_t host = 0;

    for (const struct gs_range *range = self.device->ranges; range != NULL; range = range->next)
        count_range(range, &sum, &host);
    assert_int_equal(accounts.demand, sum.demand);
    assert_int_equal(accounts.over, sum.over);
    assert_int_equal(accounts.resident, sum.resident);
    assert_int_equal(accounts.missing, sum.missing);
    assert_int_equal(accounts.idle, sum.idle);
    assert_in_range(gs_host_claimed(), host, host + spare);
    assert_true(accounts.demand <= gs_device_room(self.device));
}

static void check_accounts(void)
{
    check_books(0);
}

/* Every chunk is at its address, and the contents are right: the program runs. */
static void check_contents(void)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (self.blocks[i].address != 0)
            check_block(&self.blocks[i]);
}

/* --- the client thread --- */

static void open_now(void)
{
    gs_gate_open(false);
}

static void stop(void)
{
    assert_true(gs_gate_close(1000000000));
    assert_int_equal(self.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

/* Until everything is in place; the driver fails meanwhile as before, and not for ever. */
static void go_on(void)
{
    uint64_t lacking;

    for (unsigned i = 0; !gs_memory_if_complete(open_now); i++) {
        assert_true(i < 2000);
        if (i == 1000) { /* the last ones */
            self.failing = 0;
            self.refuse_maps = 0;
        }
        gs_memory_dispose_dead(true);
        gs_swap_in(self.device, ROOM, -1, &lacking);
        gs_placement_step(false);
    }
}

static void use_block(const struct block *block)
{
    for (unsigned i = 0; i < 60; i++)
        gs_uses_span(block->address, block->bytes);
}

/* By one block's use, or by that of all alike. */
static void exchange_some(void)
{
    const struct block *often = pick_block(true);
    const bool alike = draw(2) == 0;
    uint64_t now = gs_now();

    if (often == NULL)
        return;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (self.blocks[i].address != 0 && (alike || often == &self.blocks[i]))
            use_block(&self.blocks[i]);
    for (unsigned i = 0; i < 3; i++)
        gs_placement_look(now += 60000000, true);
    if (!gs_placement_needs_stop())
        return;
    stop();
    self.during_copy = draw(3) == 0;
    if (draw(4) == 0)
        self.refuse_maps = REFUSED;
    while (gs_placement_step(true))
        check_books(GS_LARGE_CHUNK_BYTES);
    self.adrift += gs_exchange_is_adrift() ? 1 : 0;
    self.during_copy = false;
    check_accounts();
    go_on();
}

/* The windows begin anew. */
static void forget_uses(uint64_t now)
{
    gs_placement_after_fork();
    gs_uses_take();
    gs_placement_look(now, true);
}

/* Another program's turn: some of the card's part leaves, and comes back. */
static void hand_off(void)
{
    const uint64_t most = draw(5) * ROOM / 4;
    uint64_t resident;

    stop();
    gs_memory_dispose_dead(true);
    while ((resident = gs_memory_accounts(self.device).resident) > most &&
           gs_swap_out(self.device, resident - most) == GS_SWAP_MOVED)
        continue;
    gs_swap_settle();
    check_accounts();
    go_on();
}

static void allocate_some(void)
{
    static const uint64_t sizes[] = {2, 6, 30, 64, 66, 100, 180};
    struct block *block = pick_block(false);

    if (block == NULL ||
        !allocate_block(block, sizes[draw(sizeof sizes / sizeof *sizes)] * MIB))
        return;
    check_accounts();
    if (gs_memory_accounts(self.device).missing != 0) {
        stop();
        go_on();
    }
    fill_block(block, (uint32_t)draw(1u << 30));
}

static void take_step(void)
{
    struct block *block = NULL;

    switch (draw(8)) {
    case 0:
    case 1:
        allocate_some();
        break;
    case 2:
        if ((block = pick_block(true)) != NULL)
            free_block(block);
        break;
    case 3:
        hand_off();
        break;
    case 4: /* another limit; what is beyond it stays there */
        gs_runtime.config.overcommit = draw(4) * BEYOND / 3;
        break;
    default:
        exchange_some();
    }
    gs_memory_dispose_dead(false);
    check_accounts();
}

static void begin(uint64_t seed, double failing)
{
    self.random = seed * 0x9E3779B97F4A7C15ull | 1;
    self.failing = failing;
    gs_runtime.config.overcommit = BEYOND;
    gs_runtime.config.grain = 64 * MIB;
    self.refuse_maps = 0;
}

/* What was allocated while an exchange ran holds nothing that is known yet. */
static void fill_new_blocks(void)
{
    for (unsigned i = 0; self.interfered && i < BLOCKS; i++)
        if (self.blocks[i].address != 0 && self.blocks[i].value == 0)
            fill_block(&self.blocks[i], 1 + (uint32_t)draw(1u << 30));
    self.interfered = false;
}

static size_t free_memory(void)
{
    size_t free = 0, total;

    assert_int_equal(self.driver.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return free;
}

static void run_seed(uint64_t seed, double failing, bool exact)
{
    static const uint64_t grains[] = {2 * MIB, 8 * MIB, 64 * MIB};
    size_t before;

    begin(seed, 0);
    gs_runtime.config.grain = grains[draw(sizeof grains / sizeof *grains)];
    before = free_memory();
    self.failing = failing;
    for (unsigned i = 0; i < STEPS; i++) {
        take_step();
        fill_new_blocks();
        check_contents();
    }
    self.failing = 0;
    self.refuse_maps = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (self.blocks[i].address != 0)
            free_block(&self.blocks[i]);
    stop();
    gs_placement_look(gs_now() + 1000000000, false);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
    go_on();
    check_accounts();
    assert_null(self.device->ranges);
    assert_int_equal(gs_host_claimed(), 0);
    if (exact)
        assert_int_equal(free_memory(), before);
}

static unsigned seeds(void)
{
    const char *text = getenv("PLACEMENT_SEEDS");

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 4;
}

static void accounts_are_those_of_a_recount(void **state)
{
    (void)state;
    for (unsigned i = 0; i < seeds(); i++)
        run_seed(i + 1, 0, true);
    assert_true(atomic_load(&gs_runtime.exchanged) > 0);
    assert_true(self.adrift > 0); /* mappings are refused now and then, in a row */
}

static void failing_calls_lose_no_chunk(void **state)
{
    (void)state;
    for (unsigned i = 0; i < seeds(); i++)
        run_seed(i + 1001, i % 2 == 0 ? 0.02 : 0.15, i % 2 == 0);
}

/* What was queued when the window ended took the device longer than the window: what is used comes
 * in all the same, all of it at once, and host memory is made for the first chunk only. The window
 * is a quarter of the time since the machine has started. */
static void a_long_drain_takes_nothing_from_the_exchanges(void **state)
{
    const uint64_t bytes = 64 * MIB;
    uint64_t exchanged = atomic_load(&gs_runtime.exchanged);

    (void)state;
    begin(1, 0);
    for (unsigned i = 0; i < 6; i++) {
        assert_true(allocate_block(&self.blocks[i], bytes));
        fill_block(&self.blocks[i], i + 1);
    }
    assert_int_equal(gs_memory_accounts(self.device).over, 2 * bytes);
    forget_uses(100000000);
    for (unsigned i = 0; i < 60; i++) {
        gs_uses_span(self.blocks[4].address, bytes);
        gs_uses_span(self.blocks[5].address, bytes);
    }
    gs_placement_look(gs_now() / 4, true);
    assert_true(gs_placement_needs_stop());
    stop();
    self.made_on_host = 0;
    while (gs_placement_step(true))
        continue;
    go_on();
    exchanged = atomic_load(&gs_runtime.exchanged) - exchanged;
    assert_int_equal(exchanged, 4 * bytes);
    assert_int_equal(self.made_on_host, 1);
    check_accounts();
    check_contents();
    for (unsigned i = 0; i < 6; i++)
        free_block(&self.blocks[i]);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
}

/* Chunks beyond the card, of so many of the range from the first one on. */
static unsigned count_beyond(const struct gs_range *range, uint32_t first, uint32_t count)
{
    unsigned beyond = 0;

    for (uint32_t i = first; i < first + count; i++)
        beyond += range->chunks[i].state == GS_CHUNK_OVER;
    return beyond;
}

static uint64_t exchange_after_even_use(void)
{
    const uint64_t before = atomic_load(&gs_runtime.exchanged);
    uint64_t now = gs_now();

    forget_uses(now);
    for (unsigned i = 0; i < 6; i++)
        use_block(&self.blocks[i]);
    gs_placement_look(now + 1000000000, true);
    if (gs_placement_needs_stop()) {
        stop();
        while (gs_placement_step(true))
            continue;
        go_on();
    }
    return atomic_load(&gs_runtime.exchanged) - before;
}

/* So many bytes at least. On a slow machine the exchanges' time is over before, and counts anew. */
static uint64_t exchange_at_least(uint64_t wanted)
{
    uint64_t exchanged = 0;

    for (unsigned i = 0; i < 100 && exchanged < wanted; i++)
        exchanged += exchange_after_even_use();
    return exchanged;
}

/* Two blocks of six lie beyond the card, all are used alike: each part of 16 chunks gets one that lies
 * beyond it, with no more exchanges than that takes; and then all stays where it is. */
static void even_use_spreads_what_is_beyond_the_card(void **state)
{
    const uint64_t grain = 2 * MIB, bytes = 64 * MIB;

    (void)state;
    begin(1, 0);
    gs_runtime.config.grain = grain;
    for (unsigned i = 0; i < 6; i++) {
        assert_true(allocate_block(&self.blocks[i], bytes));
        fill_block(&self.blocks[i], i + 1);
    }
    assert_int_equal(count_beyond(gs_range_at(self.blocks[0].address), 0, 32), 0);
    assert_int_equal(count_beyond(gs_range_at(self.blocks[5].address), 0, 32), 32);
    assert_int_equal(exchange_at_least(16 * grain), 16 * grain);
    for (unsigned i = 0; i < 12; i++)
        assert_true(count_beyond(gs_range_at(self.blocks[i / 2].address), i % 2 * 16, 16) > 0);
    assert_int_equal(gs_memory_accounts(self.device).over, 2 * bytes);
    check_accounts();
    check_contents();
    assert_int_equal(exchange_after_even_use(), 0);
    for (unsigned i = 0; i < 6; i++)
        free_block(&self.blocks[i]);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
}

/* An allocation that does not fit as a whole has its two kinds of chunks one between the other. */
static void an_allocation_in_both_is_interleaved(void **state)
{
    const uint64_t grain = 2 * MIB;
    const struct gs_range *range;

    (void)state;
    begin(1, 0);
    gs_runtime.config.grain = grain;
    assert_true(allocate_block(&self.blocks[0], ROOM + ROOM / 4));
    range = gs_range_at(self.blocks[0].address);
    for (uint32_t i = 0; i + 10 <= range->chunk_count; i += 10)
        assert_int_equal(count_beyond(range, i, 10), 2);
    assert_int_equal(gs_memory_accounts(self.device).over, ROOM / 4);
    check_accounts();
    free_block(&self.blocks[0]);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
}

static void launch_with(CUdeviceptr address)
{
    size_t bytes = sizeof address;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &address, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};

    gs_uses_launch((CUfunction)&bytes, NULL, extra); /* any but NULL: it is not asked then */
}

static void assert_used(const struct gs_range *range, uint64_t first, uint64_t second,
                        uint64_t third)
{
    assert_int_equal(range->chunks[0].used, first);
    assert_int_equal(range->chunks[1].used, second);
    assert_int_equal(range->chunks[2].used, third);
}

/* What a kernel gets the address of ends where that begins which another one gets. */
static void addresses_of_launches_divide_an_allocation(void **state)
{
    const uint64_t chunk = GS_CHUNK_BYTES;
    struct block *block = &self.blocks[0];
    struct gs_range *range;

    (void)state;
    begin(1, 0);
    assert_true(allocate_block(block, 3 * chunk));
    range = gs_range_at(block->address);
    forget_uses(gs_now());
    launch_with(block->address);
    assert_used(range, chunk, chunk, chunk);
    launch_with(block->address + chunk + 10 * MIB);
    assert_used(range, chunk, 2 * chunk - 10 * MIB, 2 * chunk);
    launch_with(block->address);
    assert_used(range, 2 * chunk, 2 * chunk, 2 * chunk);
    assert_int_equal(gs_uses_take(), 6 * chunk);
    for (unsigned i = 0; i < 2; i++) { /* not had for a window: it divides nothing any more */
        gs_uses_age();
        launch_with(block->address);
    }
    assert_used(range, 4 * chunk, 3 * chunk + 10 * MIB, 3 * chunk);
    free_block(block);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
}

static bool nobody_to_wait_for(void)
{
    return false;
}

static int end_card(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", self.folder);
    return system(command); /* NOLINT(cert-env33-c): a folder of its own */
}

static int begin_card(void **state)
{
    CUcontext context;

    (void)state;
    strcpy(self.folder, "/tmp/gs-placement-XXXXXX");
    if (mkdtemp(self.folder) == NULL)
        return -1;
    setenv("SIMCUDA_CARD", self.folder, 1);
    setenv("SIMCUDA_MEMORY", "320MiB", 1);
    setenv("SIMCUDA_CONTEXT_MEMORY", "64KiB", 1);
    setenv("SIMCUDA_POISON", "0", 1); /* faster */
    gs_gate_init(nobody_to_wait_for);
    if (!gs_driver_load())
        return -1;
    self.driver = gs_driver;
    gs_driver.cuMemCreate = create_or_fail;
    gs_driver.cuMemMap = map_or_fail;
    gs_driver.cuMemSetAccess = set_access_or_fail;
    gs_driver.cuMemUnmap = unmap_or_fail;
    gs_driver.cuMemAddressReserve = reserve_or_fail;
    gs_driver.cuMemcpyDtoD_v2 = copy_or_fail;
    gs_runtime.config.device_limit = ROOM;
    gs_runtime.config.overcommit_set = true;
    gs_runtime.config.grain = 64 * MIB;
    gs_runtime.config.overcommit = BEYOND;
    if (self.driver.cuInit(0) != CUDA_SUCCESS ||
        self.driver.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return -1;
    self.device = gs_device_get(0);
    if (self.device == NULL || !gs_context_add(context, self.device))
        return -1;
    atomic_store(&self.device->target.seq, 1); /* else allocations wait for it */
    atomic_store(&self.device->target.flags, GS_TARGET_RUN);
    atomic_store(&self.device->target.budget, ROOM);
    gs_gate_open(false);
    if (!allocate_block(&self.blocks[0], 2 * MIB)) /* what is made once and stays */
        return -1;
    free_block(&self.blocks[0]);
    gs_idle_give_back(self.device, NULL, UINT64_MAX);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_are_those_of_a_recount),
        cmocka_unit_test(failing_calls_lose_no_chunk),
        cmocka_unit_test(addresses_of_launches_divide_an_allocation),
        cmocka_unit_test(a_long_drain_takes_nothing_from_the_exchanges),
        cmocka_unit_test(even_use_spreads_what_is_beyond_the_card),
        cmocka_unit_test(an_allocation_in_both_is_interleaved),
    };

    return cmocka_run_group_tests(tests, begin_card, end_card);
}
