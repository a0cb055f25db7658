/* SPDX-License-Identifier: Apache-2.0
 *
 * test_moving.c: what moves, and when calls are refused because memory cannot come (moving.c),
 * with one device and everything around it played. Time is given. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lockd/protocol/wire.h"
#include "runtime/swap/moving.h"
#include "tests/runtime/swap/played.h"

static void exactly_the_excess_leaves_and_what_is_missing_comes(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    played_target(0, 30 * MIB);
    played.out_gives = GS_SWAP_MOVED;
    assert_true(gs_moving_step(played.clock_ns, true, true, -1));
    assert_int_equal(played.asked_out, 50 * MIB);
    played.asked_out = 0;
    assert_false(
        gs_moving_step(played.clock_ns, false, true, -1)); /* while it runs nothing leaves */
    assert_false(
        gs_moving_step(played.clock_ns, true, false, -1)); /* nor at the end of the process */
    assert_int_equal(played.asked_out, 0);
    played.accounts =
        (struct gs_accounts){.demand = 80 * MIB, .resident = 30 * MIB, .missing = 50 * MIB};
    played_target(GS_TARGET_RUN, 70 * MIB);
    played.in_gives = GS_SWAP_MOVED;
    assert_true(gs_moving_step(played.clock_ns, true, true, -1));
    assert_int_equal(played.asked_in, 40 * MIB);
}

static void gs_moving_step_handed_over_memory_is_for_what_is_missing(void **state)
{
    (void)state;
    played.accounts =
        (struct gs_accounts){.demand = 90 * MIB, .resident = 50 * MIB, .missing = 60 * MIB};
    played.in_hand = 20 * MIB;
    played.in_gives = GS_SWAP_MOVED;
    played_target(GS_TARGET_RUN, 60 * MIB);
    assert_true(gs_moving_step(played.clock_ns, true, true, -1));
    assert_int_equal(played.asked_in, 30 * MIB); /* what is in hand is room, too */
    assert_int_equal(played.in_hand, 20 * MIB);
    played_target(GS_TARGET_RUN, 45 * MIB);
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.in_hand, 15 * MIB);
    played.accounts = (struct gs_accounts){.demand = 30 * MIB, .resident = 50 * MIB};
    played.in_hand = 20 * MIB;
    played_target(GS_TARGET_RUN, 60 * MIB);
    gs_moving_step(played.clock_ns, false, true, -1);
    assert_int_equal(played.in_hand, 0);
    assert_int_equal(played.accounts.resident, 30 * MIB);
}

static void what_has_no_place_is_kept_and_tried_again(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    played_target(0, 0);
    played.out_gives = GS_SWAP_KEPT;
    played_wait(S / 2);
    assert_int_equal(atomic_load(&played.card.moving.kept), 80 * MIB);
    played.asked_out = 0;
    played_wait(S / 2); /* not all the time */
    assert_int_equal(played.asked_out, 0);
    played_wait(S);
    assert_int_equal(played.asked_out, 80 * MIB);
    played_target(0, 80 * MIB); /* it may stay */
    played_wait(S / 10);
    assert_int_equal(atomic_load(&played.card.moving.kept), 0);
}

/* A device may have registered any of it. */
static void nothing_leaves_while_a_device_reaches_the_memory(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    played_target(0, 0);
    played.out_gives = GS_SWAP_MOVED;
    played.rdma = true;
    played_wait(2 * S);
    assert_int_equal(played.asked_out, 0);
    assert_int_equal(atomic_load(&played.card.moving.kept), 80 * MIB);
}

/* A look costs as much as there are descriptors, and each piece of memory from others is one. */
static void a_way_out_looks_for_such_a_device_once(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    played_target(0, 0);
    played.out_gives = GS_SWAP_MOVED;
    for (unsigned i = 0; i < 5; i++) {
        assert_true(gs_moving_step(played.clock_ns, true, true, -1));
        played.out_under_way = true;
    }
    assert_int_equal(played.rdma_looks, 1);
    played.out_under_way = false;
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.rdma_looks, 2);
}

/* Not for what has been freed and is still there: others would be refused what is free in a
 * moment. */
