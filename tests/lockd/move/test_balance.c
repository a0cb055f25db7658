/* SPDX-License-Identifier: Apache-2.0
 *
 * test_balance.c: which programs move, when, where to, and which do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lockd/move/pool.h"

#define S  POOL_SECOND
#define GB POOL_GB

static void add_many(struct pool *pool, uint32_t count, uint32_t card)
{
    for (uint32_t i = 0; i < count; i++)
        pool_add(pool, card, 60 * GB, S, 0);
}

static void balance_all_on_one_card_spread_evenly(void **state)
{
    (void)state;
    for (uint32_t cards = 2; cards <= 8; cards *= 2) {
        struct pool pool;

        pool_init(&pool, cards, 1);
        add_many(&pool, 8, 0);
        pool_run(&pool, 120 * S);
        for (uint32_t card = 0; card < cards; card++)
            assert_int_equal(pool_count(&pool, card), 8 / cards);
        assert_int_equal(pool.moved, 8 - 8 / cards); /* each at most once */
        pool_run(&pool, 3600 * S);
        assert_int_equal(pool.moved, 8 - 8 / cards); /* and nobody after that */
        pool_deinit(&pool);
    }
}

static void balance_programs_that_run_at_once_spread_too(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 4, 1);
    pool.open = true;
    add_many(&pool, 8, 0);
    pool_run(&pool, 120 * S);
    for (uint32_t card = 0; card < 4; card++)
        assert_int_equal(pool_count(&pool, card), 2);
    assert_int_equal(pool.moved, 6);
    pool_run(&pool, 3600 * S);
    assert_int_equal(pool.moved, 6);
    pool_deinit(&pool);
}

/* Each has more than half of the card for itself, and they hardly meet. */
static void balance_programs_that_leave_gaps_for_each_other_stay(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 4, 1);
    pool.open = true;
    for (uint32_t i = 0; i < 4; i++)
        pool_add(&pool, 0, 20 * GB, S / 5, 4 * S);
    pool_run(&pool, 3600 * S);
    assert_int_equal(pool.attempts, 0);
    pool_deinit(&pool);
}

static void balance_off_nobody_moves(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    balance_set(&pool.balance, false);
    assert_true(balance_tend(&pool.balance, pool.now) == LOCKD_NEVER);
    add_many(&pool, 8, 0);
    pool_run(&pool, 600 * S);
    assert_int_equal(pool.attempts, 0);
    balance_set(&pool.balance, true);
    pool_run(&pool, 60 * S);
    assert_int_equal(pool_count(&pool, 1), 4);
    pool_deinit(&pool);
}

static void balance_odd_one_stays(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 3, 0);
    pool_run(&pool, 3600 * S);
    assert_int_equal(pool.moved, 1);
    pool_deinit(&pool);
}

/* It must lose twice what the move costs: 1 s, and 60 GB out (half of it) and in. */
static void balance_dearer_moves_come_later(void **state)
{
    (void)state;
    for (uint64_t overhead = 1; overhead <= 100; overhead *= 10) {
        struct pool pool;
        uint64_t began;

        pool_init(&pool, 2, 1);
        pool.balance.overhead_ns = overhead * S;
        add_many(&pool, 2, 0);
        began = pool.now;
        while (pool.attempts == 0 && pool.now - began < 3600 * S)
            pool_run(&pool, POOL_STEP);
        assert_int_equal(pool.attempts, 1);
        /* both wait for half of the time, and could wait for none of it */
        assert_in_range(pool.now - began, 4 * (overhead * S + 1800 * POOL_MS) - S,
                        5 * (overhead * S + 1800 * POOL_MS) + 3 * S);
        pool_deinit(&pool);
    }
}

static void balance_measured_cost_counts(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    pool.overhead = 30 * S;
    add_many(&pool, 2, 0);
    pool_run(&pool, 60 * S);
    assert_int_equal(pool.moved, 1);
    assert_in_range(pool.balance.overhead_ns, 29 * S, 31 * S);
    assert_in_range(balance_cost(&pool.balance, pool.programs[0].balance), 31 * S, 33 * S);
    pool_deinit(&pool);
}

static void balance_short_rare_waits_move_nobody(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    pool_add(&pool, 0, 60 * GB, S / 5, 10 * S);
    pool_add(&pool, 0, 60 * GB, S / 5, 11 * S);
    pool_run(&pool, 14400 * S);
    assert_int_equal(pool.attempts, 0);
    pool_deinit(&pool);
}

static void balance_busy_card_is_no_target(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 2, 0);
    add_many(&pool, 2, 1);
    pool_run(&pool, 3600 * S);
    assert_int_equal(pool.attempts, 0);
    pool_remove(&pool, 2);
    pool_remove(&pool, 3);
    pool_run(&pool, 60 * S);
    assert_int_equal(pool.moved, 1);
    pool_deinit(&pool);
}

