/* SPDX-License-Identifier: Apache-2.0
 *
 * test_measure.c: what is on a device that nobody can move, by what programs say that the
 * driver calls free, and what programs are told of the capacity.
 */
#include "tests/lockd/harness.h"

static void lock_measured_device_external_and_reserve_counted(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 9 * GIB; /* 1 GiB is somebody's, nobody has movable memory yet */
    say(h, 0, 0, 0, 0);
    say(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(sched_device_reserve(device_of(h)) == 10 * GIB / 64);
    assert_true(device_of(h)->space.capacity == 9 * GIB - 10 * GIB / 64);
    assert_true(h->client[0].target.capacity == device_of(h)->space.capacity);
}

static void lock_limit_in_force_all_of_it_is_given(void **state)
{
    struct harness *h = *state;

    say(h, 0, 0, 0, 0);
    assert_true(h->client[0].target.capacity == h->total);
}

/* What a program is told of the capacity is exact a second later, however little it changed. */
static void lock_small_changes_are_told_a_little_later(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->free_bytes = 10 * GIB;
    say(h, 0, 0, 0, 0);
    say(h, 0, 0, 0, 0);
    before = h->client[0].target.capacity;
    h->free_bytes -= 16 * MIB;
    say(h, 0, 0, 0, 0);
    later(h, 10 * NS_PER_MS);
    assert_true(h->client[0].target.capacity == before);
    later(h, 3000 * NS_PER_MS);
    say(h, 0, 0, 0, 0); /* a rise is seen twice */
    later(h, 1500 * NS_PER_MS);
    assert_true(device_of(h)->measure.external == 16 * MIB);
    assert_true(h->client[0].target.capacity == before - 16 * MIB);
}

/* Pinned by their own word: no longer movable, taken from what others may have. */
static void lock_pinned_memory_is_taken_from_the_capacity(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->client[0].state.device_free = h->client[1].state.device_free = UINT64_MAX;
    runs(h, 0, 6 * GIB);
    say(h, 1, W, 7 * GIB, 0);
    before = h->client[1].target.capacity;
    say(h, 0, 0, 6 * GIB, 6 * GIB);
    h->client[0].state.pinned = 5 * GIB; /* it could not leave */
    say(h, 0, 0, GIB, GIB);
    later(h, 1500 * NS_PER_MS);
    assert_true(h->client[1].target.capacity == before - 5 * GIB);
    h->client[0].state.pinned = 0;
    say(h, 0, 0, GIB, GIB);
    later(h, 1500 * NS_PER_MS);
    assert_true(h->client[1].target.capacity == before);
    say(h, 0, 0, 0, 0);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget >= 7 * GIB);
}

/* A program that comes just after the capacity changed allocates by what it is told first, and
 * would wait for what it cannot have: the others hear of it a little later. */
static void lock_newcomer_is_told_the_capacity_of_that_moment(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    runs(h, 0, 6 * GIB);
    say(h, 1, 0, 0, 0); /* all are told */
    before = h->client[1].target.capacity;
    h->client[0].state.pinned = 5 * GIB;
    say(h, 0, 0, GIB, GIB);
    assert_true(h->client[1].target.capacity == before);
    say(h, 2, 0, 0, 0);
    assert_true(h->client[2].target.capacity == before - 5 * GIB);
    say(h, 2, W, GIB, 0); /* not what the others still have, in its next target */
    assert_true(h->client[2].target.capacity == before - 5 * GIB);
    assert_true(h->client[1].target.capacity == before);
    later(h, TELL_PAUSE);
    assert_true(h->client[1].target.capacity == before - 5 * GIB);
    h->client[0].state.pinned = 0;
    say(h, 0, 0, 6 * GIB, GIB);
    later(h, RISE_PAUSE);
    assert_true(h->client[2].target.capacity == before);
}

/* An idle program is to leave and finds no host memory: it says that what stays is pinned, and
 * has that much less that can move. Another one waits for all of it. */
static void lock_what_cannot_leave_is_nobodys_at_once(void **state)
{
    for (int contexts = 0; contexts < 2; contexts++) { /* less, and more than what stays */
        struct harness *h = *state;
        const uint64_t external = contexts ? 4 * GIB : 512 * MIB, stays = 2 * GIB;
        uint64_t before;

        h->free_bytes = 10 * GIB - external;
        say(h, 0, 0, 0, 0);
        say(h, 0, W, 3 * GIB, 0);
        h->free_bytes = 7 * GIB - external;
        say(h, 0, R, 3 * GIB, 3 * GIB);
        say(h, 0, 0, 3 * GIB, 3 * GIB);
        before = device_of(h)->space.capacity;
        say(h, 1, W, before, 0);
        assert_true(has_run(h, 1));
        assert_int_equal(h->client[0].target.budget, 0);
        h->client[0].state.pinned = stays;
        h->free_bytes = 10 * GIB - external - stays;
        say(h, 0, 0, 0, 0); /* a third of it left */
        if (!contexts)
            assert_true(device_of(h)->space.capacity <= before - stays + external);
        later(h, TELL_PAUSE);
        if (!contexts)
            assert_true(h->client[1].target.capacity <= before - stays + external);
        later(h, EXTERNAL_UNSAID + 300 * MS);
        assert_true(h->client[1].target.capacity == before - stays);
        assert_int_equal(condition_of(h, 1), GS_CONDITION_DOES_NOT_FIT);
        say(h, 1, W, before - stays, 0); /* its last call was refused */
        assert_true(has_run(h, 1));
        assert_true(h->client[1].target.budget >= before - stays);
        h->free_bytes = 0;
        say(h, 1, R, before - stays, before - stays);
        say(h, 0, W, GIB, 0); /* goes on as well */
        later(h, 2 * quantum_of(h));
        obeys(h, 1);
        obeys(h, 0);
        obeys(h, 1);
        obeys(h, 0);
        assert_true(is_running(h, 0));
        gone(h, 0);
        gone(h, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(lock_measured_device_external_and_reserve_counted),
        scenario(lock_limit_in_force_all_of_it_is_given),
        scenario(lock_small_changes_are_told_a_little_later),
        scenario(lock_pinned_memory_is_taken_from_the_capacity),
        scenario(lock_newcomer_is_told_the_capacity_of_that_moment),
        scenario(lock_what_cannot_leave_is_nobodys_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
