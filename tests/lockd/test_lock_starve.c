/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lock_starve.c: programs that do not come to run, do not answer or do not leave, and what
 * the others get beside them in an hour or less.
 */
#include "tests/lockd/harness.h"

#define LARGE (6 * GIB) /* no two of them fit */

/* Does what its newest target says, in one step. */
static void obey(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t demand = c->state.demand, budget = c->target.budget;

    if (!has_run(h, who))
        say(h, who, W, demand, lockd_min(c->state.resident, budget));
    else
        say(h, who, budget >= demand ? R : W, demand,
            lockd_min(demand, lockd_max(budget, c->state.resident)));
}

static bool is_running(const struct harness *h, int who)
{
    return (h->client[who].state.flags & GS_STATE_RUNNING) != 0;
}

static void set_policy(struct harness *h, enum gs_policy policy)
{
    struct lockd_settings settings = *lockd_lock_settings(h->lock);

    settings.policy = policy;
    lockd_lock_set(h->lock, &settings, h->now);
    harness_take(h);
}

/* 1 to 3 obey for so many seconds; 0 brings in 1 GiB of 6 and never runs. Returns for how long
 * the one that ran least did, ms. */
static uint64_t beside_one_that_never_runs(struct harness *h, uint64_t seconds)
{
    uint64_t ran[4] = {0}, least = UINT64_MAX;

    for (int i = 0; i < 4; i++)
        say(h, i, W, LARGE, 0);
    for (uint64_t step = 0; step < seconds * 10; step++) {
        say(h, 0, W | (has_run(h, 0) ? GS_STATE_MOVING : 0), LARGE,
            lockd_min(h->client[0].target.budget, GIB));
        for (int i = 1; i < 4; i++) {
            obey(h, i);
            obey(h, i);
            ran[i] += is_running(h, i) ? 100 : 0;
        }
        later(h, 100 * MS);
    }
    for (int i = 1; i < 4; i++)
        least = lockd_min(least, ran[i]);
    return least;
}

static void lock_fair_party_that_never_runs_others_get_two_thirds(void **state)
{
    assert_true(beside_one_that_never_runs(*state, 600) >= 600 * 1000 * 2 / 9);
}

static void lock_rr_party_that_never_runs_others_get_a_fifth(void **state)
{
    set_policy(*state, GS_POLICY_RR);
    assert_true(beside_one_that_never_runs(*state, 600) >= 600 * 1000 / 15);
}

static void lock_never_opens_its_gate_is_skipped_while_others_come_and_go(void **state)
{
    struct harness *h = *state;
    int ran = 0;

    runs(h, 5, 7 * GIB);
    say(h, 0, W, LARGE, 0);
    say(h, 1, W, LARGE, 0);
    gone(h, 5);
    for (int step = 0; step < 600; step++) {
        struct harness_client *c = &h->client[2];

        say(h, 0, W, LARGE, 0);
        say(h, 2, W, GIB, c->state.resident);
        obey(h, 2);
        obey(h, 2);
        later(h, 500 * MS);
        say(h, 2, has_run(h, 2) ? c->state.flags & GS_STATE_RUNNING : 0, GIB,
            c->state.resident);
        later(h, 500 * MS);
        obey(h, 1);
        ran += is_running(h, 1);
    }
    assert_true(ran >= 150);
}

/* Needs seconds to begin, each time; once passed over it is not given less for ever. */
static void lock_slow_to_begin_runs_again_after_it_was_passed_over(void **state)
{
    struct harness *h = *state;
    uint64_t since = h->now;
    int ran = 0;

    say(h, 0, W, LARGE, 0);
    say(h, 1, W, LARGE, 0);
    for (int step = 0; step < 6000; step++) {
        const uint64_t slow = step < 600 ? 11000 * MS : 5000 * MS;

        if (!has_run(h, 0))
            since = h->now;
        if (has_run(h, 0) && h->now - since < slow)
            say(h, 0, W, LARGE, h->client[0].state.resident);
        else
            obey(h, 0);
        obey(h, 1);
        later(h, 100 * MS);
        ran += is_running(h, 0);
        if (step == 599)
            assert_int_equal(ran, 0);
    }
    assert_true(ran > 500);
}

/* --- no room at all --- */

static void set_reserve(struct harness *h, uint64_t reserve)
{
    struct lockd_settings settings = *lockd_lock_settings(h->lock);

    settings.reserve = reserve;
    lockd_lock_set(h->lock, &settings, h->now);
    harness_take(h);
}

static void lock_nothing_left_of_the_device_all_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    set_reserve(h, 2 * h->total);
    say(h, 2, 0, 0, 0); /* has nothing and wants nothing */
    say(h, 0, W, 3 * GIB, 0);
    say(h, 1, W, 3 * GIB, 0);
    for (int step = 0; step < 6000; step++) {
        for (int i = 0; i < 2; i++) {
            obey(h, i);
            obey(h, i);
            ran[i] += is_running(h, i);
        }
        later(h, 100 * MS);
        assert_false(is_running(h, 0) && is_running(h, 1));
    }
    assert_true(ran[0] > 2000 && ran[1] > 2000);
}

