/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stuck.c: programs that were asked to stop and cannot, because they first need
 * memory that others have: a graph is captured, and its next call waits at the gate.
 */
#include "tests/lockd/harness.h"

#define STUCK (R | GS_STATE_STUCK)

/* 0 cannot stop and lacks 1 GiB; 2 has waited for longest. */
static void lacks_memory(struct harness *h)
{
    go_in_turn(h, 3);
    run_with(h, 0, 6 * GIB);
    run_with(h, 1, 3 * GIB);
    say_state(h, 2, W, 5 * GIB, 0);
    pass_time(h, quantum_of(h) + MS);
    assert_false(has_run(h, 0));
    assert_false(has_run(h, 2));
    say_state(h, 0, STUCK, 7 * GIB, 6 * GIB);
}

static void stuck_and_short_beside_a_holder_that_is_short_gets_its_memory(void **state)
{
    struct harness *h = *state;

    lacks_memory(h);
    say_state(h, 1, W, 4 * GIB + 512 * MIB,
              3 * GIB); /* its gate is shut: it cannot have that much */
    pass_time(h, 1000 * MS);
    if (!has_run(h, 1))
        say_state(h, 1, W, 4 * GIB + 512 * MIB, sched_min(3 * GIB, h->client[1].target.budget));
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 7 * GIB);
    say_state(h, 0, R, 7 * GIB, 7 * GIB); /* the capture is over */
    pass_time(h, 4 * quantum_of(h));      /* its first turn may last for three */
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 1) || has_run(h, 2));
}

static void stuck_and_short_goes_before_the_head_of_the_queue(void **state)
{
    struct harness *h = *state;

    lacks_memory(h);
    say_state(h, 1, 0, 3 * GIB, 3 * GIB);
    pass_time(h, 100 * MS);
    assert_false(has_run(h, 2)); /* it cannot have its room */
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 7 * GIB);
}

static void stuck_and_short_waits_for_a_holder_that_runs(void **state)
{
    struct harness *h = *state;

    lacks_memory(h);
    say_state(h, 0, STUCK, 8 * GIB, 6 * GIB);
    pass_time(h, 10 * MS);
    assert_true(h->client[1].target.budget >= 3 * GIB);
    pass_time(h, 2 * quantum_of(h));
    assert_false(has_run(h, 1));
    say_state(h, 1, W, 3 * GIB, 3 * GIB);
    assert_true(has_run(h, 0));
    say_state(h, 1, W, 3 * GIB, 2 * GIB);
    assert_true(h->client[0].target.budget >= 8 * GIB);
}

static void stuck_and_short_holder_that_has_not_begun_gives_way_at_once(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);

    settings.policy = GS_POLICY_RR; /* where nobody ends another one's turn otherwise */
    sched_set(h->sched, &settings, h->now);
    run_with(h, 0, 6 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, quantum_of(h) + MS);
    say_state(h, 0, STUCK, 6 * GIB, 6 * GIB);
    pass_time(h, 10 * MS);
    say_state(h, 1, 0, 7 * GIB, 0);
    say_state(h, 2, W, 4 * GIB, 0);
    assert_true(has_run(h, 2)); /* beside 0 */
    say_state(h, 0, STUCK, 7 * GIB, 6 * GIB);
    pass_time(h, MS);
    assert_false(has_run(h, 2));
    assert_true(has_run(h, 0));
}

static void stuck_program_with_all_its_memory_is_not_served_again(void **state)
{
    struct harness *h = *state;

    go_in_turn(h, 2);
    run_with(h, 0, 6 * GIB);
    say_state(h, 1, W, 6 * GIB, 0);
    pass_time(h, quantum_of(h) + MS);
    for (int i = 0; i < 5; i++) {
        say_state(h, 0, STUCK, 6 * GIB, 6 * GIB);
        pass_time(h, 5000 * MS);
        assert_false(has_run(h, 0));
    }
    say_state(h, 0, W, 6 * GIB, 6 * GIB);
    assert_true(has_run(h, 1));
}

/* A program says for ever that it cannot stop before it gets more, and takes nothing of what it
 * is offered; or a byte each time. */
static void stuck_and_short_for_ever_others_have_their_turns(void **state)
{
    for (int trickles = 0; trickles < 2; trickles++) {
        struct harness *h = *state;
        uint64_t has = 6 * GIB;
        int ran[HARNESS_CLIENTS] = {0};

        run_with(h, 0, 6 * GIB);
        for (int second = 0; second < 3600; second++) {
            say_state(h, 0, STUCK, 10 * GIB, has);
            for (int step = 0; step < 10; step++) {
                for (int who = 1; who < 3; who++) {
                    if (h->client[who].targets == 0)
                        say_state(h, who, W, 3 * GIB, 0);
                    obey_target(h, who);
                    obey_target(h, who);
                }
                pass_time(h, 100 * MS);
            }
            for (int who = 1; who < 3; who++)
                ran[who] += is_running(h, who);
            if (trickles && h->client[0].target.budget > has)
                has++;
        }
        assert_true(ran[1] > 900 && ran[2] > 900);
        for (int who = 0; who < 3; who++)
            end_client(h, who);
    }
}

static void evict_client(struct harness *h, int who)
{
    sched_evict(h->client[who].client, h->now);
    harness_take(h);
    assert_false(has_run(h, who));
}

