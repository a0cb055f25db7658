/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slower.c: exchanges that make a program slower are undone and tried again later, an
 * allocation that does not fit is interleaved, and the addresses that launches pass divide one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/range/range.h"
#include "runtime/range/uses.h"
#include "runtime/swap/placement.h"
#include "tests/runtime/swap/small_card.h"

/* Chunks beyond the card, of so many of the range from the first one on. */
static unsigned count_beyond(const struct gs_range *range, uint32_t first, uint32_t count)
{
    unsigned beyond = 0;

    for (uint32_t i = first; i < first + count; i++)
        beyond += range->chunks[i].state == GS_CHUNK_OVER;
    return beyond;
}

static uint64_t not_run; /* ns in each window in which others have the card */

/* A window of even use in which the program runs for so long. Returns the bytes that change places after it. */
static uint64_t exchange_after_window(uint64_t *now, uint64_t ns)
{
    const uint64_t before = atomic_load(&gs_counts.exchanged);

    if (not_run != 0) {
        gs_placement_look(*now, false);
        gs_placement_look(*now += not_run, true);
    }
    for (unsigned i = 0; i < 6; i++)
        card_use(&card.blocks[i]);
    gs_placement_look(*now += ns / 2, true); /* the window is complete */
    for (unsigned i = 0; i < 6; i++)
        card_use(&card.blocks[i]);
    gs_placement_look(*now += ns / 2, true);
    card_exchange();
    return atomic_load(&gs_counts.exchanged) - before;
}

/* The same for a window in which a block beyond the card is used ten times as often as the rest. */
static uint64_t exchange_after_uneven_window(uint64_t *now, uint64_t ns)
{
    for (unsigned i = 0; i < 9; i++)
        card_use(&card.blocks[5]);
    return exchange_after_window(now, ns);
}

static bool is_often_used_beyond(void)
{
    return count_beyond(gs_range_at(card.blocks[5].address), 0, 1) != 0;
}

static uint64_t begin_uneven_use(void)
{
    const uint64_t now = gs_now() + 1000000000;

    card_begin(1, 0);
    card_overfill();
    card_forget_uses(now);
    return now;
}

/* Windows of 20 s until chunks change places. */
static unsigned windows_until_exchange(uint64_t *now)
{
    unsigned windows = 1;

    while (windows < 10 && exchange_after_uneven_window(now, 20000000000) == 0)
        windows++;
    return windows;
}

static void an_exchange_that_makes_slower_is_undone_and_tried_again(void **state)
{
    const uint64_t second = 1000000000;
    uint64_t now = begin_uneven_use();

    (void)state;
    assert_int_equal(exchange_after_uneven_window(&now, 20 * second), 128 * MIB);
    assert_false(is_often_used_beyond());
    assert_int_equal(exchange_after_uneven_window(&now, 300 * second), 0);
    assert_int_equal(exchange_after_uneven_window(&now, 300 * second), 128 * MIB);
    assert_true(is_often_used_beyond());
    card_check_accounts();
    card_check_contents();
    assert_int_equal(windows_until_exchange(&now), 1); /* tried again */
    assert_false(is_often_used_beyond());
    assert_int_equal(exchange_after_uneven_window(&now, 30000 * second), 0);
    assert_int_equal(exchange_after_uneven_window(&now, 30000 * second), 128 * MIB);
    assert_int_equal(windows_until_exchange(&now), 2); /* and again, after a longer rest */
    assert_int_equal(exchange_after_uneven_window(&now, 20 * second), 0); /* not slower */
    assert_false(is_often_used_beyond());
    card_check_contents();
    card_return_memory();
}

/* A program that never has the card for a whole window is served all the same, and others' turns do not make it
 * slower. */
static void turns_of_others_do_not_count(void **state)
{
    const uint64_t second = 1000000000;
    uint64_t now = begin_uneven_use();

    (void)state;
    not_run = second;
    for (unsigned i = 0; i < 4; i++, not_run = 300 * second) {
        exchange_after_uneven_window(&now, (i == 0 ? 20 : 12) * second);
        assert_false(is_often_used_beyond());
    }
    not_run = 0;
    card_check_contents();
    card_return_memory();
}

/* An allocation that does not fit as a whole has its two kinds of chunks one between the other. */
static void an_allocation_in_both_is_interleaved(void **state)
{
    const uint64_t grain = 2 * MIB;
    const struct gs_range *range;

    (void)state;
    card_begin(1, 0);
    gs_runtime.config.grain = grain;
    assert_true(card_allocate(&card.blocks[0], CARD_ROOM + CARD_ROOM / 4));
    range = gs_range_at(card.blocks[0].address);
    for (uint32_t i = 0; i + 10 <= range->chunk_count; i += 10)
        assert_int_equal(count_beyond(range, i, 10), 2);
    assert_int_equal(gs_memory_accounts(card.device).over, CARD_ROOM / 4);
    card_check_accounts();
    card_return_memory();
}

static void launch_with(CUdeviceptr address)
{
    size_t bytes = sizeof address;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &address, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};

    gs_uses_launch((CUfunction)&bytes, NULL, extra); /* any but NULL: it is not asked then */
}

/* In two parameters, as kernels of libraries do. */
static void launch_with_twice(CUdeviceptr address)
{
    CUdeviceptr both[] = {address, address};
    size_t bytes = sizeof both;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, both, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};

    gs_uses_launch((CUfunction)&bytes, NULL, extra);
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
    struct card_block *block = &card.blocks[0];
    struct gs_range *range;

    (void)state;
    card_begin(1, 0);
    assert_true(card_allocate(block, 3 * chunk));
    range = gs_range_at(block->address);
    card_forget_uses(gs_now());
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
    gs_uses_take();
    launch_with_twice(block->address);
    assert_int_equal(gs_uses_take(), 3 * chunk);
    card_return_memory();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_of_launches_divide_an_allocation),
        cmocka_unit_test(an_exchange_that_makes_slower_is_undone_and_tried_again),
        cmocka_unit_test(turns_of_others_do_not_count),
        cmocka_unit_test(an_allocation_in_both_is_interleaved),
    };

    return cmocka_run_group_tests(tests, card_setup, card_teardown);
}
