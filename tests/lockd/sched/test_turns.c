/* SPDX-License-Identifier: Apache-2.0
 *
 * test_turns.c: who runs: open mode, turns, pauses, stuck and dead programs.
 */
#include "tests/lockd/harness.h"

static void all_fit_all_run(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 3 * GIB);
    run_with(h, 1, 3 * GIB);
    run_with(h, 2, 3 * GIB);
    for (int i = 0; i < 3; i++) {
        assert_true(has_run(h, i));
        assert_false(has_waiters(h, i));
    }
    assert_true(sched_deadline(h->sched) == LOCKD_NEVER);
}

static void small_growth_needs_no_message(void **state)
{
    struct harness *h = *state;
    uint32_t before;

    run_with(h, 0, 1 * GIB);
    before = h->client[0].targets;
    for (uint64_t more = 1; more <= 1024; more++)
        say_state(h, 0, R, GIB + more * MIB, GIB + more * MIB);
    assert_true(h->client[0].targets - before <= 1);
}

static void newcomer_that_does_not_fit_waits(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    assert_false(has_run(h, 1));
    assert_true(has_run(h, 0));
    assert_true(has_waiters(h, 0));
    assert_true(h->client[0].target.idle_ns == sched_device_idle(device_of(h)));
    assert_int_equal(condition_of(h, 1), GS_CONDITION_WAITS);
}

/* Bursts are known by it, also of one beside whom the others rest. */
static void idleness_is_said_where_turns_are_taken_while_nobody_waits(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    assert_true(h->client[0].target.idle_ns == 0);
    say_state(h, 1, 0, 7 * GIB, 0);
    pass_time(h, 1000 * MS);
    assert_true(h->client[0].target.idle_ns == sched_device_idle(device_of(h)));
    assert_false(has_waiters(h, 0));
    say_state(h, 0, GS_STATE_RUNNING, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 0)); /* nobody wants its place */
    say_state(h, 1, 0, 2 * GIB, 0);
    pass_time(h, 1000 * MS);
    assert_true(h->client[0].target.idle_ns == 0);
}

static void quantum_over_next_program_runs(void **state)
{
    struct harness *h = *state;

    go_in_turn(h, 2);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, quantum_of(h) - MS);
    assert_true(has_run(h, 0));
    pass_time(h, 2 * MS);
    assert_false(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 7 * GIB); /* it has not stopped yet */
    assert_false(has_run(h, 1));
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 1));
    assert_true(h->client[0].target.budget == 3 * GIB); /* exactly the shortfall */
    assert_true(h->client[1].target.budget <= 3 * GIB);
}

static void victim_shrinks_next_gets_credits(void **state)
{
    struct harness *h = *state;

    go_in_turn(h, 2);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, quantum_of(h));
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    say_state(h, 0, W | GS_STATE_MOVING, 7 * GIB, 6 * GIB);
    assert_true(h->client[1].target.budget == 4 * GIB);
    say_state(h, 0, W | GS_STATE_MOVING, 7 * GIB, 5 * GIB);
    assert_true(h->client[1].target.budget == 5 * GIB);
    say_state(h, 0, W, 7 * GIB, 3 * GIB);
    assert_true(h->client[1].target.budget == 7 * GIB);
    assert_true(has_run(h, 1));
}

static void nobody_waits_no_revocation(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, 0, 7 * GIB, 0); /* has memory, has no work */
    pass_time(h, 100 * quantum_of(h));
    assert_true(has_run(h, 0));
    assert_false(has_waiters(h, 0));
    assert_true(sched_deadline(h->sched) == LOCKD_NEVER);
}

static void idle_holder_gives_back_at_once(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 0, GS_STATE_RUNNING, 7 * GIB, 7 * GIB);
    assert_false(has_run(h, 0));
    say_state(h, 0, 0, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 1));
}

/* Else it would say WANT again until it has stopped, and get another turn for nothing. */
static void idle_holder_being_stopped_hears_of_waiters_still(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 0, GS_STATE_RUNNING, 7 * GIB, 7 * GIB);
    assert_false(has_run(h, 0));
    assert_true(has_waiters(h, 0));
    assert_true(h->client[0].target.idle_ns != 0);
}

static void small_program_runs_beside_the_holder(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 2, W, 2 * GIB, 0);
    assert_true(has_run(h, 2));
    assert_true(h->client[2].target.budget >= 2 * GIB || !lockd_list_empty(&h->sched->unsent));
    assert_false(has_run(h, 1));
}

