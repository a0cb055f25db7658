/* SPDX-License-Identifier: Apache-2.0
 *
 * test_left.c: a program leaves its device and goes on on another device.
 */
#include "tests/lockd/harness.h"

static void moves_to(struct harness *h, int who, uint8_t device)
{
    struct harness_client *c = &h->client[who];

    sched_left(c->client, c->state.uuid, h->now);
    assert_null(sched_check(h->sched));
    harness_take(h);
    c->state.uuid[0] = device;
    c->most = c->promised = c->target.budget = c->target.flags = 0;
}

struct seen {
    const void *owner;
    struct gs_wire_client client;
    struct gs_wire_device device, last; /* last: that was visited */
    uint64_t gpu_ns[2];                 /* of both devices */
};

static void see_device(void *context, const struct gs_wire_device *device)
{
    struct seen *seen = context;

    seen->gpu_ns[device->uuid[0] & 1] = device->gpu_ns;
    seen->last = *device;
}

static void see_client(void *context, void *owner, const struct gs_wire_client *client)
{
    struct seen *seen = context;

    if (owner != seen->owner)
        return;
    seen->client = *client;
    seen->device = seen->last;
}

static struct seen see_program(const struct harness *h, int who)
{
    struct seen seen = {.owner = &h->client[who]};

    sched_visit(h->sched, see_device, see_client, &seen, h->now);
    return seen;
}

static void program_that_left_makes_room(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    say_state(h, 2, 0, GIB, 0);
    assert_false(has_run(h, 1));
    moves_to(h, 0, 1);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget >= 7 * GIB);
    say_state(h, 0, W, 7 * GIB, 0);
    assert_true(has_run(h, 0));
    assert_true(h->client[0].target.budget >= 7 * GIB);
    assert_null(sched_check(h->sched));
}

static void program_that_moves_while_it_waits_runs_there(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    sched_pause(h->client[1].client, true, h->now);
    sched_evict(h->client[1].client, h->now);
    harness_take(h);
    moves_to(h, 1, 1);
    say_state(h, 1, W, 7 * GIB, 0);
    assert_false(has_run(h, 1)); /* it is paused there as well */
    sched_pause(h->client[1].client, false, h->now);
    harness_take(h);
    assert_true(has_run(h, 1));
    assert_true(has_run(h, 0));
}

/* A number of the old device must not be taken for an answer to a target of the new device. */
static void numbers_of_targets_go_on_on_the_next_device(void **state)
{
    struct harness *h = *state;
    uint32_t before;

    run_with(h, 0, 7 * GIB);
    before = h->client[0].target.seq;
    moves_to(h, 0, 1);
    say_state(h, 0, W, 7 * GIB, 0);
    assert_true(h->client[0].target.seq > before);
}

static void times_go_with_a_moved_program_and_are_not_counted_twice(void **state)
{
    struct harness *h = *state;
    struct seen seen;

    say_state(h, 1, 0, GIB, 0); /* so that the device stays */
    run_with(h, 0, 7 * GIB);
    pass_time(h, 3000 * MS);
    moves_to(h, 0, 1);
    assert_int_equal(see_program(h, 1).gpu_ns[0], 3000 * MS);
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 0, R, 7 * GIB, 7 * GIB);
    pass_time(h, 2000 * MS);
    seen = see_program(h, 0);
    assert_int_equal(seen.client.gpu_ns, 5000 * MS);
    assert_int_equal(seen.gpu_ns[0], 3000 * MS);
    assert_int_equal(seen.gpu_ns[1], 2000 * MS);
    moves_to(h, 0, 0); /* and back */
    say_state(h, 0, W, 7 * GIB, 0);
    say_state(h, 0, R, 7 * GIB, 7 * GIB);
    pass_time(h, 1000 * MS);
    seen = see_program(h, 0);
    assert_int_equal(seen.client.gpu_ns, 6000 * MS);
    assert_int_equal(seen.gpu_ns[0], 4000 * MS);
}

static void class_found_by_watching_goes_with_a_moved_program(void **state)
{
    struct harness *h = *state;

    say_state(h, 1, 0, 8 * GIB, 0); /* turns are taken */
    for (int burst = 0; burst < 20; burst++) {
        say_state(h, 0, R, 7 * GIB, 7 * GIB);
        pass_time(h, 50 * MS);
        say_state(h, 0, 0, 7 * GIB, 7 * GIB);
        pass_time(h, 2000 * MS);
    }
    assert_int_equal(see_program(h, 0).client.class, GS_CLASS_INTERACTIVE);
    moves_to(h, 0, 1);
    say_state(h, 0, 0, 7 * GIB, 0);
    assert_int_equal(see_program(h, 0).client.class, GS_CLASS_INTERACTIVE);
}

static void device_that_a_program_does_not_use_cannot_be_left(void **state)
{
    struct harness *h = *state;
    const uint8_t other[16] = {7};

    run_with(h, 0, 7 * GIB);
    sched_left(h->client[0].client, other, h->now);
    assert_true(has_run(h, 0));
    assert_int_equal(see_program(h, 0).client.resident, 7 * GIB);
}

static void program_that_left_may_end_before_it_is_somewhere(void **state)
{
    struct harness *h = *state;

    joins_group(h, 0, "pair");
    joins_group(h, 2, "pair");
    run_with(h, 0, 2 * GIB);
    run_with(h, 2, 2 * GIB);
    moves_to(h, 0, 1);
    assert_true(has_run(h, 2));
    end_client(h, 0);
    assert_null(sched_check(h->sched));
    assert_true(has_run(h, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(program_that_left_makes_room),
        scenario(program_that_moves_while_it_waits_runs_there),
        scenario(numbers_of_targets_go_on_on_the_next_device),
        scenario(times_go_with_a_moved_program_and_are_not_counted_twice),
        scenario(class_found_by_watching_goes_with_a_moved_program),
        scenario(device_that_a_program_does_not_use_cannot_be_left),
        scenario(program_that_left_may_end_before_it_is_somewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
