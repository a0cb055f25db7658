/* SPDX-License-Identifier: Apache-2.0
 *
 * test_set.c: settings that are changed while turns are under way.
 */
#include "tests/lockd/harness.h"

/* 0 has run for so much of a turn, 1 waits. Returns the whole length. */
static uint64_t turn_under_way(struct harness *h, double part)
{
    const struct sched_party *party;

    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    for (int i = 0; i < 6; i++) { /* until both had a turn */
        pass_time(h, 2 * quantum_of(h));
        for (int each = 0; each < 2; each++)
            obey_target(h, each), obey_target(h, each);
    }
    pass_time(h, MS);
    for (int i = 0; i < 1000 && !is_running(h, 0) && !is_running(h, 1); i++) {
        for (int each = 0; each < 2; each++)
            obey_target(h, each), obey_target(h, each);
        pass_time(h, MS);
    }
    party = sched_party_of(device_of(h)->turns.holders.next, turn.holder);
    assert_true(party->turn.started != 0);
    pass_time(h,
              (uint64_t)(part * (double)party->turn.length) - (h->now - party->turn.started));
    return party->turn.length;
}

static const struct sched_party *holder_of(const struct harness *h)
{
    assert_int_equal(device_of(h)->turns.holder_count, 1);
    return sched_party_of(device_of(h)->turns.holders.next, turn.holder);
}

static void change_settings(struct harness *h, const struct sched_settings *settings)
{
    sched_set(h->sched, settings, h->now);
    harness_take(h);
}

static void set_of_equal_values_leaves_a_turn_as_it_is(void **state)
{
    for (int policy = GS_POLICY_FAIR; policy < GS_POLICY_COUNT; policy++) {
        struct harness *h = *state;
        struct sched_settings settings = *sched_settings(h->sched);
        uint64_t until;

        if (policy == GS_POLICY_FIFO)
            continue; /* a turn has no end */
        settings.policy = (enum gs_policy)policy;
        change_settings(h, &settings);
        turn_under_way(h, 0.7);
        until = holder_of(h)->turn.until;
        for (int i = 0; i < 10; i++) {
            change_settings(h, &settings);
            assert_true(holder_of(h)->turn.until == until);
        }
        end_client(h, 0);
        end_client(h, 1);
    }
}

static void set_a_quantum_stretches_and_shortens_a_turn(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);
    uint64_t length;

    settings.quantum_ns = 1000 * MS;
    change_settings(h, &settings);
    length = turn_under_way(h, 0.5);
    settings.quantum_ns = 4000 * MS;
    change_settings(h, &settings);
    assert_true(holder_of(h)->turn.length == 4 * length);
    assert_true(holder_of(h)->turn.until == holder_of(h)->turn.started + 4 * length);
    settings.quantum_ns = 100 * MS; /* it has run for longer than that */
    change_settings(h, &settings);
    for (int i = 0; i < 2; i++)
        assert_false(has_run(h, i)); /* one stops, the other waits for that */
}

/* The debt from the long turns would be hundreds of short turns in a row. */
static void set_a_short_quantum_keeps_nobody_waiting_for_a_long_one(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);
    int waited[2] = {0};

    settings.quantum_ns = 60000 * MS;
    change_settings(h, &settings);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, 200 * MS);
    settings.quantum_ns = 100 * MS;
    change_settings(h, &settings);
    for (int step = 0; step < 600; step++) { /* a minute */
        for (int i = 0; i < 2; i++) {
            obey_target(h, i);
            obey_target(h, i);
        }
        pass_time(h, 100 * MS);
        for (int i = 0; i < 2; i++) {
            waited[i] = is_running(h, i) ? 0 : waited[i] + 1;
            assert_true(waited[i] < 20);
        }
    }
}

static void set_a_policy_begins_the_turn_anew(void **state)
{
    struct harness *h = *state;
    struct sched_settings settings = *sched_settings(h->sched);

    settings.policy = GS_POLICY_FIFO;
    settings.quantum_ns = 1000 * MS;
    change_settings(h, &settings);
    run_with(h, 0, 7 * GIB);
    say_state(h, 1, W, 7 * GIB, 0);
    pass_time(h, 60000 * MS);
    assert_true(has_run(h, 0));
    settings.policy = GS_POLICY_RR;
    change_settings(h, &settings);
    assert_true(has_run(h, 0));
    pass_time(h, 999 * MS);
    assert_true(has_run(h, 0));
    pass_time(h, 2 * MS);
    assert_false(has_run(h, 0));
    settings.policy = GS_POLICY_FIFO;
    change_settings(h, &settings);
    obey_target(h, 0);
    obey_target(h, 1);
    obey_target(h, 0);
    obey_target(h, 1);
    assert_true(is_running(h, 1));
    pass_time(h, 60000 * MS);
    assert_true(has_run(h, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(set_of_equal_values_leaves_a_turn_as_it_is),
        scenario(set_a_quantum_stretches_and_shortens_a_turn),
        scenario(set_a_short_quantum_keeps_nobody_waiting_for_a_long_one),
        scenario(set_a_policy_begins_the_turn_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
