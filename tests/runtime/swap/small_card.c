/* SPDX-License-Identifier: Apache-2.0
 *
 * small_card.c: the simulated card on which test_placement.c, test_slower.c and test_beyond.c run,
 * the blocks of memory that the first two allocate there, and the recount of the accounts. State: `card`. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/free.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/range/range.h"
#include "runtime/range/uses.h"
#include "runtime/swap/placement.h"
#include "runtime/swap/swap.h"
#include "tests/runtime/random.h"
#include "tests/runtime/swap/small_card.h"

struct card card;
static char folder[] = "/tmp/gs-placement-XXXXXX";

uint64_t card_draw(uint64_t below)
{
    return random_below(&card.random, below);
}

static bool fails_now(void)
{
    return card.failing > 0 && (double)card_draw(1000000) < card.failing * 1e6;
}

/* --- the driver's calls that fail --- */

static bool is_a_chunk(CUdeviceptr address)
{
    for (unsigned i = 0; i < CARD_BLOCKS; i++)
        if (address - card.blocks[i].address < card.blocks[i].bytes)
            return true;
    return false;
}

static CUresult create_or_fail(CUmemGenericAllocationHandle *handle, size_t bytes,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    card.made_on_host += prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return fails_now() ? CUDA_ERROR_OUT_OF_MEMORY
                       : card.driver.cuMemCreate(handle, bytes, prop, flags);
}

static CUresult map_or_fail(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (card.refuse_maps != 0 && is_a_chunk(address)) {
        card.refuse_maps--;
        return CUDA_ERROR_UNKNOWN;
    }
    return fails_now() ? CUDA_ERROR_UNKNOWN
                       : card.driver.cuMemMap(address, bytes, offset, handle, flags);
}

static CUresult set_access_or_fail(CUdeviceptr address, size_t bytes,
                                   const CUmemAccessDesc *access, size_t count)
{
    return fails_now() ? CUDA_ERROR_UNKNOWN
                       : card.driver.cuMemSetAccess(address, bytes, access, count);
}

static CUresult unmap_or_fail(CUdeviceptr address, size_t bytes)
{
    if (card.refuse_unmaps != 0) {
        card.refuse_unmaps--;
        return CUDA_ERROR_UNKNOWN;
    }
    return fails_now() ? CUDA_ERROR_UNKNOWN : card.driver.cuMemUnmap(address, bytes);
}

static CUresult reserve_or_fail(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr at, unsigned long long flags)
{
    return fails_now() ? CUDA_ERROR_OUT_OF_MEMORY
                       : card.driver.cuMemAddressReserve(address, bytes, alignment, at, flags);
}

static CUresult copy_or_fail(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    void (*const once)(void) = card.during_copy;

    card.during_copy = NULL;
    if (once != NULL)
        once();
    return fails_now() ? CUDA_ERROR_UNKNOWN : card.driver.cuMemcpyDtoD_v2(to, from, bytes);
}

/* --- the program --- */

