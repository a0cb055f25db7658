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
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/range/host.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/range/backend.h"
#include "runtime/range/range.h"
#include "runtime/range/uses.h"
#include "runtime/swap/exchange.h"
#include "runtime/swap/placement.h"
#include "runtime/swap/swap.h"
#include "tests/runtime/swap/small_card.h"

#define STEPS   100u
#define REFUSED 40u /* mappings in a row: more than any loop of attempts makes */

static bool interfered; /* meanwhile() has run */
static unsigned adrift; /* exchanges that left a chunk so */

static struct card_block *pick_block(bool there)
{
    for (unsigned i = 0, from = (unsigned)card_draw(CARD_BLOCKS); i < CARD_BLOCKS; i++)
        if ((card.blocks[(from + i) % CARD_BLOCKS].address != 0) == there)
            return &card.blocks[(from + i) % CARD_BLOCKS];
    return NULL;
}

/* In the middle of an exchange, as another thread. What is allocated then is not in place yet. */
static void meanwhile(void)
{
    struct card_block *block = pick_block(card_draw(2) == 0);

    if (block == NULL)
        return;
    if (block->address != 0)
        card_free(block);
    else
        card_allocate(block, (2 + 2 * card_draw(40)) * MIB);
    interfered = true;
}

/* By the use of a block that is used more often than the others. */
static void exchange_some(void)
{
    const struct card_block *often = pick_block(true);
    uint64_t now = gs_now();

    if (often == NULL)
        return;
    for (unsigned i = 0; i < CARD_BLOCKS; i++)
        if (card.blocks[i].address != 0)
            gs_uses_span(card.blocks[i].address, card.blocks[i].bytes);
    card_use(often);
    for (unsigned i = 0; i < 3; i++)
        gs_placement_look(now += 60000000, true);
    if (!gs_placement_needs_stop())
        return;
    card_stop();
    card.during_copy = card_draw(3) == 0 ? meanwhile : NULL;
    if (card_draw(4) == 0)
        card.refuse_maps = REFUSED;
    while (gs_placement_step(true))
        card_check_books(GS_LARGE_CHUNK_BYTES);
    adrift += gs_exchange_is_adrift() ? 1 : 0;
    card.during_copy = NULL;
    card_check_accounts();
    card_go_on();
}

/* Another program's turn: some of the card's part leaves, and comes back. */
static void hand_off(void)
{
    const uint64_t most = card_draw(5) * CARD_ROOM / 4;
    uint64_t resident;

    card_stop();
    gs_memory_dispose_dead(true);
    while ((resident = gs_memory_accounts(card.device).resident) > most &&
           gs_swap_out(card.device, resident - most) == GS_SWAP_MOVED)
        continue;
    gs_swap_settle();
    card_check_accounts();
    card_go_on();
}

static void allocate_some(void)
{
    static const uint64_t sizes[] = {2, 6, 30, 64, 66, 100, 180};
    struct card_block *block = pick_block(false);

    if (block == NULL ||
        !card_allocate(block, sizes[card_draw(sizeof sizes / sizeof *sizes)] * MIB))
        return;
    card_check_accounts();
    if (gs_memory_accounts(card.device).missing != 0) {
        card_stop();
        card_go_on();
    }
    card_fill(block, (uint32_t)card_draw(1u << 30));
}

static void take_step(void)
{
    struct card_block *block = NULL;

    switch (card_draw(8)) {
    case 0:
    case 1:
        allocate_some();
        break;
    case 2:
        if ((block = pick_block(true)) != NULL)
            card_free(block);
        break;
    case 3:
        hand_off();
        break;
    case 4: /* another limit; what is beyond it stays there */
        gs_runtime.config.overcommit = card_draw(4) * CARD_BEYOND / 3;
        break;
    default:
        exchange_some();
    }
    gs_memory_dispose_dead(false);
    card_check_accounts();
}

/* What was allocated while an exchange ran holds nothing that is known yet. */
static void fill_new_blocks(void)
{
    for (unsigned i = 0; interfered && i < CARD_BLOCKS; i++)
        if (card.blocks[i].address != 0 && card.blocks[i].value == 0)
            card_fill(&card.blocks[i], 1 + (uint32_t)card_draw(1u << 30));
    interfered = false;
}

