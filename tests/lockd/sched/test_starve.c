/* SPDX-License-Identifier: Apache-2.0
 *
 * test_starve.c: programs that have a place and do not come to run, or say that they run
 * already, and a device with no room at all: what the others get.
 */
#include "tests/lockd/harness.h"

#define LARGE (6 * GIB) /* no two of them fit */

static void set_policy(struct harness *h, enum gs_policy policy)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.policy = policy;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
}

/* 1 to 3 obey for so many seconds; 0 brings in 1 GiB of 6 and never runs. Returns for how long
 * the program that ran least did, ms. */
static uint64_t beside_a_program_that_never_runs(struct harness *h, uint64_t seconds)
{
    uint64_t ran[4] = {0}, least = UINT64_MAX;

    for (int i = 0; i < 4; i++)
        say_state(h, i, W, LARGE, 0);
    for (uint64_t step = 0; step < seconds * 10; step++) {
        say_state(h, 0, W | (has_run(h, 0) ? GS_STATE_MOVING : 0), LARGE,
                  sched_min(h->client[0].target.budget, GIB));
        for (int i = 1; i < 4; i++) {
            obey_target(h, i);
            obey_target(h, i);
            ran[i] += is_running(h, i) ? 100 : 0;
        }
        pass_time(h, 100 * MS);
    }
    for (int i = 1; i < 4; i++)
        least = sched_min(least, ran[i]);
    return least;
}

static void fair_party_that_never_runs_others_get_two_thirds(void **state)
{
    assert_true(beside_a_program_that_never_runs(*state, 600) >= 600 * 1000 * 2 / 9);
}

static void rr_party_that_never_runs_others_get_a_fifth(void **state)
{
    set_policy(*state, GS_POLICY_RR);
    assert_true(beside_a_program_that_never_runs(*state, 600) >= 600 * 1000 / 15);
}

static void program_that_never_opens_its_gate_is_skipped_while_others_come_and_go(void **state)
{
    struct harness *h = *state;
    int ran = 0;

    run_with(h, 5, 7 * GIB);
    say_state(h, 0, W, LARGE, 0);
    say_state(h, 1, W, LARGE, 0);
    end_client(h, 5);
    for (int step = 0; step < 600; step++) {
        struct harness_client *c = &h->client[2];

        say_state(h, 0, W, LARGE, 0);
        say_state(h, 2, W, GIB, c->state.resident);
        obey_target(h, 2);
        obey_target(h, 2);
        pass_time(h, 500 * MS);
        say_state(h, 2, has_run(h, 2) ? c->state.flags & GS_STATE_RUNNING : 0, GIB,
                  c->state.resident);
        pass_time(h, 500 * MS);
        obey_target(h, 1);
        ran += is_running(h, 1);
    }
    assert_true(ran >= 150);
}

/* Needs seconds to begin, each time; once passed over it is not given less for ever. */
static void program_slow_to_begin_runs_again_after_it_was_passed_over(void **state)
{
    struct harness *h = *state;
    uint64_t since = h->now;
    int ran = 0;

    say_state(h, 0, W, LARGE, 0);
    say_state(h, 1, W, LARGE, 0);
    for (int step = 0; step < 6000; step++) {
        const uint64_t slow = step < 600 ? 11000 * MS : 5000 * MS;

        if (!has_run(h, 0))
            since = h->now;
        if (has_run(h, 0) && h->now - since < slow)
            say_state(h, 0, W, LARGE, h->client[0].state.resident);
        else
            obey_target(h, 0);
        obey_target(h, 1);
        pass_time(h, 100 * MS);
        ran += is_running(h, 0);
        if (step == 599)
            assert_int_equal(ran, 0);
    }
    assert_true(ran > 500);
}

/* --- no room at all --- */

static void set_reserve(struct harness *h, uint64_t reserve)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.reserve = reserve;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
}

static void nothing_left_of_the_device_all_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    set_reserve(h, 2 * h->total);
    say_state(h, 2, 0, 0, 0); /* has nothing and wants nothing */
    say_state(h, 0, W, 3 * GIB, 0);
    say_state(h, 1, W, 3 * GIB, 0);
    for (int step = 0; step < 6000; step++) {
        for (int i = 0; i < 2; i++) {
            obey_target(h, i);
            obey_target(h, i);
            ran[i] += is_running(h, i);
        }
        pass_time(h, 100 * MS);
        assert_false(is_running(h, 0) && is_running(h, 1));
    }
    assert_true(ran[0] > 2000 && ran[1] > 2000);
}

