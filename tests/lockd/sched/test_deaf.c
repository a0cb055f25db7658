/* SPDX-License-Identifier: Apache-2.0
 *
 * test_deaf.c: programs that are stopped with Ctrl-Z or do not leave, in whatever state,
 * and what the others get beside them.
 */
#include "tests/lockd/harness.h"

#define LARGE (6 * GIB) /* no two of them fit */

/* Idle, with so much memory; it leaves when it must. */
static void idles(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];

    say(h, who, 0, c->state.demand,
        has_run(h, who) ? c->state.resident : sched_min(c->state.resident, c->target.budget));
}

static void lock_stopped_waiter_costs_the_others_one_turn(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    runs(h, 3, LARGE);
    say(h, 0, W, LARGE, 0);
    h->client[0].deaf = true;
    say(h, 1, W, 3 * GIB, 0);
    say(h, 2, W, 3 * GIB, 0);
    obey_for(h, 600, 1, 4, ran);
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
    for (int i = 1; i < 4; i++)
        assert_true(ran[i] > 300);
}

static void lock_stopped_holder_that_has_not_begun_is_skipped_while_others_run(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    runs(h, 3, LARGE);
    say(h, 0, W, LARGE, 0);
    h->client[0].deaf = true;
    say(h, 1, W, LARGE, 0);
    gone(h, 3);
    obey_for(h, 100, 1, 2, ran);
    assert_true(ran[1] > 80);
    h->client[0].deaf = false; /* it goes on */
    say(h, 0, W, LARGE, 0);
    obey_for(h, 100, 0, 2, ran);
    assert_true(ran[0] > 30 && ran[1] > 30);
}

/* It was told to have less than it has and will never say so. */
static void lock_stopped_idle_program_memory_of_other_idle_ones_leaves_instead(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    for (int i = 0; i < 2; i++) {
        runs(h, i, 4 * GIB);
        say(h, i, 0, 4 * GIB, 4 * GIB);
        later(h, 100 * MS);
    }
    h->client[0].deaf = true;
    say(h, 2, W, 5 * GIB, 0);
    for (int second = 0; second < 60; second++) {
        idles(h, 1);
        obey_for(h, 1, 2, 3, ran);
    }
    assert_true(is_running(h, 2));
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
    say(h, 3, W, 100 * MIB, 0); /* fits */
    idles(h, 1);
    obeys(h, 3);
    assert_true(is_running(h, 3));
    assert_true(is_running(h, 2));
}

static void lock_evicted_program_that_does_not_answer_is_shown(void **state)
{
    struct harness *h = *state;
    int ran[HARNESS_CLIENTS];

    for (int i = 0; i < 2; i++) {
        runs(h, i, 4 * GIB);
        say(h, i, 0, 4 * GIB, 4 * GIB);
        later(h, 10 * MS);
    }
    say(h, 2, W, 3 * GIB, 0);
    for (int i = 0; i < 4; i++) {
        idles(h, 0);
        idles(h, 1);
        obeys(h, 2);
    }
    assert_true(is_running(h, 2));
    assert_int_equal(h->client[0].state.resident, 3 * GIB);
    h->client[0].deaf = true; /* and it was not asked for anything */
    say(h, 3, W, 5 * GIB, 0);
    for (int second = 0; second < 60; second++) {
        say(h, 2, 0, 3 * GIB, h->client[2].state.resident);
        idles(h, 1);
        idles(h, 2);
        obey_for(h, 1, 3, 4, ran);
    }
    assert_true(is_running(h, 3));
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
}

static void lock_stopped_idle_program_with_exclusive_turns_others_run(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);
    int ran[HARNESS_CLIENTS];

    settings.exclusive = true;
    sched_set(h->sched, &settings, h->now);
    runs(h, 0, 100 * MIB);
    say(h, 0, 0, 100 * MIB, 100 * MIB);
    h->client[0].deaf = true;
    say(h, 1, W, GIB, 0);
    say(h, 2, W, GIB, 0);
    obey_for(h, 100, 1, 3, ran);
    assert_true(ran[1] > 35 && ran[2] > 35);
    assert_true(ran[1] + ran[2] <= 100); /* still one at a time */
}

static void lock_head_that_does_not_fit_beside_a_stuck_one_others_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    runs(h, 0, LARGE);
    say(h, 3, W, LARGE, 0);
    say(h, 1, W, 3 * GIB, 0);
    say(h, 2, W, 3 * GIB, 0);
    for (int step = 0; step < 6000; step++) { /* 0: a kernel that never ends */
        say(h, 0, R | (has_run(h, 0) ? 0 : GS_STATE_STUCK), LARGE, LARGE);
        for (int i = 1; i < 4; i++) {
            obeys(h, i);
            obeys(h, i);
        }
        later(h, 100 * MS);
        ran[0] += is_running(h, 1);
        ran[1] += is_running(h, 2);
    }
    assert_true(ran[0] > 2000 && ran[1] > 2000);
    say(h, 0, W, LARGE, 0); /* at last: now it is the turn of the one that waited */
    for (int step = 0; step < 600 && !is_running(h, 3); step++) {
        for (int i = 0; i < 4; i++) {
            obeys(h, i);
            obeys(h, i);
        }
        later(h, 100 * MS);
    }
    assert_true(is_running(h, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(lock_stopped_waiter_costs_the_others_one_turn),
        scenario(lock_stopped_holder_that_has_not_begun_is_skipped_while_others_run),
        scenario(lock_stopped_idle_program_memory_of_other_idle_ones_leaves_instead),
        scenario(lock_evicted_program_that_does_not_answer_is_shown),
        scenario(lock_stopped_idle_program_with_exclusive_turns_others_run),
        scenario(lock_head_that_does_not_fit_beside_a_stuck_one_others_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