void card_fill(struct card_block *block, uint32_t value)
{
    block->value = value;
    for (uint64_t at = 0; at < block->bytes; at += 2 * MIB)
        assert_int_equal(card.driver.cuMemsetD32_v2(block->address + at,
                                                    value + (uint32_t)(at / (2 * MIB)), 16),
                         CUDA_SUCCESS);
    assert_int_equal(card.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

void card_overfill(void)
{
    for (unsigned i = 0; i < 6; i++) {
        assert_true(card_allocate(&card.blocks[i], 64 * MIB));
        card_fill(&card.blocks[i], i + 1);
    }
}

static void check_block(const struct card_block *block)
{
    uint32_t word;

    for (uint64_t at = 0; at < block->bytes; at += 2 * MIB) {
        assert_int_equal(card.driver.cuMemcpyDtoH_v2(&word, block->address + at, sizeof word),
                         CUDA_SUCCESS);
        assert_int_equal(word, block->value + (uint32_t)(at / (2 * MIB)));
    }
}

bool card_allocate(struct card_block *block, uint64_t bytes)
{
    const struct gs_request request = {.device = card.device, .bytes = bytes};

    if (gs_memory_allocate(&request, &block->address) != CUDA_SUCCESS) {
        block->address = 0;
        return false;
    }
    block->bytes = bytes;
    return true;
}

void card_free(struct card_block *block)
{
    bool ours;

    assert_int_equal(gs_memory_free(block->address, NULL, &ours), CUDA_SUCCESS);
    assert_true(ours);
    *block = (struct card_block){0};
}

void card_return_memory(void)
{
    for (unsigned i = 0; i < CARD_BLOCKS; i++)
        if (card.blocks[i].address != 0)
            card_free(&card.blocks[i]);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(card.device, NULL, UINT64_MAX);
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

void card_check_books(uint64_t spare)
{
    const struct gs_accounts accounts = gs_memory_accounts(card.device);
    struct gs_accounts sum = {0};
    uint64_t host = 0;

    for (const struct gs_range *range = card.device->ranges; range != NULL; range = range->next)
        count_range(range, &sum, &host);
    assert_int_equal(accounts.demand, sum.demand);
    assert_int_equal(accounts.over, sum.over);
    assert_int_equal(accounts.resident, sum.resident);
    assert_int_equal(accounts.missing, sum.missing);
    assert_int_equal(accounts.idle, sum.idle);
    assert_in_range(gs_host_claimed(), host, host + spare);
    assert_true(accounts.demand <= gs_device_room(card.device));
}

void card_check_accounts(void)
{
    card_check_books(0);
}

void card_check_contents(void)
{
    for (unsigned i = 0; i < CARD_BLOCKS; i++)
        if (card.blocks[i].address != 0)
            check_block(&card.blocks[i]);
}

/* --- the client thread --- */

static void open_now(void)
{
    gs_gate_open(false);
}

void card_stop(void)
{
    assert_true(gs_gate_close(1000000000));
    assert_int_equal(card.driver.cuCtxSynchronize(), CUDA_SUCCESS);
}

void card_go_on(void)
{
    uint64_t lacking;

    for (unsigned i = 0; !gs_memory_if_complete(open_now); i++) {
        assert_true(i < 2000);
        if (i == 1000) { /* the last ones */
            card.failing = 0;
            card.refuse_maps = 0;
        }
        gs_memory_dispose_dead(true);
        gs_swap_in(card.device, CARD_ROOM, -1, &lacking);
        gs_placement_step(false);
    }
}

void card_use(const struct card_block *block)
{
    for (unsigned i = 0; i < 60; i++)
        gs_uses_span(block->address, block->bytes);
}

void card_forget_uses(uint64_t now)
{
    gs_placement_after_fork();
    gs_uses_anchor(true);
    gs_uses_take();
    gs_placement_look(now, true);
}

void card_exchange(void)
{
    if (!gs_placement_needs_stop())
        return;
    card_stop();
    while (gs_placement_step(true))
        continue;
    card_go_on();
}

void card_begin(uint64_t seed, double failing)
{
    card.random = seed * 0x9E3779B97F4A7C15ull | 1;
    card.failing = failing;
    gs_runtime.config.overcommit = CARD_BEYOND;
    gs_runtime.config.grain = 64 * MIB;
    card.refuse_maps = 0;
}

static bool nobody_to_wait_for(void)
{
    return false;
}

int card_teardown(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command); /* NOLINT(cert-env33-c): a folder of its own */
}

int card_setup(void **state)
{
    CUcontext context;

    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    setenv("SIMCUDA_CARD", folder, 1);
    setenv("SIMCUDA_MEMORY", "320MiB", 0);
    setenv("SIMCUDA_CONTEXT_MEMORY", "64KiB", 1);
    setenv("SIMCUDA_POISON", "0", 1); /* faster */
    gs_gate_init(nobody_to_wait_for);
    if (!gs_driver_load())
        return -1;
    card.driver = gs_driver;
    gs_driver.cuMemCreate = create_or_fail;
    gs_driver.cuMemMap = map_or_fail;
    gs_driver.cuMemSetAccess = set_access_or_fail;
    gs_driver.cuMemUnmap = unmap_or_fail;
    gs_driver.cuMemAddressReserve = reserve_or_fail;
    gs_driver.cuMemcpyDtoD_v2 = copy_or_fail;
    gs_runtime.config.device_limit = card.room != 0 ? card.room : CARD_ROOM;
    gs_runtime.config.overcommit_set = true;
    gs_runtime.config.grain = 64 * MIB;
    gs_runtime.config.overcommit = CARD_BEYOND;
    if (card.driver.cuInit(0) != CUDA_SUCCESS ||
        card.driver.cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
        return -1;
    card.device = gs_device_get(0);
    if (card.device == NULL || !gs_context_add(context, card.device))
        return -1;
    atomic_store(&card.device->target.seq, 1); /* else allocations wait for it */
    atomic_store(&card.device->target.flags, GS_TARGET_RUN);
    atomic_store(&card.device->target.budget, CARD_ROOM);
    gs_gate_open(false);
    if (!card_allocate(&card.blocks[0], 2 * MIB)) /* what is made once and stays */
        return -1;
    card_free(&card.blocks[0]);
    gs_idle_give_back(card.device, NULL, UINT64_MAX);
    return 0;
}
