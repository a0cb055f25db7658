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
#include "runtime/client/client.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/range/handover.h"
#include "runtime/host/host.h"
#include "runtime/memory/memory.h"
#include "runtime/swap/moving.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/client/session.h"
#include "runtime/swap/swap.h"

#define MIB ((uint64_t)1 << 20)
#define S   1000000000ull

struct gs_driver gs_driver;
struct gs_runtime gs_runtime;

static struct gs_device card;
static struct gs_accounts accounts;
static enum gs_swap_result out_gives, in_gives;
static uint64_t asked_out, asked_in, in_hand, clock_ns;
static uint64_t out_of_reach;
static bool refusing, without_context;

/* --- what moving.c stands on --- */

struct gs_device *gs_device_at(unsigned i)
{
    return i == 0 ? &card : NULL;
}

uint64_t gs_device_room(const struct gs_device *device)
{
    return atomic_load(&device->target.capacity) + atomic_load(&device->moving.kept);
}

struct gs_context *gs_context_for(const struct gs_device *device)
{
    static struct gs_context context;

    (void)device;
    return without_context ? NULL : &context;
}

struct gs_accounts gs_memory_accounts(const struct gs_device *device)
{
    (void)device;
    return accounts;
}

uint64_t gs_memory_out_of_reach(const struct gs_device *device)
{
    (void)device;
    return out_of_reach;
}

enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess)
{
    (void)device;
    asked_out = excess;
    return out_gives;
}

enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, int news,
                               uint64_t *lacking)
{
    (void)device;
    (void)news;
    asked_in = room;
    *lacking = in_gives == GS_SWAP_SHORT ? 2 * MIB : 0;
    return in_gives;
}

bool gs_swap_is_under_way(const struct gs_device *device, bool out)
{
    (void)device;
    (void)out;
    return false;
}

void gs_swap_settle(void)
{
}

void gs_swap_drop_copies(struct gs_device *device)
{
    (void)device;
}

uint64_t gs_handover_in_hand(const struct gs_device *device)
{
    (void)device;
    return in_hand;
}

void gs_handover_shrink(struct gs_device *device, uint64_t most)
{
    const uint64_t less = in_hand > most ? in_hand - most : 0;

    (void)device;
    in_hand -= less;
    accounts.resident -= less;
}

void gs_gate_refuse(bool refuse)
{
    refusing = refuse;
}

uint64_t gs_now(void)
{
    return clock_ns;
}

void gs_host_prepare(uint64_t bytes)
{
    (void)bytes;
}

bool gs_host_has_unregistered(void)
{
    return false;
}

bool gs_host_register_one(void)
{
    return false;
}

uint64_t gs_host_used(void)
{
    return 0;
}

uint64_t gs_host_budget(void)
{
    return UINT64_MAX;
}

void gs_host_trim(uint64_t keep)
{
    (void)keep;
}

/* --- the tests --- */

static int begin(void **state)
{
    (void)state;
    card = (struct gs_device){.movable = true};
    atomic_store(&card.target.capacity, 100 * MIB);
    accounts = (struct gs_accounts){0};
    out_gives = in_gives = GS_SWAP_NOTHING;
    asked_out = asked_in = in_hand = 0;
    out_of_reach = 0;
    refusing = without_context = false;
    clock_ns = S;
    return 0;
}

static void target(uint32_t flags, uint64_t budget)
{
    atomic_store(&card.target.flags, flags);
    atomic_store(&card.target.budget, budget);
}

/* steps of 100 ms */
static void wait(uint64_t ns)
{
    for (const uint64_t until = clock_ns + ns; clock_ns < until; clock_ns += S / 10)
        gs_moving_step(clock_ns, true, true, -1);
}

static void exactly_the_excess_leaves_and_what_is_missing_comes(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    target(0, 30 * MIB);
    out_gives = GS_SWAP_MOVED;
    assert_true(gs_moving_step(clock_ns, true, true, -1));
    assert_int_equal(asked_out, 50 * MIB);
    asked_out = 0;
    assert_false(gs_moving_step(clock_ns, false, true, -1)); /* while it runs nothing leaves */
    assert_false(gs_moving_step(clock_ns, true, false, -1)); /* nor at the end of the process */
    assert_int_equal(asked_out, 0);
    accounts =
        (struct gs_accounts){.demand = 80 * MIB, .resident = 30 * MIB, .missing = 50 * MIB};
    target(GS_TARGET_RUN, 70 * MIB);
    in_gives = GS_SWAP_MOVED;
    assert_true(gs_moving_step(clock_ns, true, true, -1));
    assert_int_equal(asked_in, 40 * MIB);
}

static void gs_moving_step_handed_over_memory_is_for_what_is_missing(void **state)
{
    (void)state;
    accounts =
        (struct gs_accounts){.demand = 90 * MIB, .resident = 50 * MIB, .missing = 60 * MIB};
    in_hand = 20 * MIB;
    in_gives = GS_SWAP_MOVED;
    target(GS_TARGET_RUN, 60 * MIB);
    assert_true(gs_moving_step(clock_ns, true, true, -1));
    assert_int_equal(asked_in, 30 * MIB); /* what is in hand is room, too */
    assert_int_equal(in_hand, 20 * MIB);
    target(GS_TARGET_RUN, 45 * MIB);
    gs_moving_step(clock_ns, true, true, -1);
    assert_int_equal(in_hand, 15 * MIB);
    accounts = (struct gs_accounts){.demand = 30 * MIB, .resident = 50 * MIB};
    in_hand = 20 * MIB;
    target(GS_TARGET_RUN, 60 * MIB);
    gs_moving_step(clock_ns, false, true, -1);
    assert_int_equal(in_hand, 0);
    assert_int_equal(accounts.resident, 30 * MIB);
}