static void backfilled_gives_way_to_the_head(void **state)
{
    struct harness *h = *state;
    const struct sched_party *small;
    uint64_t had;

    go_in_turn(h, 3);
    run_with(h, 0, 6 * GIB);
    say_state(h, 1, W, 8 * GIB, 0);
    pass_time(h, quantum_of(h) - 100 * MS);
    run_with(h, 2, 4 * GIB); /* past client 1, which needs more than client 2 leaves */
    small = sched_member_find(h->client[2].client, h->client[2].state.uuid)->party;
    had = small->fair.virtual_ns;
    pass_time(h, 200 * MS);
    assert_false(has_run(h, 0));
    assert_false(has_run(h, 2)); /* long before its own quantum is over */
    say_state(h, 0, W, 6 * GIB, 6 * GIB);
    say_state(h, 2, W, 4 * GIB, 4 * GIB);
    assert_true(has_run(h, 1));
    assert_in_range(small->fair.virtual_ns, had, had + 200 * MS); /* not for the switch, too */
}

static void turns_of_three_are_in_order(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);

    settings.quantum_ns = 1000 * MS;
    sched_set(h->sched, &settings, h->now);
    run_with(h, 0, 8 * GIB);
    say_state(h, 1, W, 8 * GIB, 0);
    say_state(h, 2, W, 8 * GIB, 0);
    for (int turn = 0; turn < 9; turn++) {
        const int now = turn % 3, next = (turn + 1) % 3;

        pass_time(h, quantum_of(h));
        assert_false(has_run(h, now));
        say_state(h, now, W, 8 * GIB, 8 * GIB);
        for (int i = 0; i < 3; i++)
            assert_int_equal(has_run(h, i), i == next);
        for (int i = 0; i < 3; i++)
            if (i != next)
                say_state(h, i, W, 8 * GIB,
                          sched_min(h->client[i].state.resident, h->client[i].target.budget));
        assert_true(h->client[next].target.budget >= 8 * GIB);
        say_state(h, next, R, 8 * GIB, 8 * GIB);
    }
}

static void waiter_leaves_holder_keeps(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    end_client(h, 1);
    assert_true(has_run(h, 0));
    pass_time(h, TELL_PAUSE);
    assert_false(has_waiters(h, 0));
    pass_time(h, 10 * quantum_of(h));
    assert_true(has_run(h, 0));
}

static void holder_killed_next_gets_all(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    end_client(h, 0);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget >= 7 * GIB);
}

static void turn_without_progress_is_skipped(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 2, W, 7 * GIB, 0);
    end_client(h, 0);
    assert_true(has_run(h, 1)); /* and now it hangs */
    pass_time(h, GRACE + MS);
    assert_false(has_run(h, 1));
    say_state(h, 1, W, 7 * GIB, 0);
    assert_true(has_run(h, 2));
    assert_true(h->client[2].target.budget >= 7 * GIB);
}

static void stuck_holder_others_that_fit_go_on(void **state)
{
    struct harness *h = *state;
    uint32_t asked;

    go_in_turn(h, 3);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, quantum_of(h));
    say_state(h, 0, R | GS_STATE_STUCK, 7 * GIB, 7 * GIB);
    assert_int_equal(condition_of(h, 0), GS_CONDITION_STUCK);
    run_with(h, 2, 2 * GIB);
    asked = h->client[0].targets;
    for (int i = 0; i < 5; i++) {
        pass_time(h, 2 * SILENT);
        say_state(h, 0, R | GS_STATE_STUCK, 7 * GIB, 7 * GIB);
    }
    assert_in_range(h->client[0].targets - asked, 4, 5);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 7 * GIB, 7 * GIB); /* at last */
    say_state(h, 2, 0, 2 * GIB, 2 * GIB);
    assert_true(has_run(h, 1));
}

static void silent_program_gets_few_targets(void **state)
{
    struct harness *h = *state;
    const struct sched_settings other = {
        .quantum_ns = LOCKD_AUTO, .idle_ns = LOCKD_AUTO, .reserve = 5 * GIB};

    run_with(h, 0, 1 * GIB);
    run_with(h, 1, 1 * GIB);
    h->client[0].deaf = true;
    for (int i = 0; i < 100; i++) {
        sched_pause(h->client[0].client, i % 2 == 0, h->now);
        harness_take(h);
        pass_time(h, 10 * MS);
    }
    assert_true(h->client[0].targets < 12);
    sched_set(h->sched, &other, h->now); /* the other program is served as ever */
    harness_take(h);
    say_state(h, 1, R, 2 * GIB, 2 * GIB);
    assert_true(has_run(h, 1));
}

