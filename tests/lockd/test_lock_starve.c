/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lock_starve.c: programs that do not come to run, do not answer or do not leave, and what
 * the others get beside them in an hour or less.
 */
#include "tests/lockd/harness.h"

#define LARGE (6 * GIB) /* no two of them fit */

/* Does what its newest target says, in one step. */
static void obey(struct harness *h, int who)
{
    const struct harness_client *c = &h->client[who];
    const uint64_t demand = c->state.demand, budget = c->target.budget;

    if (!has_run(h, who))
        say(h, who, W, demand, lockd_min(c->state.resident, budget));
    else
        say(h, who, budget >= demand ? R : W, demand,
            lockd_min(demand, lockd_max(budget, c->state.resident)));
}

static bool is_running(const struct harness *h, int who)
{
    return (h->client[who].state.flags & GS_STATE_RUNNING) != 0;
}

static void set_policy(struct harness *h, enum gs_policy policy)
{
    struct lockd_settings settings = *lockd_lock_settings(h->lock);

    settings.policy = policy;
    lockd_lock_set(h->lock, &settings, h->now);
    harness_take(h);
}

/* 1 to 3 obey for so many seconds; 0 brings in 1 GiB of 6 and never runs. Returns for how long
 * the one that ran least did, ms. */
static uint64_t beside_one_that_never_runs(struct harness *h, uint64_t seconds)
{
    uint64_t ran[4] = {0}, least = UINT64_MAX;

    for (int i = 0; i < 4; i++)
        say(h, i, W, LARGE, 0);
    for (uint64_t step = 0; step < seconds * 10; step++) {
        say(h, 0, W | (has_run(h, 0) ? GS_STATE_MOVING : 0), LARGE,
            lockd_min(h->client[0].target.budget, GIB));
        for (int i = 1; i < 4; i++) {
            obey(h, i);
            obey(h, i);
            ran[i] += is_running(h, i) ? 100 : 0;
        }
        later(h, 100 * MS);
    }
    for (int i = 1; i < 4; i++)
        least = lockd_min(least, ran[i]);
    return least;
}

static void lock_fair_party_that_never_runs_others_get_three_quarters(void **state)
{
    assert_true(beside_one_that_never_runs(*state, 600) >= 600 * 1000 / 4);
}

static void lock_rr_party_that_never_runs_others_get_a_third(void **state)
{
    set_policy(*state, GS_POLICY_RR);
    assert_true(beside_one_that_never_runs(*state, 600) >= 600 * 1000 / 9);
}

static void lock_never_opens_its_gate_is_skipped_while_others_come_and_go(void **state)
{
    struct harness *h = *state;
    int ran = 0;

    runs(h, 5, 7 * GIB);
    say(h, 0, W, LARGE, 0);
    say(h, 1, W, LARGE, 0);
    gone(h, 5);
    for (int step = 0; step < 600; step++) {
        struct harness_client *c = &h->client[2];

        say(h, 0, W, LARGE, 0);
        say(h, 2, W, GIB, c->state.resident);
        obey(h, 2);
        obey(h, 2);
        later(h, 500 * MS);
        say(h, 2, has_run(h, 2) ? c->state.flags & GS_STATE_RUNNING : 0, GIB,
            c->state.resident);
        later(h, 500 * MS);
        obey(h, 1);
        ran += is_running(h, 1);
    }
    assert_true(ran >= 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scenario(lock_fair_party_that_never_runs_others_get_three_quarters),
        scenario(lock_rr_party_that_never_runs_others_get_a_third),
        scenario(lock_never_opens_its_gate_is_skipped_while_others_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
