/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lies.c: programs that say what cannot be. Their words on the device, or on themselves,
 * cost the others nothing, or no more than they were ever given.
 */
#include "tests/lockd/harness.h"

static void lies_small_total_bounds_only_the_program_that_says_it(void **state)
{
    struct harness *h = *state;

    run_with(h, 0, 4 * GIB);
    run_with(h, 1, 4 * GIB);
    says_total(h, 7, 1);
    assert_true(device_of(h)->space.capacity == 10 * GIB);
    assert_true(h->client[7].target.capacity == 1);
    pass_time(h, 100 * MS);
    assert_true(has_run(h, 0) && has_run(h, 1));
    assert_true(h->client[0].target.budget >= 4 * GIB);
    assert_true(h->client[0].target.capacity == 10 * GIB);
}

/* On a device that is measured, a program that says it is larger makes it no larger. */
static void lies_large_total_gives_nobody_more(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->total = 80 * GIB;
    h->free_bytes = 79 * GIB;
    say_state(h, 0, 0, 0, 0);
    before = device_of(h)->space.capacity;
    assert_true(before == 78 * GIB);
    says_total(h, 7, 1ull << 48);
    assert_true(device_of(h)->space.capacity == before);
    pass_time(h, 2000 * MS);
    say_state(h, 0, 0, 0, 0);
    pass_time(h, 2000 * MS);
    say_state(h, 0, 0, 0, 0);
    assert_true(device_of(h)->space.capacity == before);
    end_client(h, 7);
    assert_true(device_of(h)->measure.total == 80 * GIB);
    assert_true(device_of(h)->space.capacity == before);
}

/* GPUSHARE_DEVICE_LIMIT in one of two: nothing changes with who reports, so it comes to rest
 * (harness_take has patience for 100 targets). */
static void lies_two_totals_come_to_rest(void **state)
{
    struct harness *h = *state;
    uint32_t targets;

    h->free_bytes = 9 * GIB;
    say_state(h, 0, W, 3 * GIB, 0);
    h->client[1].state.uuid[0] = h->client[0].state.uuid[0];
    h->free_bytes = UINT64_MAX;
    says_total(h, 1, 4 * GIB);
    targets = h->client[0].targets + h->client[1].targets;
    for (int i = 0; i < 100; i++) {
        h->free_bytes = 9 * GIB;
        say_state(h, 0, W, 3 * GIB, 0);
        h->free_bytes = UINT64_MAX;
        says_total(h, 1, 4 * GIB);
        pass_time(h, 10 * MS);
    }
    assert_true(h->client[0].targets + h->client[1].targets <= targets + 6);
    assert_true(device_of(h)->measure.total == 10 * GIB);
    assert_true(device_of(h)->measure.external == GIB);
    assert_true(h->client[1].target.capacity == 4 * GIB);
    end_client(h, 0); /* who knows how large it really is */
    assert_true(device_of(h)->measure.total == 4 * GIB);
    assert_true(h->client[1].target.capacity == 4 * GIB);
    says_total(h, 1, 4 * GIB);
}

static void lies_pinned_counts_up_to_what_it_was_given(void **state)
{
    struct harness *h = *state;

    say_state(h, 7, 0, 0, 0);
    h->client[7].state.pinned = 1ull << 48;
    say_state(h, 7, 0, 0, 0);
    assert_true(device_of(h)->space.capacity + h->client[7].target.budget >= 10 * GIB);
    say_state(h, 0, W, 3 * GIB, 0);
    say_state(h, 1, W, 3 * GIB, 0);
    pass_time(h, 2000 * MS);
    say_state(h, 7, 0, 0, 0);
    pass_time(h, 2000 * MS);
    assert_true(device_of(h)->space.capacity >= 2 * GIB);
    assert_true(has_run(h, 0) || has_run(h, 1));
}

/* Whatever it says twice is believed, until anybody else measures: that is at once, since all
 * are told of the capacity. */
static void lies_nothing_is_free_the_others_put_it_right(void **state)
{
    struct harness *h = *state;
    uint64_t before;

    h->free_bytes = 9 * GIB;
    say_state(h, 0, 0, 0, 0);
    run_with(h, 0, 3 * GIB);
    h->free_bytes = 6 * GIB;
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    pass_time(h, 1100 * MS);
    say_state(h, 0, R, 3 * GIB, 3 * GIB);
    say_state(h, 7, 0, 0, 0);
    assert_true(device_of(h)->measure.external == GIB);
    before = device_of(h)->space.capacity;
    for (int i = 0; i < 5; i++) {
        pass_time(h, 1100 * MS);
        h->client[7].state.device_free = 0;
        harness_report(h, &h->client[7]);
        harness_take(h);
        assert_true(device_of(h)->space.capacity == before);
        assert_true(has_run(h, 0) && h->client[0].target.budget >= 3 * GIB);
    }
}