static void foreign_program_that_leaves_while_all_move_is_seen(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 9 * GIB;
    say_state(h, 0, 0, 0, 0);
    h->free_bytes = 0;
    for (int i = 0; i < 3; i++) {
        say_state(h, 0, 0, 0, 0);
        pass_time(h, SILENT + 100 * MS);
    }
    assert_true(device_of(h)->measure.external == 10 * GIB);
    say_state(h, 0, W | GS_STATE_MOVING, 3 * GIB, 0);
    say_state(h, 1, W | GS_STATE_MOVING, 3 * GIB, 0);
    h->free_bytes = 9 * GIB;
    say_state(h, 0, W | GS_STATE_MOVING, 3 * GIB, 0);
    pass_time(h, 250 * MS);
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(h->client[0].target.budget >= 3 * GIB);
    assert_true(h->client[1].target.budget >= 3 * GIB);
}

/* 2 wants to run and does not, again and again: others are stopped for that no more often than
 * for a program that runs. */
static void program_that_wants_on_and_off_stops_others_no_more_than_its_share(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    run_with(h, 0, 3 * GIB);
    run_with(h, 1, 3 * GIB);
    pass_time(h, 60000 * MS);
    for (int ms = 0; ms < 120000; ms++) {
        say_state(h, 2, ms % 20 < 10 ? W : 0, ms % 20 < 10 ? 8 * GIB : 0, 0);
        for (int who = 0; who < 2; who++) {
            obey_target(h, who);
            ran[who] += ms >= 60000 && is_running(h, who);
        }
        pass_time(h, MS);
    }
    assert_true(ran[0] > 40000 && ran[1] > 40000);
}

/* --- who says that it runs already --- */

static void comes_again_and_again_running(struct harness *h, uint64_t resident)
{
    int ran[HARNESS_CLIENTS], sum = 0;

    pass_time(h, RETURN_WINDOW);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    for (int second = 0; second < 100; second++) {
        say_state(h, 7, R, 7 * GIB, resident);
        assert_false(has_run(h, 7)); /* not its turn */
        obey_for(h, 1, 0, 2, ran);
        end_client(h, 7);
        obey_for(h, 1, 0, 2, ran);
        sum += ran[0] + ran[1];
    }
    assert_true(sum > 80);
}

static void newcomer_that_says_it_runs_has_to_wait_for_its_turn(void **state)
{
    comes_again_and_again_running(*state, 0);
}

static void newcomer_that_says_it_runs_with_memory_has_to_wait_for_its_turn(void **state)
{
    comes_again_and_again_running(*state, GIB);
}

static void newcomer_that_runs_and_fits_goes_on(void **state)
{
    struct harness *h = *state;

    pass_time(h, RETURN_WINDOW);
    run_with(h, 0, 3 * GIB);
    say_state(h, 1, R, 3 * GIB, 3 * GIB); /* its connection was lost */
    assert_true(has_run(h, 1));
    assert_int_equal(condition_of(h, 1), GS_CONDITION_RUNS);
}

/* A program that never runs, and whose memory comes and goes all the time, gets nowhere: the
 * turn is the other's. */
static void starve_program_whose_memory_comes_and_goes_is_passed_over(void **state)
{
    struct harness *h = *state;
    int ran = 0;

    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    for (int step = 0; step < 15000; step++) {
        uint64_t resident = sched_min(h->client[0].target.budget, 7 * GIB);

        obey_target(h, 1);
        obey_target(h, 1);
        if (!has_run(h, 0))
            resident = sched_min(resident, h->client[0].state.resident);
        else if (step / 50 % 2 != 0)
            resident /= 2;
        say_state(h, 0, W, 7 * GIB, resident);
        pass_time(h, 20 * MS);
        ran += is_running(h, 1);
    }
    assert_in_range(ran, 15000 / 4, 15000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(starve_program_whose_memory_comes_and_goes_is_passed_over),
        scenario(fair_party_that_never_runs_others_get_two_thirds),
        scenario(rr_party_that_never_runs_others_get_a_fifth),
        scenario(program_that_never_opens_its_gate_is_skipped_while_others_come_and_go),
        scenario(program_slow_to_begin_runs_again_after_it_was_passed_over),
        scenario(nothing_left_of_the_device_all_take_turns),
        scenario(foreign_program_that_leaves_while_all_move_is_seen),
        scenario(program_that_wants_on_and_off_stops_others_no_more_than_its_share),
        scenario(newcomer_that_says_it_runs_has_to_wait_for_its_turn),
        scenario(newcomer_that_says_it_runs_with_memory_has_to_wait_for_its_turn),
        scenario(newcomer_that_runs_and_fits_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
