/* SPDX-License-Identifier: Apache-2.0
 *
 * test_yield.c: which programs are told to keep little unfinished work, and when (send.c).
 */
#include "tests/lockd/harness.h"

#define BOUND (MS / 2)

static void set_yield(struct harness *h, uint64_t ns)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.yield_ns = ns;
    settings.idle_ns = 20 * MS;
    settings.quantum_ns = 1000 * MS;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
}

/* Program `who` works for so long, and has nothing to do for longer, a few times. */
static void work_in_bursts(struct harness *h, int who, uint64_t ns)
{
    for (int i = 0; i < 6; i++) {
        say_state(h, who, GS_STATE_RUNNING | GS_STATE_WANT, 2 * GIB, 2 * GIB);
        pass_time(h, ns);
        say_state(h, who, GS_STATE_RUNNING, 2 * GIB, 2 * GIB);
        pass_time(h, 2000 * MS);
    }
}

static void begin_both(struct harness *h)
{
    for (int who = 0; who < 2; who++)
        run_with(h, who, 2 * GIB);
}

static void yield_beside_bursts_only_the_other_one_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, BOUND);
    begin_both(h);
    work_in_bursts(h, 1, 50 * MS);
    assert_int_equal(h->client[0].target.yield_ns, BOUND);
    assert_int_equal(h->client[1].target.yield_ns, 0);
    assert_true(has_run(h, 0) && has_run(h, 1));
    set_yield(h, 2 * BOUND);
    assert_int_equal(h->client[0].target.yield_ns, 2 * BOUND);
    set_yield(h, 0);
    assert_int_equal(h->client[0].target.yield_ns, 0);
}

static void yield_without_the_setting_nobody_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, 0);
    begin_both(h);
    work_in_bursts(h, 1, 50 * MS);
    assert_int_equal(h->client[0].target.yield_ns, 0);
    assert_int_equal(h->client[0].target.idle_ns, 0);
}

static void yield_program_of_bursts_has_gone_nobody_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, BOUND);
    begin_both(h);
    work_in_bursts(h, 1, 50 * MS);
    end_client(h, 1);
    pass_time(h, 10 * MS);
    assert_int_equal(h->client[0].target.yield_ns, 0);
}

static void yield_long_work_beside_long_work_nobody_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, BOUND);
    begin_both(h);
    work_in_bursts(h, 1, 5000 * MS);
    assert_int_equal(h->client[0].target.yield_ns, 0);
    assert_int_equal(h->client[1].target.yield_ns, 0);
}

/* Where turns are taken it runs on for as long after it was asked to stop, or beside the other one. */
static void yield_turns_are_taken_the_other_one_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, BOUND);
    begin_both(h);
    work_in_bursts(h, 1, 50 * MS);
    assert_int_equal(h->client[0].target.yield_ns, BOUND);
    say_state(h, 2, GS_STATE_WANT, 8 * GIB, 0); /* it does not fit beside them */
    pass_time(h, 10 * MS);
    assert_int_equal(h->client[0].target.yield_ns, BOUND);
    assert_int_equal(h->client[1].target.yield_ns, 0);
    assert_int_equal(h->client[2].target.yield_ns, BOUND);
}

/* A training that waits for its data for a moment after each step does not answer to anybody. */
static void yield_beside_steps_with_short_gaps_nobody_is_bound(void **state)
{
    struct harness *h = *state;

    set_yield(h, BOUND);
    begin_both(h);
    for (int i = 0; i < 40; i++) {
        say_state(h, 1, GS_STATE_RUNNING | GS_STATE_WANT, 2 * GIB, 2 * GIB);
        pass_time(h, 200 * MS);
        say_state(h, 1, GS_STATE_RUNNING, 2 * GIB, 2 * GIB);
        pass_time(h, 30 * MS);
    }
    assert_int_equal(h->client[0].target.yield_ns, 0);
    assert_int_equal(h->client[1].target.yield_ns, 0);
}

#define scenario(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(yield_beside_bursts_only_the_other_one_is_bound),
        scenario(yield_without_the_setting_nobody_is_bound),
        scenario(yield_program_of_bursts_has_gone_nobody_is_bound),
        scenario(yield_long_work_beside_long_work_nobody_is_bound),
        scenario(yield_turns_are_taken_the_other_one_is_bound),
        scenario(yield_beside_steps_with_short_gaps_nobody_is_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