/* A notebook that does next to nothing keeps nobody away; one that is in use does. */
static void balance_interactive_program_is_left_alone(void **state)
{
    (void)state;
    for (uint32_t in_use = 0; in_use < 2; in_use++) {
        struct pool pool;
        uint32_t notebook;

        pool_init(&pool, 2, 1);
        notebook = pool_add(&pool, 1, 60 * GB, S / 2, in_use ? 2 * S : 100 * S);
        pool.programs[notebook].class = GS_CLASS_INTERACTIVE;
        pool_run(&pool, 300 * S);
        add_many(&pool, 2, 0);
        pool_run(&pool, 600 * S);
        assert_int_equal(pool.moved, in_use ? 0 : 1);
        pool_deinit(&pool);
    }
}

static void balance_background_programs_are_in_nobodys_way(void **state)
{
    struct pool pool;
    uint32_t first;

    (void)state;
    pool_init(&pool, 2, 1);
    for (uint32_t i = 0; i < 3; i++)
        pool.programs[pool_add(&pool, 1, 60 * GB, S, 0)].class = GS_CLASS_BACKGROUND;
    first = pool_add(&pool, 0, 60 * GB, S, 0);
    pool_add(&pool, 0, 60 * GB, S, 0);
    pool_run(&pool, 20 * S);
    assert_int_equal(pool.programs[first].card + pool.programs[first + 1].card, 1);
    pool_deinit(&pool);
}

static void balance_card_without_room_is_no_target(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 2, 0);
    pool.programs[0].memory = pool.programs[1].memory =
        79 * GB; /* nobody has seen so much there */
    pool_run(&pool, 600 * S);
    assert_int_equal(pool.attempts, 0);
    pool_deinit(&pool);
}

static void balance_other_model_is_no_target(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 1, 1);
    add_many(&pool, 2, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct lockd_seen other = {.uuid = {2}, .name = "other", .total = 82 * GB};

        balance_sees(&pool.balance, pool.programs[i].balance, &other);
    }
    pool.cards = 2;
    pool_run(&pool, 600 * S);
    assert_int_equal(pool.attempts, 0);
    pool_deinit(&pool);
}

static void balance_hidden_card_is_said_once(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    pool.hidden = 2;
    add_many(&pool, 2, 0);
    pool.hidden = 0;
    pool_add(&pool, 1, 60 * GB, S / 10, 60 * S); /* by this one it is known that there is one */
    pool_run(&pool, 3600 * S);
    assert_int_equal(pool.attempts, 0);
    assert_int_equal(pool.hidden_said, 2);
    pool_deinit(&pool);
}

/* Wherever it goes, all others are there soon after: a move of late doubles what the next one needs. */
static void balance_followed_program_moves_less_and_less(void **state)
{
    struct pool pool;
    uint32_t in_ten_minutes = 0;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 4, 0);
    for (uint64_t second = 0; second < 14400; second++) {
        for (uint32_t i = 1; i < 4; i++) {
            if (!pool.programs[0].moves && pool.programs[i].card != pool.programs[0].card) {
                pool_remove(&pool, i);
                pool_add(&pool, pool.programs[0].card, 60 * GB, S, 0);
            }
            pool.programs[i].balance->failures.retry_at = UINT64_MAX; /* they stay */
        }
        pool_run(&pool, S);
        if (second == 600)
            in_ten_minutes = pool.programs[0].moved;
    }
    assert_in_range(in_ten_minutes, 3, 7);
    assert_in_range(pool.programs[0].moved - in_ten_minutes, 5, 4 * 6);
    pool_deinit(&pool);
}

/* --- failures --- */

static uint32_t attempts_in(enum lockd_move_end outcome, uint32_t programs, uint64_t ns,
                            uint32_t cards)
{
    struct pool pool;
    uint32_t attempts;

    pool_init(&pool, cards, 1);
    pool.outcome = outcome;
    add_many(&pool, programs, 0);
    pool_run(&pool, ns);
    attempts = pool.attempts;
    pool_deinit(&pool);
    return attempts;
}

/* After 1, 4, 16, 60, 60 ... minutes, and the time in which so much is lost again. */
static void balance_failures_are_remembered(void **state)
{
    (void)state;
    assert_in_range(attempts_in(LOCKD_MOVE_NOBODY, 6, 14400 * S, 2), 5, 7);
    assert_in_range(attempts_in(LOCKD_MOVE_NOT_IT, 2, 14400 * S, 2), 10, 14);
    assert_in_range(attempts_in(LOCKD_MOVE_NOT_THERE, 2, 14400 * S, 3), 20, 28);
    assert_true(attempts_in(LOCKD_MOVE_LATER, 2, 60 * S, 2) > 5);
}