static void what_no_copy_can_reach_is_kept_and_tried_again(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 50 * MIB, .resident = 80 * MIB};
    played_target(0, 10 * MIB);
    assert_false(gs_moving_step(played.clock_ns, true, true,
                                -1)); /* or it would be asked all the time */
    assert_int_equal(played.asked_out, 70 * MIB);
    assert_int_equal(atomic_load(&played.card.moving.kept), 0);
    played.out_of_reach = 40 * MIB;
    played_wait(S / 2);
    assert_int_equal(atomic_load(&played.card.moving.kept), 40 * MIB);
    played.accounts.resident = 50 * MIB; /* it has been disposed of */
    played.asked_out = 0;
    played_wait(S / 2);
    assert_int_equal(played.asked_out, 0);
    played_wait(S);
    assert_int_equal(played.asked_out, 40 * MIB);
    played.out_of_reach = 0; /* it has an address again */
    played.out_gives = GS_SWAP_MOVED;
    played_wait(2 * S);
    played.accounts.resident = 10 * MIB;
    played_wait(S / 10);
    assert_int_equal(atomic_load(&played.card.moving.kept), 0);
}

static void calls_are_refused_while_memory_can_never_come_and_no_longer(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played_target(0, 0);
    played_wait(2 * GS_SHORT_LIMIT_NS);
    assert_false(played.refusing); /* it just has to wait for its turn */
    atomic_store(&played.card.target.capacity, 50 * MIB);
    played_wait(GS_SHORT_LIMIT_NS - S);
    assert_false(played.refusing);
    played_wait(2 * S);
    assert_true(played.refusing);
    atomic_store(&played.card.target.capacity, 100 * MIB); /* whoever had it has gone */
    played_wait(S);
    assert_false(played.refusing);
}

static void a_driver_without_memory_is_asked_again_in_the_next_turn(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played_target(GS_TARGET_RUN, 90 * MIB);
    played.in_gives = GS_SWAP_SHORT;
    played_wait(GS_SHORT_LIMIT_NS - S);
    assert_false(played.refusing);
    played_wait(2 * S);
    assert_true(played.refusing);
    played_target(0, 0); /* refused calls want nothing: the turn is over */
    played_wait(S);
    assert_false(played.refusing);
    played_target(GS_TARGET_RUN, 90 * MIB);
    played.in_gives = GS_SWAP_MOVED;
    played_wait(S);
    assert_false(played.refusing);
}

static void what_lacks_room_for_long_goes_beyond_the_card(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played_target(GS_TARGET_RUN, 90 * MIB);
    played.in_gives = GS_SWAP_SHORT;
    played_wait(GS_BEYOND_NS - S);
    assert_false(played.card.moving.goes_beyond);
    played.accounts.missing = 60 * MIB; /* some more came: the time begins anew */
    played_wait(GS_BEYOND_NS - S);
    assert_false(played.card.moving.goes_beyond);
    played_wait(2 * S);
    assert_true(played.card.moving.goes_beyond);
    played_target(0, 0);
    played_wait(S);
    assert_false(played.card.moving.goes_beyond); /* not in others' turns */
    played_target(GS_TARGET_RUN, 90 * MIB);
    played.accounts.missing = 0;
    played_wait(S);
    assert_false(played.card.moving.goes_beyond);
}

/* Others do not leave, and its budget stays below what it needs. */
static void what_others_keep_for_long_is_not_waited_for(void **state)
{
    (void)state;
    played.accounts =
        (struct gs_accounts){.demand = 90 * MIB, .resident = 40 * MIB, .missing = 50 * MIB};
    played_target(GS_TARGET_RUN, 40 * MIB);
    played_wait(GS_BEYOND_LATER_NS - S);
    assert_false(played.card.moving.goes_beyond);
    played_wait(2 * S);
    assert_true(played.card.moving.goes_beyond);
    assert_false(played.refusing);
    played_wait(GS_SHORT_LIMIT_NS - GS_BEYOND_LATER_NS);
    assert_true(played.refusing);
}

/* In each turn the same part of its memory comes, which leaves with the turn. */
static void to_come_and_go_is_no_progress(void **state)
{
    (void)state;
    played.in_gives = GS_SWAP_SHORT;
    for (unsigned turn = 0; turn < 6; turn++) {
        assert_false(played.card.moving.goes_beyond);
        played_target(GS_TARGET_RUN, 90 * MIB);
        played.accounts =
            (struct gs_accounts){.demand = 90 * MIB, .resident = 40 * MIB, .missing = 50 * MIB};
        played_wait(S);
        played_target(0, 0);
        played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
        played_wait(3 * S);
    }
    played_target(GS_TARGET_RUN, 90 * MIB);
    played_wait(S / 2);
    assert_true(played.card.moving.goes_beyond);
}

/* The program has ended its contexts and kept memory of its own: the next one's calls wait for
 * that as if nothing had been. */
static void without_a_context_nothing_is_short(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played.in_gives = GS_SWAP_SHORT;
    played.without_context = true;
    played_target(GS_TARGET_RUN, 90 * MIB);
    played_wait(GS_SHORT_LIMIT_NS + S);
    assert_false(played.refusing);
    assert_int_equal(played.card.report.short_bytes, 0);
    played.without_context = false;
    played_wait(S);
    assert_false(played.refusing);
    assert_int_equal(played.card.report.short_bytes, 2 * MIB);
}