static void paused_program_stops_memory_stays(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 4 * GIB);
    sched_pause(h->client[0].client, true, h->now);
    harness_take(h);
    assert_int_equal(h->client[0].target.flags, GS_TARGET_PAUSED);
    say_state(h, 0, W, 4 * GIB, 4 * GIB);
    assert_true(h->client[0].target.budget >= 4 * GIB);
    assert_int_equal(condition_of(h, 0), GS_CONDITION_PAUSED);
    say_state(h, 1, R, 8 * GIB, 4 * GIB); /* now the room is needed */
    assert_true(h->client[0].target.budget == 2 * GIB);
    say_state(h, 0, W, 4 * GIB, 2 * GIB);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget == 8 * GIB);
    pause_all(h, false);
    harness_take(h);
    assert_int_equal(h->client[0].target.flags & GS_TARGET_PAUSED, 0);
}

static void switch_measured_quantum_follows(void **state)
{
    struct harness *h = *state;

    const struct sched_settings wide = {.quantum_ns = LOCKD_AUTO,
                                        .idle_ns = LOCKD_AUTO,
                                        .reserve = LOCKD_AUTO,
                                        .quantum_max_ns = 5000 * MS,
                                        .share_ppm = 100000};
    uint64_t guess;

    go_in_turn(h, 2);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    guess = IDLE_MIN + 4 * GIB * 1000 / (SWITCH_RATE / 1000000); /* 4 GiB do not fit */
    assert_true(quantum_of(h) == 20 * (guess + SWITCH_UNSEEN));
    pass_time(h, 20 * (guess + SWITCH_UNSEEN));
    assert_false(has_run(h, 0));
    pass_time(h, 10 * MS); /* it drains */
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    pass_time(h, 40 * MS);
    say_state(h, 0, W, 7 * GIB, 3 * GIB);
    say_state(h, 1, R, 7 * GIB, 7 * GIB);
    assert_true(sched_device_switch(device_of(h)) == guess); /* nothing had to come in */
    while (has_run(h, 1))
        pass_time(h, MS / 100);
    pass_time(h, 50 * MS); /* it drains, and moves */
    say_state(h, 1, W, 7 * GIB, 3 * GIB);
    say_state(h, 0, R, 7 * GIB, 7 * GIB);
    assert_in_range(sched_device_switch(device_of(h)), 50 * MS, 50 * MS + MS / 100);
    while (has_run(h, 0))
        pass_time(h, MS / 100);
    pass_time(h, 7000 * MS); /* memory of the host is pinned, once: that counts as 1 s */
    say_state(h, 0, W, 7 * GIB, 3 * GIB);
    say_state(h, 1, R, 7 * GIB, 7 * GIB);
    assert_in_range(sched_device_switch(device_of(h)), 287 * MS, 288 * MS);
    device_of(h)->turns.switch_ns = 50 * MS;
    assert_true(quantum_of(h) == 20 * (50 * MS + SWITCH_UNSEEN)); /* 5 % */
    sched_set(h->sched, &wide, h->now);
    assert_true(quantum_of(h) == 10 * (50 * MS + SWITCH_UNSEEN)); /* 10 % */
    device_of(h)->turns.switch_ns = 3600000 * MS;
    assert_true(quantum_of(h) == 5000 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(all_fit_all_run),
        scenario(small_growth_needs_no_message),
        scenario(newcomer_that_does_not_fit_waits),
        scenario(idleness_is_said_where_turns_are_taken_while_nobody_waits),
        scenario(quantum_over_next_program_runs),
        scenario(victim_shrinks_next_gets_credits),
        scenario(nobody_waits_no_revocation),
        scenario(idle_holder_gives_back_at_once),
        scenario(idle_holder_being_stopped_hears_of_waiters_still),
        scenario(small_program_runs_beside_the_holder),
        scenario(backfilled_gives_way_to_the_head),
        scenario(turns_of_three_are_in_order),
        scenario(waiter_leaves_holder_keeps),
        scenario(holder_killed_next_gets_all),
        scenario(turn_without_progress_is_skipped),
        scenario(stuck_holder_others_that_fit_go_on),
        scenario(silent_program_gets_few_targets),
        scenario(paused_program_stops_memory_stays),
        scenario(switch_measured_quantum_follows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
