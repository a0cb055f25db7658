/* SPDX-License-Identifier: Apache-2.0
 *
 * test_places.c: places in the queue that are kept, and whom that must not hold up (queue.c,
 * bursts.c). Client 1 is interactive; steps of 20 ms.
 */
#include "tests/lockd/sched/bursts.h"

#define STUCK (R | GS_STATE_STUCK)

static void set_times(struct harness *h, uint64_t idle)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.quantum_min_ns = 30 * SECOND;
    settings.idle_ns = idle;
    sched_set(h->sched, &settings, h->now);
}

/* 0 has nothing to do for so many steps after it was stopped: ran[] are the steps of each, the
 * last one those of none. 0 and 2 are trainings that do not fit beside each other; 1 has short
 * bursts, for which only 0 has to stop. */
static void run_with_gaps(struct harness *h, int gap, int rest, int *ran)
{
    struct bursts its = {.burst = 5, .rest = rest};
    int quiet = 0;

    begin_of_user(h, 0, 1, 9 * GIB);
    begin_of_user(h, 1, 2, 2 * GIB);
    begin_of_user(h, 2, 3, 4 * GIB);
    for (int step = 0; step < 60000; step++) {
        bool any = false;

        if (is_running(h, 0) && !has_run(h, 0))
            quiet = gap;
        if (quiet-- > 0)
            say_state(h, 0, 0, 9 * GIB,
                      sched_min(h->client[0].state.resident, h->client[0].target.budget));
        else
            step_training(h, 0);
        step_training(h, 2);
        step_bursts(h, 1, &its);
        pass_time(h, 20 * MS);
        for (int who = 0; who < 3; who++) {
            ran[who] += is_running(h, who);
            any = any || is_running(h, who);
        }
        ran[3] += !any;
    }
    assert_true(is_found(h, 1));
}

/* The training has its turn back when they are over, although it was between two calls when it
 * stopped. */
static void place_of_a_program_between_two_calls_is_kept(void **state)
{
    struct harness *h = *state;
    int ran[4] = {0};

    set_times(h, LOCKD_AUTO);
    run_with_gaps(h, 1, 100, ran);
    assert_in_range(ran[0], ran[2] * 9 / 10, ran[2] * 11 / 10);
}

/* The device is not idle for longer than it takes to let another one go on. */
static void place_is_not_kept_for_longer_than_switches_take(void **state)
{
    struct harness *h = *state;
    int ran[4] = {0};

    set_times(h, SECOND);
    run_with_gaps(h, 45, 60, ran);
    assert_in_range(ran[3], 0, 60000 / 20);
}

/* 0 is stuck with 4 GiB; 1 is interactive by its class, had more than its share, and does not
 * fit beside 0. Program 1 keeps none of the trainings waiting, which do fit. */
static void program_that_owes_and_has_no_room_is_passed(void **state)
{
    struct harness *h = *state;
    int waits[8] = {0}, longest = 0;
    struct sched_settings settings = *sched_settings(h->sched);

    settings.quantum_ns = 500 * MS;
    sched_set(h->sched, &settings, h->now);
    begin_of_user(h, 0, 1, 4 * GIB);
    begin_of_user(h, 1, 2, 8 * GIB);
    change_class(h, 1, GS_CLASS_INTERACTIVE);
    for (int step = 0; step < 6000; step++) {
        step_training(h, 0);
        step_training(h, 1);
        pass_time(h, 20 * MS);
    }
    for (int who = 2; who < 8; who++)
        begin_of_user(h, who, 1 + (uint32_t)who, 5 * GIB);
    for (int step = 0; step < 15000; step++) {
        if (is_running(h, 0))
            say_state(h, 0, STUCK, 4 * GIB, 4 * GIB);
        else
            step_training(h, 0);
        for (int who = 1; who < 8; who++)
            step_training(h, who);
        pass_time(h, 20 * MS);
        for (int who = 2; who < 8; who++) {
            waits[who] = is_running(h, who) ? 0 : waits[who] + 1;
            longest = waits[who] > longest ? waits[who] : longest;
        }
    }
    assert_in_range(longest, 0, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(place_of_a_program_between_two_calls_is_kept),
        scenario(place_is_not_kept_for_longer_than_switches_take),
        scenario(program_that_owes_and_has_no_room_is_passed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
