/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gang.c: programs of one group on two devices get their turns together. 0 and 1 are gang
 * a, 2 and 3 gang b, 0 and 2 on device 0; 4 and 5 are alone, 4 on device 0.
 */
#include "tests/lockd/harness.h"

static void join_group(struct harness *h, int who, const char *group, uint32_t user)
{
    struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};
    struct harness_client *c = &h->client[who];

    c->client = sched_client_add(h->sched, c);
    strncpy(hello.group, group, sizeof hello.group - 1);
    sched_describe(c->client, &hello, user);
    c->state.uuid[0] = (uint8_t)(who % 2);
}

static int setup_six(void **state)
{
    struct harness *h;

    harness_setup(state);
    h = *state;
    join_group(h, 0, "a", 1);
    join_group(h, 1, "a", 1);
    join_group(h, 2, "b", 1);
    join_group(h, 3, "b", 1);
    join_group(h, 4, "", 1);
    join_group(h, 5, "", 1);
    return 0;
}

#define six_scenario(name) cmocka_unit_test_setup_teardown(name, setup_six, harness_teardown)

/* Does what its target says, at once. */
static void obey_at_once(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t demand = c->state.demand, budget = c->target.budget;

    if (!has_run(h, who))
        say_state(h, who, W, demand, sched_min(c->state.resident, budget));
    else
        say_state(h, who, budget >= demand ? R : W, demand, sched_min(demand, budget));
}

static void all_obey(struct harness *h)
{
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 6; i++)
            if (h->client[i].targets != 0)
                obey_at_once(h, i);
    }
}

static bool runs_now(const struct harness *h, int who)
{
    return (h->client[who].state.flags & GS_STATE_RUNNING) != 0;
}

static void gang_runs_only_with_all_its_places(void **state)
{
    struct harness *h = *state;

    say_state(h, 5, W, 7 * GIB, 0);
    all_obey(h);
    assert_true(runs_now(h, 5));
    say_state(h, 1, W, 7 * GIB, 0); /* 5 has the room */
    say_state(h, 0, W, 7 * GIB, 0);
    assert_false(has_run(h, 0)); /* its device is free, its gang's other device is not */
    assert_false(has_run(h, 1));
    for (int i = 0; i < 20; i++) {
        pass_time(h, quantum_of(h) / 10);
        all_obey(h);
        assert_int_equal(runs_now(h, 0), runs_now(h, 1));
    }
    assert_true(runs_now(h, 0));
    assert_false(runs_now(h, 5));
}

static void gang_turn_ends_on_all_devices(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    all_obey(h);
    assert_true(runs_now(h, 0) && runs_now(h, 1));
    say_state(h, 5, W, 7 * GIB, 0); /* on device 1 only */
    pass_time(h, 61000 * MS);
    assert_false(has_run(h, 0));
    assert_false(has_run(h, 1));
    all_obey(h);
    assert_true(runs_now(h, 5));
}

static void gang_two_gangs_in_the_same_order_never_block_each_other(void **state)
{
    struct harness *h = *state;
    uint64_t ran[6] = {0}, together = 0;

    for (int i = 3; i >= 0; i--) /* b comes first on device 1, and so does a on 0 */
        say_state(h, i, W, 7 * GIB, 0);
    for (int step = 0; step < 15000; step++) {
        all_obey(h);
        assert_false(runs_now(h, 0) && runs_now(h, 2));
        for (int i = 0; i < 4; i++)
            ran[i] += runs_now(h, i);
        together += (runs_now(h, 0) && runs_now(h, 1)) || (runs_now(h, 2) && runs_now(h, 3));
        pass_time(h, 20 * MS);
    }
    assert_true(together > 14500);
    for (int i = 0; i < 4; i++)
        assert_in_range(ran[i], 7200, 7800);
}

/* Both fit on device 0, so each can have its place there and want the other's on 1. */
static void gang_two_gangs_fit_on_one_device_they_take_turns(void **state)
{
    struct harness *h = *state;
    uint64_t ran[6] = {0};

    for (int i = 0; i < 4; i++)
        say_state(h, i, W, i % 2 == 0 ? 4 * GIB : 7 * GIB, 0);
    for (int step = 0; step < 10000; step++) {
        all_obey(h);
        for (int i = 0; i < 4; i++)
            ran[i] += runs_now(h, i);
        pass_time(h, 20 * MS);
    }
    assert_in_range(ran[1], 4900, 5100);
    assert_in_range(ran[3], 4900, 5100);
}

static void gang_beside_a_program_of_one_device_shares_are_equal(void **state)
{
    struct harness *h = *state;
    uint64_t ran[6] = {0};

    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 5, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    for (int step = 0; step < 15000; step++) {
        all_obey(h);
        for (int i = 0; i < 6; i++)
            ran[i] += runs_now(h, i);
        pass_time(h, 20 * MS);
    }
    assert_in_range(ran[0], 7200, 7800);
    assert_in_range(ran[1], 7200, 7800);
    assert_in_range(ran[4], 7200, 7800);
    assert_in_range(ran[5], 7200, 7800);
}

static void gang_of_another_user_is_another_gang(void **state)
{
    struct harness *h = *state;

    join_group(h, 6, "a", 2);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 6, W, GIB, 0);
    assert_true(h->client[0].client->gang != h->client[6].client->gang);
    assert_true(has_run(h, 0));
    say_state(h, 1, W, 7 * GIB, 0);
    assert_true(h->client[0].client->gang == h->client[1].client->gang);
}

static void gang_member_dies_the_others_go_on(void **state)
{
    struct harness *h = *state;

    say_state(h, 5, W, 7 * GIB, 0);
    all_obey(h);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 0, W, 7 * GIB, 0);
    assert_false(has_run(h, 0));
    end_client(h, 1);
    assert_true(has_run(h, 0)); /* the rest of the gang waits for nothing any more */
}