static void what_is_just_being_handed_over_is_not_lacking_yet(void **state)
{
    (void)state;
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played.in_gives = GS_SWAP_SHORT;
    played_target(GS_TARGET_RUN, 90 * MIB);
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.card.report.short_bytes, 2 * MIB); /* nothing is handed over */
    played_begin(NULL);
    played.accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    played.in_gives = GS_SWAP_SHORT;
    played_target(GS_TARGET_RUN | GS_TARGET_GIVE, 90 * MIB);
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.card.report.short_bytes, 0);
    assert_true(played.card.moving.retry_at - played.clock_ns < S / 100); /* and soon */
    played_wait(S / 2);
    assert_int_equal(played.card.report.short_bytes, 2 * MIB);
}

/* Managed memory that is not counted leaves when the program has stopped and may not run, and may
 * come back with its next turn; what has no room in the demand any more is counted no more. */
static void loose_memory_has_turns_as_well(void **state)
{
    (void)state;
    played.accounts =
        (struct gs_accounts){.demand = 90 * MIB, .resident = 20 * MIB, .managed = 50 * MIB};
    played.loose_left = 2;
    played.loose_begun = 0;
    played_target(GS_TARGET_RUN, 90 * MIB);
    gs_moving_step(played.clock_ns, true, true, -1);
    played_target(0, 90 * MIB);
    gs_moving_step(played.clock_ns, false, true, -1); /* work is still under way */
    assert_int_equal(played.loose_left, 2);
    assert_true(gs_moving_step(played.clock_ns, true, true, -1));
    assert_true(gs_moving_step(played.clock_ns, true, true, -1));
    assert_false(gs_moving_step(played.clock_ns, true, true, -1));
    assert_int_equal(played.loose_begun, 0);
    played_target(GS_TARGET_RUN, 90 * MIB);
    gs_moving_step(played.clock_ns, true, true, -1);
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.loose_begun, 1);
    played.accounts.demand = 130 * MIB;
    gs_moving_step(played.clock_ns, true, true, -1);
    assert_int_equal(played.loosened, 130 * MIB - gs_device_room(&played.card));
}

/* The driver waits for all that runs before it ends a registration, and this thread with it. So it is done when
 * nothing runs, or late in a program that never rests. */
static void host_memory_is_released_when_nothing_runs(void **state)
{
    (void)state;
    gs_moving_keep_host(100 * S, false, true);
    played.host_used = MIB;
    played.ended = 1;
    gs_moving_keep_host(120 * S, false, false);
    assert_int_equal(played.ended, 1);
    assert_int_equal(played.trims, 0);
    gs_moving_keep_host(120 * S, false, true);
    assert_int_equal(played.ended, 0);
    assert_int_equal(played.trims, 1);
    gs_moving_keep_host(140 * S, false, false);
    assert_int_equal(played.trims, 1);
    gs_moving_keep_host(151 * S, false, false);
    assert_int_equal(played.trims, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(exactly_the_excess_leaves_and_what_is_missing_comes,
                               played_begin),
        cmocka_unit_test_setup(gs_moving_step_handed_over_memory_is_for_what_is_missing,
                               played_begin),
        cmocka_unit_test_setup(nothing_leaves_while_a_device_reaches_the_memory, played_begin),
        cmocka_unit_test_setup(a_way_out_looks_for_such_a_device_once, played_begin),
        cmocka_unit_test_setup(what_has_no_place_is_kept_and_tried_again, played_begin),
        cmocka_unit_test_setup(what_no_copy_can_reach_is_kept_and_tried_again, played_begin),
        cmocka_unit_test_setup(calls_are_refused_while_memory_can_never_come_and_no_longer,
                               played_begin),
        cmocka_unit_test_setup(a_driver_without_memory_is_asked_again_in_the_next_turn,
                               played_begin),
        cmocka_unit_test_setup(what_lacks_room_for_long_goes_beyond_the_card, played_begin),
        cmocka_unit_test_setup(what_others_keep_for_long_is_not_waited_for, played_begin),
        cmocka_unit_test_setup(to_come_and_go_is_no_progress, played_begin),
        cmocka_unit_test_setup(without_a_context_nothing_is_short, played_begin),
        cmocka_unit_test_setup(loose_memory_has_turns_as_well, played_begin),
        cmocka_unit_test_setup(what_is_just_being_handed_over_is_not_lacking_yet, played_begin),
        cmocka_unit_test_setup(host_memory_is_released_when_nothing_runs, played_begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
