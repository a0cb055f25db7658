/* SPDX-License-Identifier: Apache-2.0
 *
 * test_users.c: a share of the device belongs to a user. Client 0 is a program of one user, the
 * others are programs of another user; no two fit. Turns of 1 s.
 */
#include "tests/lockd/sched/bursts.h"

#define LARGE (6 * GIB)
#define STEP  (250 * MS)

static void use_short_turns(struct harness *h)
{
    struct sched_settings settings = *sched_settings(h->sched);

    settings.quantum_ns = SECOND;
    sched_set(h->sched, &settings, h->now);
}

/* How long client 0 and all others together ran, steps. */
struct users {
    uint64_t one, many;
};

static struct users share_device(struct harness *h, int others, uint32_t weight, int rounds)
{
    struct users ran = {0};

    use_short_turns(h);
    for (int who = 0; who <= others; who++)
        begin_of_user(h, who, who == 0 ? 1 : 2, LARGE);
    change_weight(h, 0, weight);
    for (int step = 0; step < rounds * 8 * (others + 1); step++) {
        for (int who = 0; who <= others; who++) {
            if (!has_run(h, who) && !is_running(h, who) && h->client[who].state.resident == 0)
                continue; /* it has nothing to answer */
            obey_target(h, who);
            obey_target(h, who);
        }
        pass_time(h, STEP);
        if (step < 16 * (others + 1))
            continue; /* all of them are new */
        ran.one += is_running(h, 0);
        for (int who = 1; who <= others; who++)
            ran.many += is_running(h, who);
    }
    return ran;
}

/* Jain's index of both, by weight. */
static double fairness(struct users ran, double weight)
{
    const double one = (double)ran.one / weight, many = (double)ran.many;

    return (one + many) * (one + many) / (2 * (one * one + many * many));
}

static void users_one_program_beside_nine_has_half(void **state)
{
    assert_true(fairness(share_device(*state, 9, GS_WEIGHT_DEFAULT, 20), 1) >= 0.99);
}

static void users_one_program_beside_a_hundred_has_half(void **state)
{
    assert_true(fairness(share_device(*state, 100, GS_WEIGHT_DEFAULT, 20), 1) >= 0.99);
}

static void users_one_program_of_double_weight_has_two_thirds(void **state)
{
    assert_true(fairness(share_device(*state, 9, 2 * GS_WEIGHT_DEFAULT, 20), 2) >= 0.99);
}

/* A step of a program with bursts that says nothing while it rests, or waits without memory. */
static void step_quietly(struct harness *h, int who, struct bursts *its)
{
    if (its->rests > 1 && !has_run(h, who) && h->client[who].state.resident == 0)
        its->rests--;
    else if (its->rests > 0 || has_run(h, who) || h->client[who].state.resident != 0 ||
             h->client[who].state.flags != W)
        step_bursts(h, who, its);
}

/* Programs that go first: each has bursts of 0.5 s, and rests so shortly that those of either user
 * want more than half of the device. A training of a third user keeps its floor. */
static struct users share_first(struct harness *h, int others, int seconds)
{
    struct bursts its[HARNESS_CLIENTS] = {0};
    struct users ran = {0};
    const int training = others + 1;

    begin_of_user(h, training, 3, LARGE);
    for (int who = 0; who <= others; who++) {
        begin_of_user(h, who, who == 0 ? 1 : 2, LARGE);
        its[who] = (struct bursts){.burst = 25, .rest = who == 0 ? 5 : 5 * others};
    }
    for (int step = 0; step < seconds * 50; step++) {
        step_training(h, training);
        for (int who = 0; who <= others; who++)
            step_quietly(h, who, &its[who]);
        pass_time(h, 20 * MS);
        if (step < seconds * 10)
            continue;
        ran.one += is_running(h, 0) && its[0].rests == 0;
        for (int who = 1; who <= others; who++)
            ran.many += is_running(h, who) && its[who].rests == 0;
    }
    return ran;
}

static void users_going_first_one_beside_nine_has_as_much(void **state)
{
    const struct users ran = share_first(*state, 9, 600);

    assert_true(fairness(ran, 1) >= 0.99);
}

static void users_going_first_one_beside_a_hundred_has_as_much(void **state)
{
    const struct users ran = share_first(*state, 99, 600);

    assert_true(fairness(ran, 1) >= 0.99);
}

/* Nor have new programs that never rest, beside one of another user, when all are old. */
static void users_new_program_beside_many_has_half_in_the_end(void **state)
{
    struct harness *h = *state;
    int ran = 0;

    for (int who = 0; who < 10; who++)
        begin_of_user(h, who, who == 0 ? 1 : 2, LARGE);
    for (int step = 0; step < 1200 * 50; step++) {
        for (int who = 0; who < 10; who++)
            step_training(h, who);
        pass_time(h, 20 * MS);
        ran += step >= 600 * 50 && is_running(h, 0);
    }
    assert_in_range(ran, 600 * 50 * 45 / 100, 600 * 50 * 52 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(users_one_program_beside_nine_has_half),
        scenario(users_one_program_beside_a_hundred_has_half),
        scenario(users_one_program_of_double_weight_has_two_thirds),
        scenario(users_going_first_one_beside_nine_has_as_much),
        scenario(users_going_first_one_beside_a_hundred_has_as_much),
        scenario(users_new_program_beside_many_has_half_in_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
