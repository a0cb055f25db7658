/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load.c: what a program does on its device, for the choice of a better device.
 */
#include "tests/lockd/harness.h"

static struct sched_load load_of(const struct harness *h, int who)
{
    struct sched_load load;

    assert_true(sched_client_load(h->client[who].client, 0, &load, h->now));
    return load;
}

static void work_and_waits_are_told_apart_from_rests(void **state)
{
    struct harness *h = *state;
    struct sched_load load;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, 0, 7 * GIB, 0); /* turns are taken */
    pass_time(h, 300 * MS);
    say_state(h, 0, GS_STATE_RUNNING, 7 * GIB,
              7 * GIB); /* it keeps the device, and does nothing */
    pass_time(h, 5000 * MS);
    assert_int_equal(load_of(h, 0).run_ns, 300 * MS);
    say_state(h, 0, R, 7 * GIB, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, 100 * MS);
    load = load_of(h, 0);
    assert_int_equal(load.run_ns, 400 * MS);
    assert_int_equal(load.wait_ns, 0);
    assert_false(load.waits);
    load = load_of(h, 1);
    assert_int_equal(load.run_ns, 0);
    assert_int_equal(load.wait_ns, 100 * MS);
    assert_true(load.waits && load.alone && load.turns);
    assert_int_equal(load.demand, 7 * GIB);
    assert_int_equal(load.resident, 0);
    assert_int_equal(load.class, GS_CLASS_BATCH);
    assert_true(load.capacity > 9 * GIB && load.capacity <= 10 * GIB);
}

static void programs_of_groups_and_of_several_devices_are_not_alone(void **state)
{
    struct harness *h = *state;
    struct sched_load load;
    uint8_t second;

    joins_group(h, 0, "pair");
    joins_group(h, 2, "pair");
    say_state(h, 0, W, GIB, 0);
    assert_true(load_of(h, 0).alone);
    say_state(h, 2, W, GIB, 0);
    assert_false(load_of(h, 0).alone);
    say_state(h, 4, W, GIB, 0);
    assert_true(load_of(h, 4).alone);
    h->client[4].state.uuid[0] = 1;
    say_state(h, 4, W, 2 * GIB, 0);
    assert_false(load_of(h, 4).alone);
    assert_true(sched_client_load(h->client[4].client, 1, &load, h->now));
    second = load.uuid[0];
    assert_int_equal(load.demand, second == 1 ? 2 * GIB : GIB);
    assert_int_not_equal(second, load_of(h, 4).uuid[0]);
    assert_false(sched_client_load(h->client[4].client, 2, &load, h->now));
}

static void programs_that_all_fit_say_that_they_rest_only_with_balance(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);

    run_with(h, 0, 2 * GIB);
    run_with(h, 1, 2 * GIB);
    assert_int_equal(h->client[0].target.idle_ns, 0);
    settings.balance = true;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    pass_time(h, TELL_PAUSE);
    assert_int_not_equal(h->client[0].target.idle_ns, 0);
    say_state(h, 0, GS_STATE_RUNNING, 2 * GIB, 2 * GIB);
    assert_true(has_run(h, 0)); /* as before: nobody is in its way */
    pass_time(h, 1000 * MS);
    assert_false(load_of(h, 0).turns);
    assert_int_equal(load_of(h, 0).run_ns, TELL_PAUSE);
    assert_int_equal(load_of(h, 1).run_ns, TELL_PAUSE + 1000 * MS);
    settings.balance = false;
    sched_set(h->sched, &settings, h->now);
    harness_take(h);
    pass_time(h, TELL_PAUSE);
    assert_int_equal(h->client[0].target.idle_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(work_and_waits_are_told_apart_from_rests),
        scenario(programs_of_groups_and_of_several_devices_are_not_alone),
        scenario(programs_that_all_fit_say_that_they_rest_only_with_balance),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
