/* SPDX-License-Identifier: Apache-2.0
 *
 * test_claim.c: room that is kept for a program that is about to come, or that a guard holds on no
 * device.
 */
#include "tests/lockd/harness.h"

static const uint8_t device_uuid[16]; /* of all clients here */
static const char key;

static void claim(struct harness *h, uint64_t bytes)
{
    assert_true(sched_claim(h->sched, &key, device_uuid, bytes, h->now));
    assert_null(sched_check(h->sched));
    harness_take(h);
}

/* 0 and 1 ran side by side; they do not fit beside the claim. Both rest, and what must leave has
 * left. */
static void rest_beside_claim(struct harness *h)
{
    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 4 * GIB);
    claim(h, 3 * GIB);
    for (int who = 0; who < 2; who++)
        say_state(h, who, GS_STATE_RUNNING, 4 * GIB, 4 * GIB);
    for (int second = 0; second < 60; second++) {
        for (int who = 0; who < 2; who++) {
            const struct gs_wire_target *target = &h->client[who].target;

            say_state(h, who, has_run(h, who) ? GS_STATE_RUNNING : 0, 4 * GIB,
                      sched_min(h->client[who].state.resident, target->budget));
        }
        pass_time(h, 1000 * MS);
    }
    assert_int_equal(sched_claimed(h->sched, device_uuid), SCHED_CLAIM_MET);
}

/* The room is there: no turn ends for it. */
static void claim_that_is_met_ends_no_turn(void **state)
{
    struct harness *h = *state;

    rest_beside_claim(h);
    say_state(h, 0, W, 4 * GIB, h->client[0].state.resident);
    for (int step = 0; step < 30; step++) {
        obey_target(h, 0);
        say_state(h, 1, 0, 4 * GIB,
                  sched_min(h->client[1].state.resident, h->client[1].target.budget));
        pass_time(h, 100 * MS);
    }
    assert_true(is_running(h, 0));
    assert_int_equal(sched_claimed(h->sched, device_uuid), SCHED_CLAIM_MET);
    assert_false(has_waiters(h, 0));
    say_state(h, 0, GS_STATE_RUNNING, 4 * GIB, 4 * GIB); /* it rests */
    pass_time(h, 5000 * MS);
    assert_true(has_run(h, 0));
    claim(h, 0);
}

/* A claim that is not met ends an idle program's turn. */
static void claim_that_is_not_met_ends_an_idle_turn(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 9 * GIB);
    say_state(h, 0, GS_STATE_RUNNING, 9 * GIB, 9 * GIB);
    claim(h, 3 * GIB);
    pass_time(h, 1000 * MS);
    assert_false(has_run(h, 0));
    say_state(h, 0, 0, 9 * GIB, 9 * GIB);
    pass_time(h, 1000 * MS);
    assert_true(h->client[0].target.budget <= 7 * GIB);
    claim(h, 0);
}

/* 0 has 3 GiB pinned and is on no device for now; 1 measures. Something else has 1 GiB. */
static void program_that_is_held_has_exactly_its_claim(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->free_bytes = 9 * GIB;
    run_with(h, 0, 4 * GIB);
    say_state(h, 1, 0, 0, 0);
    h->client[0].state.pinned = 3 * GIB;
    h->free_bytes = 6 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 1, 0, 0, 0);
    pass_time(h, 60000 * MS);
    say_state(h, 1, 0, 0, 0);
    pass_time(h, 60000 * MS);
    assert_true(device_of(h)->measure.external == 4 * GIB);
    before = device_of(h)->space.capacity;

    sched_away(h->client[0].client, true, h->now);
    claim(h, 3 * GIB);
    h->client[0].state.device_free = UINT64_MAX; /* it says nothing meanwhile */
    h->client[0].deaf = true;
    h->free_bytes = 9 * GIB;
    for (int i = 0; i < 10; i++) {
        say_state(h, 1, 0, 0, 0);
        pass_time(h, 10000 * MS);
    }
    assert_null(sched_check(h->sched));
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(device_of(h)->space.capacity == before);

    sched_away(h->client[0].client, false, h->now);
    assert_true(device_of(h)->space.capacity == before);
    claim(h, 0);
    assert_true(device_of(h)->space.capacity >= before);
    assert_null(sched_check(h->sched));
    assert_true(device_of(h)->books.sum.pinned == 3 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(claim_that_is_met_ends_no_turn),
        scenario(claim_that_is_not_met_ends_an_idle_turn),
        scenario(program_that_is_held_has_exactly_its_claim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
