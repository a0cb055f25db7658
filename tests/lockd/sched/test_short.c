/* SPDX-License-Identifier: Apache-2.0
 *
 * test_short.c: the driver has no memory although the budget allowed it, and nobody is
 * left who could make room.
 */
#include "tests/lockd/harness.h"

#define SHORT (W | GS_STATE_MOVING | GS_STATE_SHORT)

/* 1 says what it has; while it moves it does not measure. */
static void report_moving(struct harness *h, uint32_t flags)
{
    h->client[1].state.device_free = UINT64_MAX;
    h->client[1].state.flags = W | GS_STATE_MOVING | flags;
    h->client[1].state.resident = 9 * GIB;
    harness_report(h, &h->client[1]);
    harness_take(h);
}

/* 1 has placed 9 GiB and lacks a chunk of 64 MiB; contexts came that nobody has measured. */
static void runs_short(struct harness *h)
{
    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.measured);
    say_state(h, 1, W, 9 * GIB + 512 * MIB, 0);
    h->free_bytes = 32 * MIB; /* now */
    h->client[1].state.short_bytes = 64 * MIB;
    report_moving(h, 0);
}

static void short_alone_is_external_use(void **state)
{
    struct harness *h = *state;

    runs_short(h);
    assert_true(device_of(h)->measure.external == 0);
    report_moving(h, GS_STATE_SHORT);
    pass_time(h, SILENT); /* 0 is asked */
    assert_true(device_of(h)->measure.external == GIB - 64 * MIB);
    assert_true(h->client[1].target.capacity <= 9 * GIB + 64 * MIB);
    h->free_bytes = 10 * GIB - 64 * MIB;
    say_state(h, 1, 0, 0, 0);
    pass_time(h, 250 * MS);
    assert_true(device_of(h)->measure.external == 64 * MIB);
}

/* Memory that another program may have at that moment is not, until it has been silent for so
 * long that it has no more than it says. */
static void short_while_others_move_is_less_external_use(void **state)
{
    struct harness *h = *state;

    runs_short(h);
    h->free_bytes = UINT64_MAX; /* nobody measures, and 0 keeps what it may hold */
    say_state(h, 0, GS_STATE_MOVING, 0, 0);
    h->client[0].deaf = true;
    report_moving(h, GS_STATE_SHORT);
    pass_time(h, SILENT / 2);
    assert_true(device_of(h)->measure.external == 0);
    for (int i = 0; i < 5; i++) {
        report_moving(h, GS_STATE_SHORT);
        pass_time(h, SILENT);
    }
    assert_true(device_of(h)->measure.external == GIB - 64 * MIB);
}

static void short_on_an_unmeasured_device_is_no_external_use(void **state)
{
    struct harness *h = *state;

    say_state(h, 1, W | GS_STATE_MOVING, 9 * GIB + 512 * MIB, 9 * GIB);
    h->client[1].state.short_bytes = 64 * MIB;
    say_state(h, 1, SHORT, 9 * GIB + 512 * MIB, 9 * GIB);
    assert_true(device_of(h)->measure.external == 0);
}

/* 0 runs, has most of the device and nothing to do; nobody is in the queue, since what 1 is
 * short of is no demand (a graph's own memory). */
static void short_beside_an_idle_holder_it_makes_room(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 8 * GIB);
    say_state(h, 1, W, 0, 0);
    h->client[1].state.short_bytes = 5 * GIB;
    say_state(h, 1, W | GS_STATE_RUNNING | GS_STATE_SHORT, 0, 0);
    pass_time(h, 100 * MS);
    assert_true(has_waiters(h, 0)); /* or it would not say that it is idle */
    say_state(h, 0, GS_STATE_RUNNING, 8 * GIB, 8 * GIB);
    pass_time(h, 100 * MS);
    assert_false(has_run(h, 0));
    say_state(h, 0, 0, 8 * GIB, 8 * GIB);
    pass_time(h, 100 * MS);
    assert_true(h->client[0].target.budget <= 5 * GIB);
    say_state(h, 0, W, 8 * GIB, 5 * GIB); /* and has its turn when it has something to do */
    pass_time(h, 30000 * MS);
    obey_target(h, 0);
    obey_target(h, 0);
    pass_time(h, 1000 * MS);
    assert_true(has_run(h, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(short_beside_an_idle_holder_it_makes_room),
        scenario(short_alone_is_external_use),
        scenario(short_while_others_move_is_less_external_use),
        scenario(short_on_an_unmeasured_device_is_no_external_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