static size_t free_memory(void)
{
    size_t free = 0, total;

    assert_int_equal(card.driver.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return free;
}

static void run_seed(uint64_t seed, double failing, bool exact)
{
    static const uint64_t grains[] = {2 * MIB, 8 * MIB, 64 * MIB};
    size_t before;

    card_begin(seed, 0);
    gs_runtime.config.grain = grains[card_draw(sizeof grains / sizeof *grains)];
    before = free_memory();
    card.failing = failing;
    for (unsigned i = 0; i < STEPS; i++) {
        take_step();
        fill_new_blocks();
        card_check_contents();
    }
    card.failing = 0;
    card.refuse_maps = 0;
    for (unsigned i = 0; i < CARD_BLOCKS; i++)
        if (card.blocks[i].address != 0)
            card_free(&card.blocks[i]);
    card_stop();
    gs_placement_look(gs_now() + 1000000000, false);
    gs_memory_dispose_dead(true);
    gs_idle_give_back(card.device, NULL, UINT64_MAX);
    card_go_on();
    card_check_accounts();
    assert_null(card.device->ranges);
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
    assert_true(atomic_load(&gs_counts.exchanged) > 0);
    assert_true(adrift > 0); /* mappings are refused now and then, in a row */
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
    uint64_t exchanged = atomic_load(&gs_counts.exchanged);

    (void)state;
    card_begin(1, 0);
    card_overfill();
    assert_int_equal(gs_memory_accounts(card.device).over, 2 * bytes);
    card_forget_uses(100000000);
    for (unsigned i = 0; i < 60; i++) {
        gs_uses_span(card.blocks[4].address, bytes);
        gs_uses_span(card.blocks[5].address, bytes);
    }
    gs_placement_look(gs_now() / 5, true);
    gs_uses_span(card.blocks[4].address, bytes);
    gs_placement_look(gs_now() / 4, true);
    assert_true(gs_placement_needs_stop());
    card_stop();
    card.made_on_host = 0;
    while (gs_placement_step(true))
        continue;
    card_go_on();
    exchanged = atomic_load(&gs_counts.exchanged) - exchanged;
    assert_int_equal(exchanged, 4 * bytes);
    assert_int_equal(card.made_on_host, 1);
    card_check_accounts();
    card_check_contents();
    card_return_memory();
}

/* Each block is used for longer than a window lasts else, and then the next one: once all were used, all
 * are used alike, and stay. */
static void a_round_longer_than_a_window_moves_nothing(void **state)
{
    uint64_t now = 100000000, exchanged = 0;

    (void)state;
    card_begin(1, 0);
    card_overfill();
    card_forget_uses(now);
    for (unsigned i = 0; i < 90; i++) {
        if (i == 30)
            exchanged = atomic_load(&gs_counts.exchanged);
        for (unsigned k = 0; k < 10; k++)
            gs_uses_span(card.blocks[i % 6].address, card.blocks[i % 6].bytes);
        gs_placement_look(now += 60000000, true);
        card_exchange();
    }
    assert_int_equal(atomic_load(&gs_counts.exchanged) - exchanged, 0);
    card_check_contents();
    card_return_memory();
}

/* A chunk leaves, and the driver does not unmap it: its memory may come back all the same. */
static void what_stays_mapped_is_in_no_way(void **state)
{
    struct gs_range *range;

    (void)state;
    card_begin(1, 0);
    assert_true(card_allocate(&card.blocks[0], 64 * MIB));
    range = card.device->ranges;
    card.refuse_unmaps = 4; /* as often as it is tried */
    gs_backend_of(range)->remove(range, 0);
    assert_int_equal(card.refuse_unmaps, 0);
    assert_int_equal(gs_backend_of(range)->place(range, 0), CUDA_SUCCESS);
    card_fill(&card.blocks[0], 7);
    card_check_contents();
    card_return_memory();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts_are_those_of_a_recount),
        cmocka_unit_test(failing_calls_lose_no_chunk),
        cmocka_unit_test(a_long_drain_takes_nothing_from_the_exchanges),
        cmocka_unit_test(a_round_longer_than_a_window_moves_nothing),
        cmocka_unit_test(what_stays_mapped_is_in_no_way),
    };

    return cmocka_run_group_tests(tests, card_setup, card_teardown);
}
