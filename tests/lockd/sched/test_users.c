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
    sched_weight(h->client[0].client, weight, h->now);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(users_one_program_beside_nine_has_half),
        scenario(users_one_program_beside_a_hundred_has_half),
        scenario(users_one_program_of_double_weight_has_two_thirds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
