/* SPDX-License-Identifier: Apache-2.0
 *
 * test_policies.c: who comes next and for how long, by each policy; turns among programs
 * that fit side by side (exclusive).
 */
#include "tests/lockd/harness.h"

static void choose_policy(struct harness *h, enum gs_policy policy, bool exclusive)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.policy = policy;
    settings.exclusive = exclusive;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
}

static int find_runner(const struct harness *h)
{
    int who = -1;

    for (int i = 0; i < HARNESS_CLIENTS; i++) {
        if (h->client[i].client != NULL && has_run(h, i)) {
            assert_int_equal(who, -1); /* one at a time */
            who = i;
        }
    }
    return who;
}

/* A program with RUN brings its memory in, the others give theirs up: instantly, as often as it
 * takes. */
static void obey_targets(struct harness *h, const uint32_t *flags, const uint64_t *demand,
                         int count)
{
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < count; i++) {
            const struct harness_client *c = &h->client[i];
            const bool all = has_run(h, i) && c->target.budget >= demand[i];

            if (!has_run(h, i))
                say_state(h, i, flags[i], demand[i],
                          sched_min(c->state.resident, c->target.budget));
            else
                say_state(h, i, all ? flags[i] | GS_STATE_RUNNING : flags[i], demand[i],
                          sched_min(demand[i], c->target.budget));
        }
    }
}

/* For so long, each with all the work in the world: ns that each ran. */
static void share_out(struct harness *h, int count, uint64_t each, uint64_t ns, uint64_t *ran)
{
    const uint64_t step = 20 * MS;
    uint32_t flags[HARNESS_CLIENTS];
    uint64_t demand[HARNESS_CLIENTS];

    for (int i = 0; i < count; i++) {
        flags[i] = W;
        demand[i] = each;
        ran[i] = 0;
    }
    for (uint64_t done = 0; done < ns; done += step) {
        obey_targets(h, flags, demand, count);
        assert_true(find_runner(h) >= 0);
        for (int i = 0; i < count; i++)
            ran[i] += (h->client[i].state.flags & GS_STATE_RUNNING) != 0 ? step : 0;
        pass_time(h, step);
    }
}

static void three_wait(struct harness *h)
{
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, MS);
    say_state(h, 2, W, 7 * GIB, 0);
}

static void policy_fifo_first_runs_while_it_has_work(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_FIFO, false);
    three_wait(h);
    pass_time(h, 600000 * MS);
    assert_int_equal(find_runner(h), 0);
    say_state(h, 0, 0, 7 * GIB, 7 * GIB);
    assert_int_equal(find_runner(h), 1); /* not 2: it came later */
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, R, 7 * GIB, 7 * GIB);
    say_state(h, 1, 0, 7 * GIB, 7 * GIB);
    assert_int_equal(find_runner(h), 2); /* not 0: it came back last */
}

static void policy_rr_a_quantum_each_whatever_the_weight(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3];

    choose_policy(h, GS_POLICY_RR, false);
    three_wait(h);
    change_weight(h, 2, 300);
    share_out(h, 3, 7 * GIB, 600000 * MS, ran);
    for (int i = 0; i < 3; i++)
        assert_in_range(ran[i], 180000 * MS, 210000 * MS);
}

static void policy_fair_time_by_weight(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3];

    three_wait(h);
    change_weight(h, 2, 200);
    share_out(h, 3, 7 * GIB, 100000 * MS, ran); /* until it is settled */
    share_out(h, 3, 7 * GIB, 1200000 * MS, ran);
    assert_in_range(ran[0] * 100 / ran[1], 97, 103);
    assert_in_range(ran[2] * 100 / ran[1], 194, 206);
}

