/* SPDX-License-Identifier: Apache-2.0
 *
 * test_patience.c: gangs that keep a place and wait for another: for how long, and whom they
 * give way to. Clients with even numbers are on device 0, those with odd numbers on device 1; 0
 * and 1 make a gang, 2 and 3 another; 4 to 7 are alone.
 */
#include "tests/lockd/harness.h"

static void choose_policy(struct harness *h, enum gs_policy policy)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.policy = policy;
    sched_set(h->sched, &settings, h->now);
    for (int who = 0; who < 8; who++)
        joins_group(h, who, who < 2 ? "a" : who < 4 ? "b" : "");
}

/* 5, which has priority, runs on device 1; the gang of 0 and 1 waits for it, and gives way to 4. */
static void first_gang_gives_way(struct harness *h)
{
    choose_policy(h, GS_POLICY_PRIORITY);
    change_priority(h, 5, 50);
    run_with(h, 5, 7 * GIB);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    for (int step = 0; step < 1000 && !is_running(h, 4); step++) {
        obey_target(h, 4);
        pass_time(h, 100 * MS);
    }
    assert_true(is_running(h, 4) && h->client[0].client->gang->gives_way);
}

/* Gangs that wait for 5 on device 1, and in vain, keep their places on device 0 by turns; what
 * is behind them in the queue has its turn after they have had patience once. */
static void patience_gangs_wait_in_vain_others_run(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_FIFO);
    for (int who = 6; who < 10; who++) {
        if (h->client[who].client != NULL)
            end_client(h, who);
        joins_group(h, who, who < 8 ? "c" : "d");
    }
    run_with(h, 5, 7 * GIB);
    for (int who = 0; who < 10; who++) {
        if (who < 4 || who > 5)
            say_state(h, who, W, 7 * GIB, 0);
    }
    say_state(h, 4, W, 7 * GIB, 0);
    for (int step = 0; step < 800; step++) {
        obey_target(h, 4);
        if (is_running(h, 4))
            return;
        pass_time(h, 100 * MS);
    }
    fail();
}

/* The gang gives way to the program before it, and to nobody once that has nothing to do. */
static void patience_gang_gives_way_to_a_program_that_becomes_idle_runs_then(void **state)
{
    struct harness *h = *state;

    first_gang_gives_way(h);
    say_state(h, 4, 0, 7 * GIB, 7 * GIB);
    pass_time(h, 500 * MS);
    assert_true(h->client[0].client->gang->gives_way);
    say_state(h, 5, 0, 7 * GIB, 7 * GIB);
    for (int step = 0; step < 5; step++) {
        for (int who = 0; who < 6; who += who == 1 ? 3 : 1) {
            if (who < 2 || !has_run(h, who))
                say_state(
                    h, who, who < 2 ? W : 0, 7 * GIB,
                    sched_min(h->client[who].state.resident, h->client[who].target.budget));
        }
        pass_time(h, 50 * MS);
    }
    assert_true(has_run(h, 0) && has_run(h, 1));
}

/* The gang gave way to a program of higher priority; now it goes before that. */
static void patience_gang_that_gives_way_becomes_more_important_runs_then(void **state)
{
    struct harness *h = *state;

    first_gang_gives_way(h);
    change_priority(h, 1, 60);
    harness_take(h);
    for (int step = 0; step < 5; step++) {
        obey_target(h, 4);
        obey_target(h, 5);
        pass_time(h, 50 * MS);
    }
    assert_true(has_run(h, 0) && has_run(h, 1));
}

/* Nobody has to stop for the one behind the gang, so nobody says anything when its time is
 * over. */
static void patience_is_over_the_next_program_runs_without_another_word(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_RR);
    run_with(h, 5, 7 * GIB);
    h->client[5].deaf = true;
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    assert_false(has_run(h, 4));
    pass_time(h, 15000 * MS);
    assert_true(has_run(h, 4));
}

static void patience_higher_priority_takes_a_kept_place_at_once(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_PRIORITY);
    change_priority(h, 4, 5);
    change_priority(h, 5, 5);
    run_with(h, 5, 7 * GIB);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    assert_true(has_run(h, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(patience_gangs_wait_in_vain_others_run),
        scenario(patience_gang_gives_way_to_a_program_that_becomes_idle_runs_then),
        scenario(patience_gang_that_gives_way_becomes_more_important_runs_then),
        scenario(patience_is_over_the_next_program_runs_without_another_word),
        scenario(patience_higher_priority_takes_a_kept_place_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
