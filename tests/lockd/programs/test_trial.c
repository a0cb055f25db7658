/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trial.c: random jobs of ranks (trial_world.c) come, die, and the daemon is restarted; in the
 * end all must be done in bounded time.
 *
 * GPUSHARE_TEST_RUNS=N: so many random runs; GPUSHARE_TEST_SEED=N: the first of them.
 */
#include "tests/lockd/programs/trial_world.h"

#include <stdlib.h>

struct figures {
    uint64_t events, worst; /* worst: time of a run in thousandths of its work one by one */
    unsigned trials, beyond;
};

enum kind { ANY, LATE, GROWN, GROUPED, UNAWARE };

/* Returns whether all jobs came to their end in time. */
static bool run_world(struct trial_world *world, uint64_t seed, struct figures *figures)
{
    const uint64_t began = world->now, bound = began + 8 * world->work + 600000 * NS_PER_MS;

    while (!trial_world_is_done(world) && world->now < bound) {
        trial_world_step(world);
        world->now += TRIAL_STEP;
    }
    figures->events += world->events;
    figures->trials += world->said;
    figures->beyond += world->beyond;
    figures->worst = sched_max(figures->worst,
                               (world->now - began) * 1000 / (world->work + 20000 * NS_PER_MS));
    if (trial_world_is_done(world))
        return true;
    trial_world_print(world);
    print_error("seed %llu: not done after %llu s (work of %llu s)\n", (unsigned long long)seed,
                (unsigned long long)((world->now - began) / 1000000000),
                (unsigned long long)(world->work / 1000000000));
    return false;
}

static bool run_one(uint64_t seed, enum kind kind, struct figures *figures)
{
    static const enum gs_policy policies[] = {GS_POLICY_FAIR, GS_POLICY_FAIR, GS_POLICY_RR,
                                              GS_POLICY_PRIORITY, GS_POLICY_FIFO};
    struct trial_world *world = calloc(1, sizeof *world);
    bool done;

    assert_non_null(world);
    world->random = seed * 0x9e3779b97f4a7c15u + 1;
    world->late = kind != ANY;
    world->grown = kind == GROWN;
    world->grouped = kind == GROUPED;
    world->unaware = kind == UNAWARE;
    for (int i = 0; i < 8; i++)
        trial_world_random(world, 1);
    world->now = 1000 * NS_PER_MS;
    world->devices = world->grown ? 2 + (unsigned)trial_world_random(world, 2)
                                  : 1 + (unsigned)trial_world_random(world, TRIAL_DEVICES);
    world->jobs = world->grown ? 2 + (unsigned)trial_world_random(world, 2)
                               : 1 + (unsigned)trial_world_random(world, TRIAL_JOBS);
    world->policy = policies[trial_world_random(world, sizeof policies / sizeof policies[0])];
    world->quantum = (uint64_t[]){LOCKD_AUTO, 200 * NS_PER_MS,
                                  1000 * NS_PER_MS}[trial_world_random(world, 3)];
    world->restart_at = trial_world_random(world, 3) == 0
                            ? world->now + trial_world_random(world, 20000) * NS_PER_MS
                            : LOCKD_NEVER;
    if (world->grown)
        world->grow_at = world->now + (45000 + trial_world_random(world, 20000)) * NS_PER_MS;
    trial_world_begin(world);
    for (unsigned j = 0; j < world->jobs; j++)
        trial_world_add_job(world, j);
    done = run_world(world, seed, figures);
    kin_deinit(&world->kin);
    sched_free(world->sched);
    free(world);
    return done;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void run_many(enum kind kind)
{
    const uint64_t runs = from_environment("GPUSHARE_TEST_RUNS", 300);
    const uint64_t seed = from_environment("GPUSHARE_TEST_SEED", 1);
    struct figures figures = {0};
    unsigned blocked = 0;

    for (uint64_t i = 0; i < runs; i++)
        blocked += !run_one(seed + i, kind, &figures);
    print_message(
        "%llu runs, %llu messages, %u remarks of trials, memory went %u times beyond the "
        "card; at most %.2f of the time of the jobs one after the other, and 20 s\n",
        (unsigned long long)runs, (unsigned long long)figures.events, figures.trials,
        figures.beyond, (double)figures.worst / 1000);
    if (blocked != 0)
        fail_msg("%u runs did not come to their end", blocked);
}

static void trial_random_jobs_all_end(void **state)
{
    (void)state;
    run_many(ANY);
}

/* Ranks come one after the other and compute meanwhile; those of several users; their memory
 * grows. */
static void trial_random_late_ranks_all_end(void **state)
{
    (void)state;
    run_many(LATE);
}

/* Jobs that have formed and fit together grow at one moment, each on a device where the other one
 * has memory that it cannot leave. */
static void trial_random_grown_jobs_all_end(void **state)
{
    (void)state;
    run_many(GROWN);
}

/* Jobs that name groups are not forming. */
static void trial_random_late_groups_all_end(void **state)
{
    (void)state;
    run_many(GROUPED);
}

/* The daemon learns of jobs whose ranks are in kernels that wait for each other. */
static void trial_random_unaware_ranks_all_end(void **state)
{
    (void)state;
    run_many(UNAWARE);
}

/* Trials had shown two jobs to be one, which was too large to run together; what trials had shown
 * was never forgotten. */
static void trial_random_what_once_failed(void **state)
{
    struct figures figures = {0};

    (void)state;
    assert_true(run_one(21299, ANY, &figures));
    /* a trial that helped tore a job apart of which the daemon had learned meanwhile */
    assert_true(run_one(1713, UNAWARE, &figures));
    /* a trial had added a program to a job with evidence, which was too large with it */
    assert_true(run_one(5353, UNAWARE, &figures));
    assert_true(run_one(20068, UNAWARE, &figures));
    /* of two jobs with memory beyond the card now one was asked to stop and now the other one */
    assert_true(run_one(1610, GROUPED, &figures));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trial_random_jobs_all_end),
        cmocka_unit_test(trial_random_late_ranks_all_end),
        cmocka_unit_test(trial_random_grown_jobs_all_end),
        cmocka_unit_test(trial_random_late_groups_all_end),
        cmocka_unit_test(trial_random_unaware_ranks_all_end),
        cmocka_unit_test(trial_random_what_once_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