static void policy_fair_short_burst_goes_before_the_end_of_a_long_turn(void **state)
{
    struct harness *h = *state;
    const uint32_t train_alone[2] = {W, 0}, both[2] = {W, W};
    const uint64_t demand[2] = {7 * GIB, 7 * GIB};

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, 0, 7 * GIB, 0);
    for (int i = 0; i < 5; i++) { /* once it is known for its short bursts ... */
        obey_targets(h, both, demand, 2);
        for (int wait = 0; wait < 1000 && find_runner(h) != 1; wait++) {
            pass_time(h, 20 * MS);
            obey_targets(h, both, demand, 2);
        }
        pass_time(h, 50 * MS);
        obey_targets(h, train_alone, demand, 2);
        pass_time(h, 60000 * MS);
    }
    obey_targets(h, both, demand, 2);
    assert_int_equal(find_runner(h), 1);
    pass_time(h, 20 * MS);
    obey_targets(h, train_alone, demand, 2);
    assert_int_equal(find_runner(h), 0); /* its turn has just begun */
    pass_time(h, quantum_of(h) / 8);
    obey_targets(h, both, demand, 1);
    assert_int_equal(find_runner(h), 0);
    say_state(h, 1, W, 7 * GIB, h->client[1].state.resident);
    pass_time(h, MS);
    assert_false(has_run(h, 0)); /* ... training is stopped at once */
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    assert_true(has_run(h, 1));
}

static uint64_t fixed_quantum(struct harness *h)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.quantum_ns = 1000 * MS;
    settings.idle_ns = 0;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    return settings.quantum_ns;
}

/* A program alone on the card has so many bursts of a length, long apart. */
static void run_bursts(struct harness *h, int who, int count, uint64_t ns)
{
    for (int i = 0; i < count; i++) {
        run_with(h, who, 7 * GIB);
        pass_time(h, ns);
        say_state(h, who, 0, 7 * GIB, 7 * GIB);
        pass_time(h, 60000 * MS);
    }
}

/* How long the first turn is that program 0 has from its beginning to its end beside 1. */
static uint64_t turn_beside_another(struct harness *h)
{
    const uint32_t flags[2] = {W, W};
    const uint64_t demand[2] = {7 * GIB, 7 * GIB}, step = quantum_of(h) / 50;
    uint64_t ran = 0;

    say_state(h, 1, W, 7 * GIB, 0);
    for (int phase = 0; phase < 3;) { /* 1's turn, 0's turn, over */
        obey_targets(h, flags, demand, 2);
        phase += (find_runner(h) == 0) != (phase == 1);
        pass_time(h, step);
        ran += phase == 1 ? step : 0;
    }
    return ran;
}

static void policy_fair_turn_is_as_long_as_bursts_that_are_known(void **state)
{
    struct harness *h = *state;
    const uint64_t quantum = fixed_quantum(h);

    run_bursts(h, 0, 5, quantum * 3 / 2);
    assert_in_range(turn_beside_another(h), quantum * 3 / 2, quantum * 2);
}

/* How long program 0 may idle while 1 waits and a switch costs 100 ms. */
static uint64_t may_idle(struct harness *h)
{
    run_with(h, 0, 7 * GIB);
    device_of(h)->turns.switch_ns = 100 * MS;
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 1, 0, 7 * GIB, 0);
    return h->client[0].target.idle_ns;
}

/* A program that goes first, with short bursts and without gaps in them, may idle for less. */
static void policy_fair_end_of_a_short_burst_is_believed_soon(void **state)
{
    struct harness *h = *state;
    const uint64_t quantum = fixed_quantum(h);
    struct sched_settings settings = *sched_settings(h->sched);

    settings.idle_ns = LOCKD_AUTO;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    assert_int_equal(may_idle(h), 100 * MS);
    say_state(h, 0, 0, 7 * GIB, 7 * GIB);
    run_bursts(h, 0, 20, quantum / 8);
    assert_in_range(may_idle(h), 100 * MS / 8, 50 * MS);
}

