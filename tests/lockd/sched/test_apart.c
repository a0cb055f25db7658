/* SPDX-License-Identifier: Apache-2.0
 *
 * test_apart.c: a group whose programs cannot be on a device together: each takes turns by
 * itself, until all fit again. 0 to 3 are of group a, 4 and 5 alone; all on device 0 but 3
 * and 5.
 */
#include "tests/lockd/harness.h"

static int setup_six(void **state)
{
    struct harness *h;

    harness_setup(state);
    h = *state;
    for (int who = 0; who < 6; who++) {
        struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};
        struct harness_client *c = &h->client[who];

        c->client = sched_client_add(h->sched, c);
        if (who < 4)
            hello.group[0] = 'a';
        sched_describe(c->client, &hello, 1);
        c->state.uuid[0] = who == 3 || who == 5;
    }
    return 0;
}

#define six_scenario(name) cmocka_unit_test_setup_teardown(name, setup_six, harness_teardown)

/* All that have said something do what they are told; returns nothing but adds up who runs. */
static void perform_all(struct harness *h, int seconds, int *ran)
{
    memset(ran, 0, 6 * sizeof *ran);
    for (int step = 0; step < seconds * 20; step++) {
        for (int i = 0; i < 18; i++) {
            if (h->client[i % 6].targets != 0)
                obey_target(h, i % 6);
        }
        for (int i = 0; i < 6; i++)
            ran[i] += is_running(h, i);
        pass_time(h, 50 * MS);
        assert_null(sched_check(h->sched));
    }
    for (int i = 0; i < 6; i++)
        ran[i] /= 20;
}

static bool are_one_gang(const struct harness *h, int a, int b)
{
    return h->client[a].client->gang == h->client[b].client->gang;
}

struct seen {
    const void *owner;
    bool apart;
};

static void look_at_apart(void *context, void *owner, const struct gs_wire_client *info)
{
    struct seen *seen = context;

    if (owner == seen->owner)
        seen->apart = (info->flags & GS_CLIENT_APART) != 0;
}

static bool shown_apart(struct harness *h, int who)
{
    struct seen seen = {.owner = &h->client[who]};

    sched_visit(h->sched, harness_ignore, look_at_apart, &seen, h->now);
    return seen.apart;
}

static void group_too_large_for_its_device_members_take_turns(void **state)
{
    struct harness *h = *state;
    struct sched_remark remark;
    int ran[6];

    say_state(h, 0, W, 6 * GIB, 0);
    say_state(h, 1, W, 3 * GIB, 0);
    assert_true(are_one_gang(h, 0, 1) && !shown_apart(h, 0));
    assert_false(sched_next_remark(h->sched, &remark));
    say_state(h, 1, W, 5 * GIB, 0);
    assert_true(!are_one_gang(h, 0, 1) && shown_apart(h, 0) && shown_apart(h, 1));
    assert_true(sched_next_remark(h->sched, &remark));
    assert_string_equal(remark.group, "a");
    assert_false(sched_next_remark(h->sched, &remark));
    perform_all(h, 200, ran);
    assert_in_range(ran[0], 90, 105);
    assert_in_range(ran[1], 90, 105);
}

/* Memory that is not there for them counts as if the device were smaller. */
static void group_too_large_for_what_others_leave_members_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[6];

    h->free_bytes = 10 * GIB;
    say_state(h, 0, W, 5 * GIB, 0);
    say_state(h, 1, W, 4 * GIB, 0);
    assert_true(are_one_gang(h, 0, 1));
    h->free_bytes = 8 * GIB; /* somebody else has the rest */
    h->client[0].state.flags = h->client[1].state.flags = 0;
    say_state(h, 0, W, 5 * GIB, 0);
    say_state(h, 1, W, 4 * GIB, 0);
    pass_time(h, 5000 * MS);
    assert_false(are_one_gang(h, 0, 1));
    h->free_bytes = UINT64_MAX;
    perform_all(h, 200, ran);
    assert_in_range(ran[0], 80, 115);
    assert_in_range(ran[1], 80, 115);
}

static void group_too_large_while_it_runs_members_take_turns(void **state)
{
    struct harness *h = *state;
    int ran[6];

    run_with(h, 0, 5 * GIB);
    run_with(h, 1, 2 * GIB);
    run_with(h, 4, 1 * GIB);
    say_state(h, 1, R, 6 * GIB, 2 * GIB);
    assert_false(are_one_gang(h, 0, 1));
    perform_all(h, 200, ran);
    assert_in_range(ran[0], 90, 120);
    assert_in_range(ran[1], 80, 105);
    assert_true(ran[4] > 90); /* it fits beside either */
}

/* Where two of three fit they run together, and on its other device the group is none either.
 */
static void group_too_large_on_one_device_programs_that_fit_run_together(void **state)
{
    struct harness *h = *state;
    int ran[6];

    for (int who = 0; who < 4; who++)
        say_state(h, who, W, 4 * GIB, 0);
    say_state(h, 5, W, 8 * GIB, 0);
    assert_true(!are_one_gang(h, 0, 1) && !are_one_gang(h, 0, 3));
    perform_all(h, 300, ran);
    for (int who = 0; who < 3; who++)
        assert_true(ran[who] > 150);
    assert_in_range(ran[3], 130, 170);
    assert_in_range(ran[5], 130, 170);
}

