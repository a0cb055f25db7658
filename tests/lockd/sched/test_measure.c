/* SPDX-License-Identifier: Apache-2.0
 *
 * test_measure.c: what is on a device that nobody can move, by what programs say that the
 * driver calls free, and what programs are told of the capacity.
 */
#include "tests/lockd/harness.h"

static void measured_device_external_and_reserve_counted(void **state)
{
    struct harness *h = *state;

    h->free_bytes = 9 * GIB; /* 1 GiB is somebody's, nobody has movable memory yet */
    say_state(h, 0, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(sched_device_reserve(device_of(h)) == 10 * GIB / 64);
    assert_true(device_of(h)->space.capacity == 9 * GIB - 10 * GIB / 64);
    assert_true(h->client[0].target.capacity == device_of(h)->space.capacity);
}

static void limit_in_force_all_of_it_is_given(void **state)
{
    struct harness *h = *state;

    say_state(h, 0, 0, 0, 0);
    assert_true(h->client[0].target.capacity == h->total);
}

/* The limit is below the card's size: what is left beyond it is the reserve, as far as it goes. */
static void limit_near_the_cards_size_is_no_more_than_there_is(void **state)
{
    struct harness *h = *state;
    const uint64_t reserve = 10 * GIB / 64;

    h->free_bytes = 20 * GIB;
    say_state(h, 0, 0, 0, 0);
    assert_true(h->client[0].target.capacity == 10 * GIB);
    h->free_bytes = 10 * GIB + 4 * SHARE_STEP;
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->space.capacity == 10 * GIB - (reserve - 4 * SHARE_STEP));
    h->free_bytes = 9 * GIB;
    say_state(h, 0, 0, 0, 0);
    pass_time(h, SILENT);
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->space.capacity == 9 * GIB - reserve);
}

/* The capacity that a program is told is exact a second later, however little it changed. */
static void small_changes_are_told_a_little_later(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->free_bytes = 10 * GIB;
    say_state(h, 0, 0, 0, 0);
    say_state(h, 0, 0, 0, 0);
    before = h->client[0].target.capacity;
    h->free_bytes -= 16 * MIB;
    say_state(h, 0, 0, 0, 0);
    pass_time(h, 10 * NS_PER_MS);
    assert_true(h->client[0].target.capacity == before);
    pass_time(h, 3000 * NS_PER_MS);
    say_state(h, 0, 0, 0, 0); /* a rise is seen twice */
    pass_time(h, 1500 * NS_PER_MS);
    assert_true(device_of(h)->measure.external == 16 * MIB);
    assert_true(h->client[0].target.capacity == before - 16 * MIB);
}

/* Pinned by their own word: no longer movable, taken from what others may have. */
static void pinned_memory_is_taken_from_the_capacity(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->client[0].state.device_free = h->client[1].state.device_free = UINT64_MAX;
    run_with(h, 0, 6 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    before = h->client[1].target.capacity;
    say_state(h, 0, 0, 6 * GIB, 6 * GIB);
    h->client[0].state.pinned = 5 * GIB; /* it could not leave */
    say_state(h, 0, 0, GIB, GIB);
    pass_time(h, 1500 * NS_PER_MS);
    assert_true(h->client[1].target.capacity == before - 5 * GIB);
    h->client[0].state.pinned = 0;
    say_state(h, 0, 0, GIB, GIB);
    pass_time(h, 1500 * NS_PER_MS);
    assert_true(h->client[1].target.capacity == before);
    say_state(h, 0, 0, 0, 0);
    assert_true(has_run(h, 1));
    assert_true(h->client[1].target.budget >= 7 * GIB);
}

/* A program that comes just after the capacity changed allocates by what it is told first, and
 * would wait for what it cannot have: the others hear of it a little later. */
static void newcomer_is_told_the_capacity_of_that_moment(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    run_with(h, 0, 6 * GIB);
    say_state(h, 1, 0, 0, 0); /* all are told */
    before = h->client[1].target.capacity;
    h->client[0].state.pinned = 5 * GIB;
    say_state(h, 0, 0, GIB, GIB);
    assert_true(h->client[1].target.capacity == before);
    say_state(h, 2, 0, 0, 0);
    assert_true(h->client[2].target.capacity == before - 5 * GIB);
    say_state(h, 2, W, GIB, 0); /* not what the others still have, in its next target */
    assert_true(h->client[2].target.capacity == before - 5 * GIB);
    assert_true(h->client[1].target.capacity == before);
    pass_time(h, TELL_PAUSE);
    assert_true(h->client[1].target.capacity == before - 5 * GIB);
    h->client[0].state.pinned = 0;
    say_state(h, 0, 0, 6 * GIB, GIB);
    pass_time(h, REPEAT / 2);
    assert_true(h->client[2].target.capacity == before);
}

/* An idle program is to leave and finds no host memory: it says that what stays is pinned, and
 * has that much less that can move. Another one waits for all of it. */
static void memory_that_cannot_leave_is_nobodys_at_once(void **state)
{
    for (int contexts = 0; contexts < 2; contexts++) { /* less, and more than what stays */
        struct harness *h = *state;
        const uint64_t external = contexts ? 4 * GIB : 512 * MIB, stays = 2 * GIB;
        uint64_t before;

        h->free_bytes = 10 * GIB - external;
        say_state(h, 0, 0, 0, 0);
        say_state(h, 0, W, 3 * GIB, 0);
        h->free_bytes = 7 * GIB - external;
        say_state(h, 0, R, 3 * GIB, 3 * GIB);
        say_state(h, 0, 0, 3 * GIB, 3 * GIB);
        before = device_of(h)->space.capacity;
        say_state(h, 1, W, before, 0);
        assert_true(has_run(h, 1));
        assert_int_equal(h->client[0].target.budget, 0);
        h->client[0].state.pinned = stays;
        h->free_bytes = 10 * GIB - external - stays;
        say_state(h, 0, 0, 0, 0); /* a third of it left */
        if (!contexts)
            assert_true(device_of(h)->space.capacity <= before - stays + external);
        pass_time(h, TELL_PAUSE);
        if (!contexts)
            assert_true(h->client[1].target.capacity <= before - stays + external);
        pass_time(h, SILENT + 300 * MS);
        assert_true(h->client[1].target.capacity == before - stays);
        assert_int_equal(condition_of(h, 1), GS_CONDITION_DOES_NOT_FIT);
        say_state(h, 1, W, before - stays, 0); /* its last call was refused */
        assert_true(has_run(h, 1));
        assert_true(h->client[1].target.budget >= before - stays);
        h->free_bytes = 0;
        say_state(h, 1, R, before - stays, before - stays);
        say_state(h, 0, W, GIB, 0); /* goes on as well */
        for (int i = 0; i < 300 && !is_running(h, 0); i++) {
            pass_time(h, 200 * MS);
            obey_target(h, 1);
            obey_target(h, 0);
        }
        assert_true(is_running(h, 0));
        end_client(h, 0);
        end_client(h, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(measured_device_external_and_reserve_counted),
        scenario(limit_in_force_all_of_it_is_given),
        scenario(limit_near_the_cards_size_is_no_more_than_there_is),
        scenario(small_changes_are_told_a_little_later),
        scenario(pinned_memory_is_taken_from_the_capacity),
        scenario(newcomer_is_told_the_capacity_of_that_moment),
        scenario(memory_that_cannot_leave_is_nobodys_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