static void lock_foreign_program_leaves_while_all_move_is_seen(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 9 * GIB;
    say(h, 0, 0, 0, 0);
    h->free_bytes = 0;
    for (int i = 0; i < 3; i++) {
        say(h, 0, 0, 0, 0);
        later(h, EXTERNAL_UNSAID + 100 * MS);
    }
    assert_true(device_of(h)->external == 10 * GIB);
    say(h, 0, W | GS_STATE_MOVING, 3 * GIB, 0);
    say(h, 1, W | GS_STATE_MOVING, 3 * GIB, 0);
    h->free_bytes = 9 * GIB;
    say(h, 0, W | GS_STATE_MOVING, 3 * GIB, 0);
    assert_true(device_of(h)->external == GIB);
    assert_true(h->client[0].target.budget >= 3 * GIB);
    assert_true(h->client[1].target.budget >= 3 * GIB);
}

/* --- stopped with Ctrl-Z --- */

/* Those from..to-1 obey for so many seconds. Returns how long each of them ran, s. */
static void obey_for(struct harness *h, int seconds, int from, int to, int *ran)
{
    memset(ran, 0, HARNESS_CLIENTS * sizeof *ran);
    for (int second = 0; second < seconds; second++) {
        for (int step = 0; step < 10; step++) {
            for (int i = from; i < to; i++) {
                obey(h, i);
                obey(h, i);
            }
            later(h, 100 * MS);
        }
        for (int i = from; i < to; i++)
            ran[i] += is_running(h, i);
    }
}

/* Idle, with so much memory; it leaves when it must. */
static void idles(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];

    say(h, who, 0, c->state.demand,
        has_run(h, who) ? c->state.resident : lockd_min(c->state.resident, c->target.budget));
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
    assert_int_equal(condition_of(h, 0), LOCKD_STUCK);
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
    assert_int_equal(condition_of(h, 0), LOCKD_STUCK);
    say(h, 3, W, 100 * MIB, 0); /* fits */
    idles(h, 1);
    obey(h, 3);
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
        obey(h, 2);
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
    assert_int_equal(condition_of(h, 0), LOCKD_STUCK);
}

static void lock_stopped_idle_program_with_exclusive_turns_others_run(void **state)
{
    struct harness *h = *state;
    struct lockd_settings settings = *lockd_lock_settings(h->lock);
    int ran[HARNESS_CLIENTS];

    settings.exclusive = true;
    lockd_lock_set(h->lock, &settings, h->now);
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
            obey(h, i);
            obey(h, i);
        }
        later(h, 100 * MS);
        ran[0] += is_running(h, 1);
        ran[1] += is_running(h, 2);
    }
    assert_true(ran[0] > 2000 && ran[1] > 2000);
    say(h, 0, W, LARGE, 0); /* at last: now it is the turn of the one that waited */
    for (int step = 0; step < 600 && !is_running(h, 3); step++) {
        for (int i = 0; i < 4; i++) {
            obey(h, i);
            obey(h, i);
        }
        later(h, 100 * MS);
    }
    assert_true(is_running(h, 3));
}

/* --- who says that it runs already --- */

static void comes_again_and_again_running(struct harness *h, uint64_t resident)
{
    int ran[HARNESS_CLIENTS], sum = 0;

    later(h, RESTART_WINDOW);
    say(h, 0, W, 7 * GIB, 0);
    say(h, 1, W, 7 * GIB, 0);
    for (int second = 0; second < 100; second++) {
        say(h, 7, R, 7 * GIB, resident);
        assert_false(has_run(h, 7)); /* not its turn */
        obey_for(h, 1, 0, 2, ran);
        gone(h, 7);
        obey_for(h, 1, 0, 2, ran);
        sum += ran[0] + ran[1];
    }
    assert_true(sum > 80);
}

static void lock_newcomer_that_says_it_runs_has_to_wait_for_its_turn(void **state)
{
    comes_again_and_again_running(*state, 0);
}

static void lock_newcomer_that_says_it_runs_with_memory_has_to_wait_for_its_turn(void **state)
{
    comes_again_and_again_running(*state, GIB);
}

static void lock_newcomer_that_runs_and_fits_goes_on(void **state)
{
    struct harness *h = *state;

    later(h, RESTART_WINDOW);
    runs(h, 0, 3 * GIB);
    say(h, 1, R, 3 * GIB, 3 * GIB); /* its connection was lost */
    assert_true(has_run(h, 1));
    assert_int_equal(condition_of(h, 1), LOCKD_RUNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(lock_fair_party_that_never_runs_others_get_two_thirds),
        scenario(lock_rr_party_that_never_runs_others_get_a_fifth),
        scenario(lock_never_opens_its_gate_is_skipped_while_others_come_and_go),
        scenario(lock_slow_to_begin_runs_again_after_it_was_passed_over),
        scenario(lock_nothing_left_of_the_device_all_take_turns),
        scenario(lock_foreign_program_leaves_while_all_move_is_seen),
        scenario(lock_stopped_waiter_costs_the_others_one_turn),
        scenario(lock_stopped_holder_that_has_not_begun_is_skipped_while_others_run),
        scenario(lock_stopped_idle_program_memory_of_other_idle_ones_leaves_instead),
        scenario(lock_evicted_program_that_does_not_answer_is_shown),
        scenario(lock_stopped_idle_program_with_exclusive_turns_others_run),
        scenario(lock_head_that_does_not_fit_beside_a_stuck_one_others_take_turns),
        scenario(lock_newcomer_that_says_it_runs_has_to_wait_for_its_turn),
        scenario(lock_newcomer_that_says_it_runs_with_memory_has_to_wait_for_its_turn),
        scenario(lock_newcomer_that_runs_and_fits_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