static void what_has_no_place_is_kept_and_tried_again(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 80 * MIB, .resident = 80 * MIB};
    target(0, 0);
    out_gives = GS_SWAP_KEPT;
    wait(S / 2);
    assert_int_equal(atomic_load(&card.moving.kept), 80 * MIB);
    asked_out = 0;
    wait(S / 2); /* not all the time */
    assert_int_equal(asked_out, 0);
    wait(S);
    assert_int_equal(asked_out, 80 * MIB);
    target(0, 80 * MIB); /* it may stay */
    wait(S / 10);
    assert_int_equal(atomic_load(&card.moving.kept), 0);
}

/* Not for what has been freed and is still there: others would be refused what is free in a
 * moment. */
static void what_no_copy_can_reach_is_kept_and_tried_again(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 50 * MIB, .resident = 80 * MIB};
    target(0, 10 * MIB);
    assert_false(
        gs_moving_step(clock_ns, true, true, -1)); /* or it would be asked all the time */
    assert_int_equal(asked_out, 70 * MIB);
    assert_int_equal(atomic_load(&card.moving.kept), 0);
    out_of_reach = 40 * MIB;
    wait(S / 2);
    assert_int_equal(atomic_load(&card.moving.kept), 40 * MIB);
    accounts.resident = 50 * MIB; /* it has been disposed of */
    asked_out = 0;
    wait(S / 2);
    assert_int_equal(asked_out, 0);
    wait(S);
    assert_int_equal(asked_out, 40 * MIB);
    out_of_reach = 0; /* it has an address again */
    out_gives = GS_SWAP_MOVED;
    wait(2 * S);
    accounts.resident = 10 * MIB;
    wait(S / 10);
    assert_int_equal(atomic_load(&card.moving.kept), 0);
}

static void calls_are_refused_while_memory_can_never_come_and_no_longer(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    target(0, 0);
    wait(2 * GS_SHORT_LIMIT_NS);
    assert_false(refusing); /* it just has to wait for its turn */
    atomic_store(&card.target.capacity, 50 * MIB);
    wait(GS_SHORT_LIMIT_NS - S);
    assert_false(refusing);
    wait(2 * S);
    assert_true(refusing);
    atomic_store(&card.target.capacity, 100 * MIB); /* whoever had it has gone */
    wait(S);
    assert_false(refusing);
}

static void a_driver_without_memory_is_asked_again_in_the_next_turn(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    target(GS_TARGET_RUN, 90 * MIB);
    in_gives = GS_SWAP_SHORT;
    wait(GS_SHORT_LIMIT_NS - S);
    assert_false(refusing);
    wait(2 * S);
    assert_true(refusing);
    target(0, 0); /* refused calls want nothing: the turn is over */
    wait(S);
    assert_false(refusing);
    target(GS_TARGET_RUN, 90 * MIB);
    in_gives = GS_SWAP_MOVED;
    wait(S);
    assert_false(refusing);
}

/* The program has ended its contexts and kept memory of its own: the next one's calls wait for
 * that as if nothing had been. */
static void without_a_context_nothing_is_short(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    in_gives = GS_SWAP_SHORT;
    without_context = true;
    target(GS_TARGET_RUN, 90 * MIB);
    wait(GS_SHORT_LIMIT_NS + S);
    assert_false(refusing);
    assert_int_equal(card.report.short_bytes, 0);
    without_context = false;
    wait(S);
    assert_false(refusing);
    assert_int_equal(card.report.short_bytes, 2 * MIB);
}

static void what_is_just_being_handed_over_is_not_lacking_yet(void **state)
{
    (void)state;
    accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    in_gives = GS_SWAP_SHORT;
    target(GS_TARGET_RUN, 90 * MIB);
    gs_moving_step(clock_ns, true, true, -1);
    assert_int_equal(card.report.short_bytes, 2 * MIB); /* nothing is handed over */
    begin(NULL);
    accounts = (struct gs_accounts){.demand = 90 * MIB, .missing = 90 * MIB};
    in_gives = GS_SWAP_SHORT;
    target(GS_TARGET_RUN | GS_TARGET_GIVE, 90 * MIB);
    gs_moving_step(clock_ns, true, true, -1);
    assert_int_equal(card.report.short_bytes, 0);
    assert_true(card.moving.retry_at - clock_ns < S / 100); /* and soon */
    wait(S / 2);
    assert_int_equal(card.report.short_bytes, 2 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(exactly_the_excess_leaves_and_what_is_missing_comes, begin),
        cmocka_unit_test_setup(gs_moving_step_handed_over_memory_is_for_what_is_missing, begin),
        cmocka_unit_test_setup(what_has_no_place_is_kept_and_tried_again, begin),
        cmocka_unit_test_setup(what_no_copy_can_reach_is_kept_and_tried_again, begin),
        cmocka_unit_test_setup(calls_are_refused_while_memory_can_never_come_and_no_longer,
                               begin),
        cmocka_unit_test_setup(a_driver_without_memory_is_asked_again_in_the_next_turn, begin),
        cmocka_unit_test_setup(without_a_context_nothing_is_short, begin),
        cmocka_unit_test_setup(what_is_just_being_handed_over_is_not_lacking_yet, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