static void group_fits_again_members_run_together_after_a_second(void **state)
{
    struct harness *h = *state;
    int ran[6];

    say_state(h, 0, W, 6 * GIB, 0);
    say_state(h, 1, W, 6 * GIB, 0);
    say_state(h, 4, W, 6 * GIB, 0);
    perform_all(h, 60, ran);
    assert_false(are_one_gang(h, 0, 1));
    say_state(h, 1, h->client[1].state.flags, 3 * GIB,
              sched_min(h->client[1].state.resident, 3 * GIB));
    pass_time(h, 900 * MS);
    assert_false(are_one_gang(h, 0, 1));
    say_state(h, 1, h->client[1].state.flags, 6 * GIB, h->client[1].state.resident);
    say_state(h, 1, h->client[1].state.flags, 3 * GIB,
              sched_min(h->client[1].state.resident, 3 * GIB));
    pass_time(h, 900 * MS);
    assert_false(are_one_gang(h, 0, 1)); /* it did not fit for a second */
    pass_time(h, 200 * MS);
    assert_true(are_one_gang(h, 0, 1) && !shown_apart(h, 0));
    perform_all(h, 200, ran);
    assert_in_range(ran[0], 90, 110);
    assert_in_range(ran[1], 90, 110);
    assert_in_range(ran[4], 90, 110);
    assert_null(sched_check(h->sched));
    while (sched_party_of(device_of(h)->turns.holders.next, turn.holder)->turn.until <
           h->now + 100 * MS)
        perform_all(h, 1, ran);
    pass_time(h, 50 * MS); /* no turn ends meanwhile */
    assert_true(sched_deadline(h->sched) > h->now + 10 * MS);
}

static void group_member_leaves_the_others_are_one_gang_again(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, 4 * GIB, 0);
    say_state(h, 1, W, 4 * GIB, 0);
    say_state(h, 2, W, 4 * GIB, 0);
    sched_pause(h->client[1].client, true, h->now);
    harness_take(h);
    assert_false(are_one_gang(h, 0, 1));
    assert_int_equal(h->client[0].client->gang->paused, 0);
    assert_true(has_run(h, 0) && !has_run(h, 1)); /* the pause is its own */
    end_client(h, 2);
    pass_time(h, 1100 * MS);
    assert_true(are_one_gang(h, 0, 1));
    assert_int_equal(h->client[0].client->gang->paused, 1);
    assert_false(has_run(h, 0) || has_run(h, 1));
    sched_pause(h->client[1].client, false, h->now);
    harness_take(h);
    assert_true(has_run(h, 0) && has_run(h, 1));
}

/* The others have freed their memory and still have their budgets: these may not keep a program
 * from the memory that it needs. */
static void group_member_grows_beyond_its_spare_bytes_it_gets_what_it_needs(void **state)
{
    struct harness *h = *state;

    h->client[3].state.uuid[0] = 0;
    for (int who = 0; who < 4; who++)
        say_state(h, who, W, who == 3 ? 600 * MIB : 3100 * MIB, 0);
    for (int round = 0; round < 20; round++) {
        for (int who = 0; who < 3; who++)
            say_state(h, who, R, GIB, GIB);
        say_state(h, 3, round < 10 ? R : W, round < 10 ? 600 * MIB : GIB, 600 * MIB);
        pass_time(h, 200 * MS);
    }
    assert_true(h->client[3].target.budget >= GIB);
}

/* The program could never run, and the others need not be parted for it. */
static void group_with_a_program_too_large_by_itself_stays_a_gang(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, W, 4 * GIB, 0);
    say_state(h, 3, W, 11 * GIB, 0);
    assert_true(are_one_gang(h, 0, 3));
}

/* To be parted again and again is no way to more than one's share. */
static void group_parted_again_and_again_has_its_share_and_no_more(void **state)
{
    struct harness *h = *state;
    int ran[6], all[6] = {0};

    say_state(h, 4, W, 7 * GIB, 0);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 1, W, GIB, 0);
    for (int time = 0; time < 60; time++) {
        say_state(h, 1, h->client[1].state.flags & ~GS_STATE_RUNNING,
                  time % 2 == 0 ? 6 * GIB : GIB, sched_min(h->client[1].state.resident, GIB));
        perform_all(h, 5, ran);
        for (int i = 0; i < 6; i++)
            all[i] += ran[i];
    }
    assert_true(all[4] > 80 && all[0] > 80 && all[1] > 80);
    assert_in_range(all[0] + all[4], 180, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        six_scenario(group_too_large_for_its_device_members_take_turns),
        six_scenario(group_too_large_for_what_others_leave_members_take_turns),
        six_scenario(group_too_large_while_it_runs_members_take_turns),
        six_scenario(group_too_large_on_one_device_programs_that_fit_run_together),
        six_scenario(group_fits_again_members_run_together_after_a_second),
        six_scenario(group_member_leaves_the_others_are_one_gang_again),
        six_scenario(group_member_grows_beyond_its_spare_bytes_it_gets_what_it_needs),
        six_scenario(group_with_a_program_too_large_by_itself_stays_a_gang),
        six_scenario(group_parted_again_and_again_has_its_share_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