static void balance_one_that_cannot_move_keeps_no_other_one(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 4, 0);
    pool.outcome = LOCKD_MOVE_NOT_IT;
    while (pool.attempts == 0)
        pool_run(&pool, POOL_STEP);
    while (pool.balance.moving != NULL)
        pool_run(&pool, POOL_STEP);
    pool.outcome = LOCKD_MOVE_DONE;
    pool_run(&pool, 50 * S);
    assert_int_equal(pool.moved, 2);
    pool_deinit(&pool);
}

/* Of eight programs on one of four cards two cannot be moved: by their own nature, or since they do
 * not see the other cards. */
static void balance_two_that_cannot_move_keep_no_others(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        struct pool pool;

        pool_init(&pool, 4, 1);
        pool.hidden = hidden ? 0xe : 0;
        add_many(&pool, 2, 0);
        pool.hidden = 0;
        pool.programs[0].fixed = pool.programs[1].fixed = true;
        add_many(&pool, 6, 0);
        pool_run(&pool, 120 * S);
        for (uint32_t card = 0; card < 4; card++)
            assert_int_equal(pool_count(&pool, card), 2);
        assert_int_equal(pool.moved, 6);
        assert_true(pool.attempts <= 6 + (hidden ? 0 : 4));
        pool_run(&pool, 3600 * S);
        assert_int_equal(pool.moved, 6);
        pool_deinit(&pool);
    }
}

/* A guard holds a program that was to move: the others move meanwhile, and what that one takes in
 * the end says nothing about them. */
static void balance_held_program_keeps_no_other_one(void **state)
{
    struct pool pool;
    uint32_t number = 0;
    uint64_t overhead;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 5, 0);
    while (pool.attempts == 0)
        pool_run(&pool, POOL_STEP);
    while (!pool.programs[number].moves)
        number++;
    pool.programs[number].arrives_at = UINT64_MAX;
    balance_outcome(&pool.balance, pool.programs[number].balance, LOCKD_MOVE_NOT_IT, 0, 0,
                    pool.now);
    pool_run(&pool, 600 * S);
    assert_int_equal(pool_count(&pool, 0), 2);
    assert_int_equal(pool_count(&pool, 1), 2);
    overhead = pool.balance.overhead_ns;
    balance_outcome(&pool.balance, pool.programs[number].balance, LOCKD_MOVE_DONE, 0, 60 * GB,
                    pool.now);
    assert_true(pool.balance.overhead_ns == overhead);
    pool_deinit(&pool);
}

static void balance_one_that_ends_while_it_moves_leaves_the_way_free(void **state)
{
    struct pool pool;
    uint32_t number = 0;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 4, 0);
    while (pool.attempts == 0)
        pool_run(&pool, POOL_STEP);
    while (!pool.programs[number].moves)
        number++;
    pool_remove(&pool, number);
    pool_run(&pool, 60 * S);
    assert_int_equal(pool_count(&pool, 0) + pool_count(&pool, 1), 3);
    assert_int_equal(pool.moved, 1);
    pool_deinit(&pool);
}

static void balance_move_that_a_person_asked_for_is_not_undone(void **state)
{
    struct pool pool;

    (void)state;
    pool_init(&pool, 2, 1);
    add_many(&pool, 2, 0);
    pool.programs[0].card = 1;
    pool.holder[0] = UINT32_MAX;
    balance_outcome(&pool.balance, pool.programs[0].balance, LOCKD_MOVE_DONE, 2 * S, 60 * GB,
                    pool.now);
    pool_run(&pool, 600 * S);
    assert_int_equal(pool.attempts, 0);
    pool_deinit(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balance_all_on_one_card_spread_evenly),
        cmocka_unit_test(balance_programs_that_run_at_once_spread_too),
        cmocka_unit_test(balance_programs_that_leave_gaps_for_each_other_stay),
        cmocka_unit_test(balance_off_nobody_moves),
        cmocka_unit_test(balance_odd_one_stays),
        cmocka_unit_test(balance_dearer_moves_come_later),
        cmocka_unit_test(balance_measured_cost_counts),
        cmocka_unit_test(balance_short_rare_waits_move_nobody),
        cmocka_unit_test(balance_busy_card_is_no_target),
        cmocka_unit_test(balance_interactive_program_is_left_alone),
        cmocka_unit_test(balance_background_programs_are_in_nobodys_way),
        cmocka_unit_test(balance_card_without_room_is_no_target),
        cmocka_unit_test(balance_other_model_is_no_target),
        cmocka_unit_test(balance_hidden_card_is_said_once),
        cmocka_unit_test(balance_followed_program_moves_less_and_less),
        cmocka_unit_test(balance_failures_are_remembered),
        cmocka_unit_test(balance_one_that_cannot_move_keeps_no_other_one),
        cmocka_unit_test(balance_two_that_cannot_move_keep_no_others),
        cmocka_unit_test(balance_held_program_keeps_no_other_one),
        cmocka_unit_test(balance_one_that_ends_while_it_moves_leaves_the_way_free),
        cmocka_unit_test(balance_move_that_a_person_asked_for_is_not_undone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