/* A program says MOVING for as long as it has more than it may. */
static void evicted_memory_that_cannot_leave_program_runs_again_later(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    for (uint64_t left = 3 * GIB; left >= GIB; left -= GIB) {
        say_state(h, 0, W | GS_STATE_MOVING, 4 * GIB, left);
        pass_time(h, 8000 * MS);
        assert_false(has_run(h, 0));
        assert_int_equal(h->client[0].target.budget, 0);
    }
    pass_time(h, 3000 * MS);
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 4 * GIB);
}

static void evicted_and_resumed_it_goes_on_at_once(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    say_state(h, 0, W | GS_STATE_MOVING, 4 * GIB, 3 * GIB);
    sched_pause(h->client[0].client, false, h->now);
    harness_take(h);
    assert_true(has_run(h, 0));
    evict_client(h, 0); /* and again, to the end */
    say_state(h, 0, 0, 4 * GIB, 0);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 4 * GIB, 0);
    assert_true(has_run(h, 0));
}

static void evicted_program_that_does_not_stop_is_put_out_when_it_does(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    for (int i = 0; i < 5; i++) {
        say_state(h, 0, STUCK, 4 * GIB, 4 * GIB);
        pass_time(h, 5000 * MS);
        assert_false(has_run(h, 0));
    }
    say_state(h, 0, W, 4 * GIB, 4 * GIB);
    assert_int_equal(h->client[0].target.budget, 0);
    say_state(h, 0, W, 4 * GIB, 0);
    assert_true(has_run(h, 0));
}

/* Its capture is open, and its next call needs more: it gets that, stops, and is put out. */
static void check_gets_memory(struct harness *h)
{
    pass_time(h, 10 * MS);
    assert_false(has_run(h, 0));
    say_state(h, 0, STUCK, 5 * GIB, 4 * GIB);
    pass_time(h, 10 * MS);
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 5 * GIB);
    say_state(h, 0, STUCK, 5 * GIB, 4 * GIB + GIB / 2);
    assert_true(has_run(h, 0));
    say_state(h, 0, R, 5 * GIB, 5 * GIB);
    pass_time(h, 10 * MS);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 5 * GIB, 5 * GIB);
    pass_time(h, 10 * MS);
    assert_false(has_run(h, 0));
}

static void evicted_cannot_stop_before_it_gets_memory_it_gets_it(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    check_gets_memory(h);
    assert_int_equal(h->client[0].target.budget, 0);
    say_state(h, 0, W, 5 * GIB, 0);
    assert_true(has_run(h, 0));
}

static void paused_cannot_stop_before_it_gets_memory_it_gets_it(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    sched_pause(h->client[0].client, true, h->now);
    harness_take(h);
    check_gets_memory(h);
    sched_pause(h->client[0].client, false, h->now);
    harness_take(h);
    assert_true(has_run(h, 0));
}

/* Memory that came back in half a second is not evicted for the next half, nor while it comes
 * back. */
static void evicted_again_it_first_runs_as_long_as_it_came_back(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    say_state(h, 0, W, 4 * GIB, 0);
    assert_true(has_run(h, 0));
    for (uint64_t there = GIB; there < 4 * GIB; there += GIB) {
        sched_evict(h->client[0].client, h->now);
        harness_take(h);
        pass_time(h, 150 * MS);
        say_state(h, 0, W, 4 * GIB, there);
        assert_true(has_run(h, 0));
    }
    pass_time(h, 50 * MS);
    say_state(h, 0, R, 4 * GIB, 4 * GIB);
    pass_time(h, 450 * MS);
    assert_true(has_run(h, 0));
    pass_time(h, 100 * MS);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 4 * GIB, 4 * GIB);
    assert_int_equal(h->client[0].target.budget, 0);
    say_state(h, 0, W, 4 * GIB, 0);
    assert_true(has_run(h, 0));
}

/* To be paused is no work: the eviction that was asked for begins at once. */
static void evicted_again_and_paused_it_leaves_at_once(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    evict_client(h, 0);
    say_state(h, 0, W, 4 * GIB, 0);
    pass_time(h, 500 * MS);
    say_state(h, 0, R, 4 * GIB, 4 * GIB);
    sched_evict(h->client[0].client, h->now);
    harness_take(h);
    assert_true(has_run(h, 0));
    sched_pause(h->client[0].client, true, h->now);
    sched_evict(h->client[0].client, h->now);
    harness_take(h);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 4 * GIB, 4 * GIB);
    assert_int_equal(h->client[0].target.budget, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(evicted_cannot_stop_before_it_gets_memory_it_gets_it),
        scenario(paused_cannot_stop_before_it_gets_memory_it_gets_it),
        scenario(stuck_and_short_beside_a_holder_that_is_short_gets_its_memory),
        scenario(stuck_and_short_goes_before_the_head_of_the_queue),
        scenario(stuck_and_short_waits_for_a_holder_that_runs),
        scenario(stuck_and_short_holder_that_has_not_begun_gives_way_at_once),
        scenario(stuck_program_with_all_its_memory_is_not_served_again),
        scenario(stuck_and_short_for_ever_others_have_their_turns),
        scenario(evicted_memory_that_cannot_leave_program_runs_again_later),
        scenario(evicted_and_resumed_it_goes_on_at_once),
        scenario(evicted_program_that_does_not_stop_is_put_out_when_it_does),
        scenario(evicted_again_it_first_runs_as_long_as_it_came_back),
        scenario(evicted_again_and_paused_it_leaves_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