static void policy_fair_turn_lasts_for_a_burst_like_the_last_one(void **state)
{
    struct harness *h = *state;
    const uint64_t quantum = fixed_quantum(h);

    run_bursts(h, 0, 1, quantum * 12);
    run_bursts(h, 0, 1, quantum * 3 / 2);
    assert_in_range(turn_beside_another(h), quantum * 3 / 2, quantum * 2);
}

/* A program that is stopped between two calls says for a moment that it has nothing to do. */
static void policy_fair_pause_while_it_is_stopped_ends_no_burst(void **state)
{
    struct harness *h = *state;
    const uint64_t quantum = fixed_quantum(h);
    struct sched_settings settings = *sched_settings(h->sched);

    settings.idle_ns = 20 * MS;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    for (int i = 0; i < 6; i++) {
        for (int part = 0; part < 3; part++) {
            say_state(h, 0, 0, 7 * GIB, 7 * GIB);
            pass_time(h, 5 * MS);
            run_with(h, 0, 7 * GIB);
            pass_time(h, quantum / 2);
        }
        say_state(h, 0, GS_STATE_RUNNING, 7 * GIB, 7 * GIB);
        pass_time(h, 60000 * MS);
    }
    assert_in_range(turn_beside_another(h), quantum * 3 / 2, quantum * 2);
}

static void policy_fair_long_burst_makes_no_turn_longer(void **state)
{
    struct harness *h = *state;
    const uint64_t quantum = fixed_quantum(h);

    run_bursts(h, 0, 2, quantum * 5);
    assert_in_range(turn_beside_another(h), quantum / 4, quantum * 6 / 5);
}

/* It goes first for a time, since the other one is older by far; it saves up no more than that, and
 * its first turn is no longer than others. */
static void policy_fair_idle_program_leaves_the_floor_and_then_half(void **state)
{
    struct harness *h = *state;
    uint64_t ran[2];

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, 0, 7 * GIB, 0);
    pass_time(h, 3600000 * MS);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    /* the floor is 30 %, less what the account held */
    assert_true(ran[0] >= 300000 * MS * 25 / 100);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    assert_true(ran[1] <= ran[0] + 3 * quantum_of(h));
}

/* ... also where it has run, while nobody waited. */
static void policy_fair_program_that_ran_alone_leaves_the_floor_and_then_half(void **state)
{
    struct harness *h = *state;
    uint64_t ran[2];

    run_with(h, 1, 7 * GIB);
    pass_time(h, 60000 * MS);
    say_state(h, 1, 0, 7 * GIB, 0);
    run_with(h, 0, 7 * GIB);
    pass_time(h, 3600000 * MS);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    /* the floor is 30 %, less what the account held */
    assert_true(ran[0] >= 300000 * MS * 25 / 100);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    share_out(h, 2, 7 * GIB, 300000 * MS, ran);
    assert_true(ran[1] <= ran[0] + 3 * quantum_of(h));
}

static void policy_priority_higher_goes_first_and_at_once(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_PRIORITY, false);
    three_wait(h);
    change_priority(h, 2, 5);
    harness_take(h);
    assert_false(has_run(h, 0));
    say_state(h, 0, W, 7 * GIB, 7 * GIB);
    assert_int_equal(find_runner(h), 2);
    say_state(h, 0, W, 7 * GIB, 3 * GIB);
    say_state(h, 2, R, 7 * GIB, 7 * GIB);
    pass_time(h, 600000 * MS);
    assert_int_equal(find_runner(h), 2);
    change_priority(h, 2, -5);
    harness_take(h);
    assert_false(has_run(h, 2));
}

static void policy_priority_equals_take_turns(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3];

    choose_policy(h, GS_POLICY_PRIORITY, false);
    three_wait(h);
    share_out(h, 3, 7 * GIB, 600000 * MS, ran);
    for (int i = 0; i < 3; i++)
        assert_in_range(ran[i], 180000 * MS, 210000 * MS);
}