static void says_resident(struct harness *h, int who, uint64_t bytes)
{
    h->client[who].state.device_free = UINT64_MAX;
    h->client[who].state.resident = h->client[who].state.demand = bytes;
    harness_report(h, &h->client[who]);
    harness_take(h);
}

/* A program that is new and idle says that it came with more than there is; on a device that is
 * measured or not. Memory that nobody saw before it came is not there. */
static void lies_resident_of_a_newcomer_counts_as_far_as_it_was_seen(void **state)
{
    for (int measured = 0; measured < 2; measured++) {
        struct harness *h = *state;

        pass_time(h, RETURN_WINDOW);
        h->free_bytes = measured ? 9 * GIB : UINT64_MAX;
        say_state(h, 0, 0, 0, 0);
        say_state(h, 0, 0, 0, 0);
        h->client[7] =
            (struct harness_client){.client = sched_client_add(h->sched, &h->client[7]),
                                    .state = {.device_total = h->total, .target_seq = 5}};
        says_resident(h, 7, 1ull << 48);
        say_state(h, 0, W, 8 * GIB, 0);
        pass_time(h, 12000 * MS);
        assert_true(has_run(h, 0));
        assert_true(h->client[0].target.budget >= 8 * GIB);
        end_client(h, 0);
        end_client(h, 7);
    }
}

/* ... or a program that has been there for a while, beside a program that runs. */
static void lies_resident_counts_up_to_what_it_was_given(void **state)
{
    struct harness *h = *state;

    say_state(h, 7, 0, GIB, 0);
    run_with(h, 0, 4 * GIB);
    says_resident(h, 7, 1ull << 48);
    for (int i = 0; i < 100; i++) {
        pass_time(h, 1000 * MS);
        assert_true(has_run(h, 0));
        assert_true(h->client[0].target.budget >= 4 * GIB);
    }
    assert_true(device_of(h)->books.sum.hold <= 10 * GIB);
}

/* Four that fit run beside a program that is short of everything all the time, with nothing
 * missing, or every other second, and then has more or less than before. */
static void lies_short_others_run_on_after_a_while(void **state)
{
    for (int steady = 0; steady < 2; steady++) {
        struct harness *h = *state;
        int ran[HARNESS_CLIENTS] = {0};

        run_with(h, 7, MIB);
        for (int who = 0; who < 4; who++)
            run_with(h, who, 2 * GIB);
        h->client[7].state.short_bytes = 1ull << 48;
        for (int second = 0; second < 4200; second++) {
            const bool is_short = steady || second % 2;
            const uint64_t has = MIB + (steady || second % 4 < 2 ? 0 : 400 * MIB);

            say_state(h, 7, R | (is_short ? GS_STATE_SHORT : 0), has, has);
            for (int step = 0; step < 10; step++) {
                for (int who = 0; who < 4; who++) {
                    obey_target(h, who);
                    obey_target(h, who);
                }
                pass_time(h, 100 * MS);
            }
            for (int who = 0; who < 4 && second >= 600; who++)
                ran[who] += is_running(h, who);
        }
        for (int who = 0; who < 4; who++)
            assert_true(ran[who] >= 3240); /* nine tenths of an hour */
        for (int who = 0; who < 4; who++)
            end_client(h, who);
        end_client(h, 7);
    }
}

/* Seven that run beside a program that says something else each millisecond: of its demand, of
 * whether it has something to run, of what it has pinned. The others are not kept busy with
 * that. */
static void lies_that_change_all_the_time_keep_nobody_busy(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        struct harness *h = *state;
        uint32_t targets;

        for (int who = 0; who < 7; who++)
            run_with(h, who, GIB);
        say_state(h, 7, 0, kind == 1 ? 8 * GIB : GIB, 0);
        pass_time(h, 1000 * MS);
        targets = h->client[0].targets;
        for (int ms = 0; ms < 2000; ms++) {
            const bool odd = ms % 2 != 0;

            h->client[7].state.pinned = kind == 2 && odd ? 4 * GIB : 0;
            say_state(h, 7, kind == 1 && odd ? W : 0,
                      kind == 1 || (kind == 0 && odd) ? 8 * GIB : GIB, 0);
            pass_time(h, MS);
        }
        assert_true(h->client[0].targets - targets <= 100);
        for (int who = 0; who < 8; who++)
            end_client(h, who);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(lies_small_total_bounds_only_the_program_that_says_it),
        scenario(lies_large_total_gives_nobody_more),
        scenario(lies_two_totals_come_to_rest),
        scenario(lies_nothing_is_free_the_others_put_it_right),
        scenario(lies_resident_of_a_newcomer_counts_as_far_as_it_was_seen),
        scenario(lies_resident_counts_up_to_what_it_was_given),
        scenario(lies_short_others_run_on_after_a_while),
        scenario(lies_that_change_all_the_time_keep_nobody_busy),
        scenario(lies_pinned_counts_up_to_what_it_was_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
