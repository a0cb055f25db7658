/* SPDX-License-Identifier: Apache-2.0
 *
 * test_forming.c: gangs that start, on two devices where all of them fit. Programs with even
 * numbers are on the first device, those with odd numbers on the second. See
 * tests/lockd/programs/test_trial.c for a proof that nobody waits for ever.
 */
#include "tests/lockd/harness.h"

static void join_on(struct harness *h, int who, uint8_t device, uint64_t job, uint32_t ranks,
                    uint32_t user)
{
    struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};
    struct harness_client *c = &h->client[who];

    c->client = sched_client_add(h->sched, c);
    sched_describe(c->client, &hello, user);
    sched_kin(c->client, job, h->now);
    sched_rank(c->client, ranks, h->now);
    c->state.uuid[0] = device;
    say_state(h, who, W, GIB, 0);
    obey_target(h, who);
}

static void join_job(struct harness *h, int who, uint64_t job, uint32_t ranks, uint32_t user)
{
    join_on(h, who, (uint8_t)(who % 2), job, ranks, user);
}

static void all_obey(struct harness *h, int count)
{
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < count; i++)
            if (h->client[i].client != NULL)
                obey_target(h, i);
    }
}

static void forming_second_job_starts_it_waits_until_the_first_has_formed(void **state)
{
    struct harness *h = *state;

    join_job(h, 0, 1, 0, 1);
    join_job(h, 3, 2, 0, 1); /* the other one's device, where nobody is yet */
    assert_true(is_running(h, 0));
    assert_false(has_run(h, 3));
    join_job(h, 1, 1, 0, 1);
    join_job(h, 2, 2, 0, 1);
    all_obey(h, 4);
    assert_true(is_running(h, 0) && is_running(h, 1));
    assert_false(has_run(h, 2) || has_run(h, 3));
    pass_time(h, 11000 * MS);
    all_obey(h, 4);
    assert_true(is_running(h, 2) && is_running(h, 3));
    pass_time(h, 11000 * MS);
    all_obey(h, 4);
    for (int i = 0; i < 4; i++) /* all have formed, and fit */
        assert_true(is_running(h, i));
}

static void forming_single_program_comes_it_runs_at_once(void **state)
{
    struct harness *h = *state;

    join_job(h, 0, 1, 0, 1);
    join_job(h, 1, 2, 0, 1);
    assert_false(has_run(h, 1));
    h->client[3].state.uuid[0] = 1;
    say_state(h, 3, W, GIB, 0);
    assert_true(has_run(h, 3));
}

static void forming_all_ranks_on_other_devices_they_do_not_wait(void **state)
{
    struct harness *h = *state;

    join_job(h, 0, 1, 2, 1);
    join_job(h, 2, 1, 2, 1);
    join_job(h, 1, 2, 2, 1);
    join_job(h, 3, 2, 2, 1);
    all_obey(h, 4);
    for (int i = 0; i < 4; i++)
        assert_true(is_running(h, i));
}

static void forming_user_has_more_jobs_the_other_user_is_next(void **state)
{
    struct harness *h = *state;

    join_job(h, 0, 1, 0, 1);
    join_job(h, 1, 2, 0, 1);
    join_job(h, 2, 3, 0, 1);
    join_job(h, 3, 4, 0, 2);
    all_obey(h, 4);
    assert_true(is_running(h, 0));
    for (int i = 1; i < 4; i++)
        assert_false(has_run(h, i));
    end_client(h, 0);
    assert_true(has_run(h, 3));
    assert_false(has_run(h, 1) || has_run(h, 2));
}

/* Two jobs on the first device, of which the second waits; three on the two others. */
static void forming_turn_ends_elsewhere_of_two_rivals_one_begins(void **state)
{
    struct harness *h = *state;

    for (int i = 0; i < 4; i++)
        join_on(h, i, 0, 1 + (uint64_t)i / 2, 2, 1);
    for (int i = 4; i < 10; i++)
        join_on(h, i, (uint8_t)(1 + i % 2), 1 + (uint64_t)i / 2, 2, 1);
    all_obey(h, 10);
    assert_true(is_running(h, 0) && is_running(h, 1) && is_running(h, 4) && is_running(h, 5));
    for (int i = 6; i < 10; i++)
        assert_false(has_run(h, i));
    end_client(h, 4);
    end_client(h, 5);
    all_obey(h, 10);
    assert_true(is_running(h, 6) && is_running(h, 7));
    assert_false(has_run(h, 8) || has_run(h, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(forming_second_job_starts_it_waits_until_the_first_has_formed),
        scenario(forming_single_program_comes_it_runs_at_once),
        scenario(forming_all_ranks_on_other_devices_they_do_not_wait),
        scenario(forming_user_has_more_jobs_the_other_user_is_next),
        scenario(forming_turn_ends_elsewhere_of_two_rivals_one_begins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