static void exclusive_fitting_programs_take_turns_and_stay_resident(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3];

    choose_policy(h, GS_POLICY_FAIR, true);
    for (int i = 0; i < 3; i++)
        say_state(h, i, W, 3 * GIB, 0);
    share_out(h, 3, 3 * GIB, 100000 * MS, ran);
    for (int i = 0; i < 3; i++) {
        assert_in_range(ran[i], 32000 * MS, 35000 * MS);
        assert_true(h->client[i].state.resident == 3 * GIB);
    }
    choose_policy(h, GS_POLICY_FAIR, false);
    for (int i = 0; i < 3; i++)
        assert_true(has_run(h, i));
}

static void exclusive_memory_short_a_single_program_runs_only_the_shortfall_moves(void **state)
{
    struct harness *h = *state;
    uint64_t ran[3];

    choose_policy(h, GS_POLICY_FAIR, true);
    for (int i = 0; i < 3; i++)
        say_state(h, i, W, 4 * GIB, 0);
    share_out(h, 3, 4 * GIB, 300000 * MS, ran);
    for (int i = 0; i < 3; i++)
        assert_in_range(ran[i], 95000 * MS, 105000 * MS);
    assert_true(h->client[0].state.resident + h->client[1].state.resident +
                    h->client[2].state.resident ==
                10 * GIB);
}

static void exclusive_alone_nobody_takes_turns(void **state)
{
    struct harness *h = *state;

    choose_policy(h, GS_POLICY_FAIR, true);
    run_with(h, 0, 4 * GIB);
    pass_time(h, 60000 * MS);
    assert_true(has_run(h, 0));
    assert_false(device_of(h)->turns.leases);
}

/* A program that had a burst and a rest before it waits keeps its place, too. */
static void policy_fifo_a_new_setting_changes_no_order(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings;

    choose_policy(h, GS_POLICY_FIFO, false);
    run_with(h, 3, GIB);
    pass_time(h, 100 * MS);
    say_state(h, 3, 0, GIB, GIB);
    pass_time(h, 2000 * MS);
    say_state(h, 0, W, 9 * GIB, 0);
    for (int i = 0; i < 20; i++) {
        obey_target(h, 3);
        obey_target(h, 0);
        pass_time(h, 20 * MS);
    }
    assert_true(is_running(h, 0));
    for (int who = 3; who > 0; who--) {
        say_state(h, who, W, 9 * GIB, h->client[who].state.resident);
        pass_time(h, 100 * MS);
    }
    settings = *sched_settings(h->sched);
    settings.quantum_max_ns += 1000 * MS;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    end_client(h, 0);
    pass_time(h, 100 * MS);
    assert_true(has_run(h, 3));
    assert_false(has_run(h, 2) || has_run(h, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(policy_fifo_first_runs_while_it_has_work),
        scenario(policy_fifo_a_new_setting_changes_no_order),
        scenario(policy_rr_a_quantum_each_whatever_the_weight),
        scenario(policy_fair_time_by_weight),
        scenario(policy_fair_short_burst_goes_before_the_end_of_a_long_turn),
        scenario(policy_fair_turn_is_as_long_as_bursts_that_are_known),
        scenario(policy_fair_end_of_a_short_burst_is_believed_soon),
        scenario(policy_fair_turn_lasts_for_a_burst_like_the_last_one),
        scenario(policy_fair_pause_while_it_is_stopped_ends_no_burst),
        scenario(policy_fair_long_burst_makes_no_turn_longer),
        scenario(policy_fair_idle_program_leaves_the_floor_and_then_half),
        scenario(policy_fair_program_that_ran_alone_leaves_the_floor_and_then_half),
        scenario(policy_priority_higher_goes_first_and_at_once),
        scenario(policy_priority_equals_take_turns),
        scenario(exclusive_fitting_programs_take_turns_and_stay_resident),
        scenario(exclusive_memory_short_a_single_program_runs_only_the_shortfall_moves),
        scenario(exclusive_alone_nobody_takes_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