static void gang_paused_member_stops_all(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, 7 * GIB, 0);
    all_obey(h);
    sched_pause(h->client[0].client, true, h->now);
    harness_take(h);
    assert_false(has_run(h, 0));
    assert_false(has_run(h, 1));
    sched_pause(h->client[0].client, false, h->now);
    harness_take(h);
    assert_true(has_run(h, 0) && has_run(h, 1));
}

/* 5 on device 1 does not answer; the gang of 0 and 1 has its place on device 0 and waits for
 * ever, which is no reason for 4 to. */
static void gang_waits_for_a_stuck_program_others_run_on_its_other_device(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0;

    run_with(h, 5, 7 * GIB);
    h->client[5].deaf = true;
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    for (int second = 0; second < 600; second++) {
        for (int i = 0; i < 5; i++)
            if (h->client[i].targets != 0)
                obey_at_once(h, i);
        ran += runs_now(h, 4);
        pass_time(h, 1000 * MS);
    }
    assert_true(ran > 60);
}

static void gang_hopeless_on_one_device_it_keeps_no_place_on_another(void **state)
{
    struct harness *h = *state;
    uint64_t ran = 0;

    run_with(h, 5, 7 * GIB);
    say_state(h, 1, W, 11 * GIB, 0);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    for (int step = 0; step < 600; step++) {
        all_obey(h);
        ran += runs_now(h, 4);
        pass_time(h, 100 * MS);
    }
    assert_true(ran > 550);
    say_state(h, 1, W, 7 * GIB, 0); /* there is hope now */
    pass_time(h, 100 * MS);
    for (int step = 0; step < 600; step++) {
        all_obey(h);
        pass_time(h, 100 * MS);
        if (runs_now(h, 0) && runs_now(h, 1))
            return;
    }
    fail();
}

/* 5 goes before the gang on device 1 for ever, and 4 before it on device 0: it has a place
 * there and cannot use it. */
static void gang_of_low_priority_keeps_no_place_for_ever(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);
    uint64_t ran = 0;

    settings.policy = GS_POLICY_PRIORITY;
    sched_set(h->sched, &settings, h->now);
    change_priority(h, 4, 50);
    change_priority(h, 5, 50);
    run_with(h, 5, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 4, W, 7 * GIB, 0);
    for (int step = 0; step < 2400; step++) {
        all_obey(h);
        ran += runs_now(h, 4);
        pass_time(h, 50 * MS);
    }
    assert_true(ran > 1200);
}

static struct sched_gang *gang_of(const struct harness *h, int who)
{
    return h->client[who].client->gang;
}

static void gang_weight_is_the_highest_of_its_members(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, GIB, 0);
    assert_int_equal(gang_of(h, 0)->weight, GS_WEIGHT_DEFAULT);
    h->client[1].client->set.weight = 300; /* as its HELLO says, before it joins */
    say_state(h, 1, W, GIB, 0);
    assert_int_equal(gang_of(h, 0)->weight, 300);
    assert_null(sched_check(h->sched));
    end_client(h, 1);
    assert_int_equal(gang_of(h, 0)->weight, GS_WEIGHT_DEFAULT);
    assert_null(sched_check(h->sched));
    change_weight(h, 0, 40);
    assert_int_equal(gang_of(h, 0)->weight, 40);
    assert_int_equal(device_of(h)->books.weights, 40);
    assert_null(sched_check(h->sched));
}

/* A program of the group comes and goes on devices of its own. */
static void gang_grows_and_shrinks_all_the_time_turn_ends(void **state)
{
    struct harness *h = *state;
    int ran[2] = {0};

    join_group(h, 0, "g", 1);
    say_state(h, 0, W, 7 * GIB, 0);
    join_group(h, 1, "", 1);
    h->client[1].state.uuid[0] = 0;
    say_state(h, 1, W, 7 * GIB, 0);
    for (int step = 0; step < 4000; step++) {
        join_group(h, 2, "g", 1);
        h->client[2].state.uuid[0] = (uint8_t)(100 + step % 20);
        say_state(h, 2, 0, 0, 0);
        for (int who = 0; who < 4; who++) {
            struct harness_client *c = &h->client[who % 2];
            const bool runs = has_run(h, who % 2) && c->target.budget >= 7 * GIB;

            say_state(h, who % 2, runs ? R : W, 7 * GIB,
                      runs ? 7 * GIB : sched_min(c->state.resident, c->target.budget));
            ran[who % 2] += runs && who >= 2;
        }
        pass_time(h, 50 * MS);
        end_client(h, 2);
    }
    assert_true(ran[0] > 1200 && ran[1] > 1200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        six_scenario(gang_runs_only_with_all_its_places),
        six_scenario(gang_turn_ends_on_all_devices),
        six_scenario(gang_two_gangs_in_the_same_order_never_block_each_other),
        six_scenario(gang_two_gangs_fit_on_one_device_they_take_turns),
        six_scenario(gang_beside_a_program_of_one_device_shares_are_equal),
        six_scenario(gang_of_another_user_is_another_gang),
        six_scenario(gang_member_dies_the_others_go_on),
        six_scenario(gang_paused_member_stops_all),
        six_scenario(gang_waits_for_a_stuck_program_others_run_on_its_other_device),
        six_scenario(gang_hopeless_on_one_device_it_keeps_no_place_on_another),
        six_scenario(gang_of_low_priority_keeps_no_place_for_ever),
        six_scenario(gang_weight_is_the_highest_of_its_members),
        scenario(gang_grows_and_shrinks_all_the_time_turn_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
