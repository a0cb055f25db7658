/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trial.c: random jobs of ranks on one to four devices, under a virtual clock. Each rank
 * computes, then enters a collective that ends only when all ranks of its job are in it and run.
 * Ranks with evidence *spin* there: they cannot stop before it ends, as NCCL's kernels. Ranks
 * without evidence can stop, but get no further before all run at the same time. Jobs come, die,
 * and the daemon is restarted; in the end all must be done in bounded time.
 *
 * GPUSHARE_TEST_RUNS=N: so many random runs; GPUSHARE_TEST_SEED=N: the first of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockd/kin/trial.h"
#include "lockd/check/check.h"
#include "lockd/sched/constants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES  4
#define JOBS     6
#define RANKS    (JOBS * DEVICES)
#define STEP     (5 * NS_PER_MS)
#define TOTAL    (10 * GIB)
#define IN_STEP  (512 * MIB) /* what is moved in a step: 100 GB/s */
#define STUCK_AT (2000 * NS_PER_MS)

struct side {
    uint64_t demand, resident, budget;
    uint32_t seq, flags;
    bool used, fresh; /* fresh: a target came that is not answered */
};

struct rank {
    struct job *job;
    struct sched_client *client; /* NULL: not there */
    struct kin_program *program;
    struct side side[DEVICES];
    bool running, collective, ended;
    uint32_t round;
    uint64_t left; /* ns of the computation at hand */
    uint64_t calls, stop_since;
    uint64_t back_at; /* it connects then; LOCKD_NEVER */
};

struct job {
    struct rank rank[DEVICES];
    unsigned ranks, number;
    uint32_t rounds;
    uint64_t compute, dies_at;
    bool evidence, dead;
};

struct world {
    struct sched *sched;
    struct kin kin;
    struct job job[JOBS];
    unsigned jobs, devices, said;
    uint64_t now, random, work, events, restart_at;
    enum gs_policy policy;
    uint64_t quantum;
};

static uint64_t some(struct world *world, uint64_t below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return below == 0 ? 0 : (world->random >> 11) % below;
}

static void count_remark(void *context, void *owner, const char *text)
{
    struct world *world = context;

    (void)owner;
    assert_true(strlen(text) < 192);
    world->said++;
}

static void new_daemon(struct world *world)
{
    const struct sched_settings settings = {.quantum_ns = world->quantum,
                                            .idle_ns = LOCKD_AUTO,
                                            .reserve = LOCKD_AUTO,
                                            .policy = world->policy};

    world->sched = sched_new(&settings, world->now);
    assert_non_null(world->sched);
    kin_init(&world->kin, world->sched, count_remark, world);
}

/* --- a rank --- */

static bool all_have_come(const struct job *job)
{
    for (unsigned i = 0; i < job->ranks; i++) {
        if (job->rank[i].round == 0 && !job->rank[i].collective &&
            job->rank[i].client == NULL && !job->rank[i].ended)
            return false;
    }
    return true;
}

static void report(struct world *world, struct rank *rank, unsigned device)
{
    struct side *side = &rank->side[device];
    const bool wants = all_have_come(rank->job);
    struct gs_wire_state state = {.uuid = {(uint8_t)(device + 1)},
                                  .target_seq = side->seq,
                                  .device_total = TOTAL,
                                  .device_free = UINT64_MAX,
                                  .demand = side->demand,
                                  .resident = side->resident,
                                  .calls = rank->calls};
    const bool may = (side->flags & GS_TARGET_RUN) != 0;

    state.flags =
        (wants ? GS_STATE_WANT : 0) | (rank->running ? GS_STATE_RUNNING : 0) |
        (rank->stop_since != 0 && world->now - rank->stop_since >= STUCK_AT ? GS_STATE_STUCK
                                                                            : 0) |
        (!rank->running && may && side->resident < side->demand ? GS_STATE_MOVING : 0);
    side->fresh = false;
    world->events++;
    assert_int_equal(sched_state(world->sched, rank->client, &state, world->now), 0);
}

static void report_all(struct world *world, struct rank *rank)
{
    for (unsigned i = 0; i < world->devices; i++) {
        if (rank->side[i].used)
            report(world, rank, i);
    }
}

static void learn(struct world *world, const struct rank *rank)
{
    const uint64_t job = rank->job->number;

    if (rank->job->evidence)
        kin_learn(&world->kin, rank->program, 100 + job, GS_KIN_MASTER, world->now);
    kin_learn(&world->kin, rank->program, 200 + job, GS_KIN_PARENT, world->now);
    kin_learn(&world->kin, rank->program, 7, GS_KIN_SESSION, world->now);
}

static void connect_rank(struct world *world, struct rank *rank)
{
    const struct lockd_identity identity = {.uid = 1, .pid = 1};

    rank->client = sched_client_add(world->sched, rank);
    rank->program = kin_came(&world->kin, rank->client, rank, &identity, false);
    assert_non_null(rank->program);
    learn(world, rank);
    rank->back_at = LOCKD_NEVER;
    for (unsigned i = 0; i < DEVICES; i++)
        rank->side[i].flags = rank->running ? GS_TARGET_RUN : 0;
    report_all(world, rank);
}

static void leave_rank(struct world *world, struct rank *rank)
{
    rank->ended = true;
    rank->running = rank->collective = false;
    rank->back_at = LOCKD_NEVER;
    if (rank->client == NULL)
        return;
    kin_gone(&world->kin, rank->program);
    sched_client_gone(world->sched, rank->client, world->now);
    rank->client = NULL;
    for (unsigned i = 0; i < DEVICES; i++)
        rank->side[i].resident = 0;
}

static bool may_run(const struct rank *rank)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        if (rank->side[i].used && (rank->side[i].flags & GS_TARGET_RUN) == 0)
            return false;
    }
    return true;
}

/* All ranks are in this collective and run. */
static bool is_collective_complete(const struct job *job, uint32_t round)
{
    for (unsigned i = 0; i < job->ranks; i++) {
        const struct rank *each = &job->rank[i];

        if (each->round == round && (!each->collective || !each->running))
            return false;
        if (each->round < round)
            return false;
    }
    return true;
}

static void run_rank(struct world *world, struct rank *rank)
{
    struct job *job = rank->job;

    if (!rank->collective) {
        rank->left = sched_less(rank->left, STEP);
        if (rank->left != 0)
            return;
        rank->calls += 10;
        rank->collective = true;
        return;
    }
    if (!is_collective_complete(job, rank->round))
        return;
    for (unsigned i = 0; i < job->ranks; i++) { /* for all of them at once */
        struct rank *each = &job->rank[i];

        each->collective = false;
        each->round++;
        each->calls++;
        each->left = 1 + job->compute / 2 + some(world, job->compute);
    }
}

/* Its gate is open, or work is unfinished. Returns whether there is something to report. */
static bool step_running(struct world *world, struct rank *rank)
{
    const bool spins = rank->collective && rank->job->evidence;

    if (may_run(rank) || rank->client == NULL) {
        rank->stop_since = 0;
        run_rank(world, rank);
        return false;
    }
    if (rank->stop_since == 0)
        rank->stop_since = world->now;
    if (!spins) {
        rank->running = false;
        rank->stop_since = 0;
        return true;
    }
    run_rank(world, rank); /* others may end it */
    return world->now - rank->stop_since >= STUCK_AT &&
           world->now - rank->stop_since < STUCK_AT + STEP;
}

static bool step_stopped(const struct world *world, struct rank *rank)
{
    bool changed = false, complete = true;

    for (unsigned i = 0; i < world->devices; i++) {
        struct side *side = &rank->side[i];
        const uint64_t goal = sched_min(side->budget, side->demand);

        if (!side->used)
            continue;
        if (side->resident > side->budget) {
            side->resident -= sched_min(side->resident - side->budget, IN_STEP);
            changed = true;
        } else if (may_run(rank) && side->resident < goal) {
            side->resident += sched_min(goal - side->resident, IN_STEP);
            changed = true;
        }
        complete = complete && side->resident == side->demand;
    }
    if (complete && may_run(rank) && all_have_come(rank->job)) {
        rank->running = true;
        changed = true;
    }
    return changed;
}

static void step_rank(struct world *world, struct rank *rank)
{
    bool changed;

    if (rank->ended)
        return;
    if (rank->client == NULL && world->now >= rank->back_at)
        connect_rank(world, rank);
    changed = rank->running          ? step_running(world, rank)
              : rank->client != NULL ? step_stopped(world, rank)
                                     : false;
    if (rank->round >= rank->job->rounds) {
        leave_rank(world, rank);
        return;
    }
    for (unsigned i = 0; i < world->devices && rank->client != NULL; i++) {
        if (rank->side[i].used && (changed || rank->side[i].fresh))
            report(world, rank, i);
    }
}

static void take_targets(struct world *world)
{
    struct sched_send send;

    while (sched_next_send(world->sched, &send)) {
        struct rank *rank = send.owner;
        struct side *side = &rank->side[send.target.uuid[0] - 1];

        side->seq = send.target.seq;
        side->flags = send.target.flags;
        side->budget = send.target.budget;
        side->fresh = true;
        world->events++;
    }
}

/* --- the world --- */

static void make_job(struct world *world, unsigned number)
{
    struct job *job = &world->job[number];
    const bool whole = some(world, 6) == 0; /* one process on several devices */
    unsigned first;

    job->number = number;
    job->ranks = whole ? 1 : 1 + (unsigned)some(world, world->devices);
    job->rounds = 5 + (uint32_t)some(world, 200);
    job->compute = (10 + some(world, 300)) * NS_PER_MS;
    job->evidence = job->ranks > 1 && (world->policy == GS_POLICY_FIFO || some(world, 3) != 0);
    job->dies_at =
        some(world, 5) == 0 ? world->now + some(world, 30000) * NS_PER_MS : LOCKD_NEVER;
    first = (unsigned)some(world, world->devices);
    for (unsigned i = 0; i < job->ranks; i++) {
        struct rank *rank = &job->rank[i];

        rank->job = job;
        rank->left = 1 + job->compute;
        rank->back_at =
            world->now + (number * some(world, 2000) + some(world, 300)) * NS_PER_MS;
        for (unsigned d = 0; d < (whole ? 1 + some(world, world->devices) : 1); d++) {
            struct side *side = &rank->side[(first + i + d) % world->devices];

            side->used = true;
            side->demand = (1 + some(world, 9)) * GIB;
        }
    }
    world->work += job->rounds * (job->compute * 3 / 2 + 3 * STEP);
}

static void restart_daemon(struct world *world)
{
    kin_deinit(&world->kin);
    sched_free(world->sched);
    new_daemon(world);
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            struct rank *rank = &world->job[j].rank[i];

            if (rank->client == NULL)
                continue;
            rank->client = NULL;
            rank->back_at = world->now + some(world, 200) * NS_PER_MS;
        }
    }
}

static bool is_done(const struct world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            if (!world->job[j].rank[i].ended)
                return false;
        }
    }
    return true;
}

static void step_world(struct world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        struct job *job = &world->job[j];

        if (world->now >= job->dies_at) /* one rank dies, and its launcher ends the others */
            leave_rank(world, &job->rank[0]);
        for (unsigned i = 0;
             i < job->ranks && sched_less(world->now, job->dies_at) >= NS_PER_MS * 1000; i++)
            leave_rank(world, &job->rank[i]);
        for (unsigned i = 0; i < job->ranks; i++)
            step_rank(world, &job->rank[i]);
    }
    if (world->now >= world->restart_at) {
        world->restart_at = LOCKD_NEVER;
        restart_daemon(world);
    }
    if (world->now >= sched_deadline(world->sched))
        sched_tick(world->sched, world->now);
    kin_tend(&world->kin, world->now);
    take_targets(world);
    assert_null(sched_check(world->sched));
}

static void print_world(const struct world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            const struct rank *rank = &world->job[j].rank[i];

            print_message("job %u rank %u%s: %s round %u of %u%s%s set %llu\n", j, i,
                          world->job[j].evidence ? " (evidence)" : "",
                          rank->ended     ? "ended"
                          : rank->running ? "runs"
                                          : "waits",
                          rank->round, world->job[j].rounds,
                          rank->collective ? " in collective" : "",
                          rank->stop_since != 0 ? " cannot stop" : "",
                          rank->ended || rank->program == NULL
                              ? 0ull
                              : (unsigned long long)kin_set_of(rank->program));
            for (unsigned d = 0; d < world->devices && !rank->ended; d++) {
                if (rank->side[d].used)
                    print_message("  device %u: %llu of %llu MiB, budget %llu, flags %x\n", d,
                                  (unsigned long long)(rank->side[d].resident / MIB),
                                  (unsigned long long)(rank->side[d].demand / MIB),
                                  (unsigned long long)(rank->side[d].budget / MIB),
                                  rank->side[d].flags);
            }
        }
    }
}

struct figures {
    uint64_t events, worst; /* worst: time of a run in thousandths of its work one by one */
    unsigned trials;
};

static void run_one(uint64_t seed, struct figures *figures)
{
    static const enum gs_policy policies[] = {GS_POLICY_FAIR, GS_POLICY_FAIR, GS_POLICY_RR,
                                              GS_POLICY_PRIORITY, GS_POLICY_FIFO};
    struct world *world = calloc(1, sizeof *world);
    uint64_t bound, began;

    assert_non_null(world);
    world->random = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 8; i++)
        some(world, 1);
    began = world->now = 1000 * NS_PER_MS;
    world->devices = 1 + (unsigned)some(world, DEVICES);
    world->jobs = 1 + (unsigned)some(world, JOBS);
    world->policy = policies[some(world, sizeof policies / sizeof policies[0])];
    world->quantum =
        (uint64_t[]){LOCKD_AUTO, 200 * NS_PER_MS, 1000 * NS_PER_MS}[some(world, 3)];
    world->restart_at =
        some(world, 3) == 0 ? world->now + some(world, 20000) * NS_PER_MS : LOCKD_NEVER;
    new_daemon(world);
    for (unsigned j = 0; j < world->jobs; j++)
        make_job(world, j);
    bound = began + 8 * world->work + 600000 * NS_PER_MS;
    while (!is_done(world) && world->now < bound) {
        step_world(world);
        world->now += STEP;
    }
    if (!is_done(world)) {
        print_world(world);
        fail_msg("seed %llu: not done after %llu s (work of %llu s)", (unsigned long long)seed,
                 (unsigned long long)((world->now - began) / 1000000000),
                 (unsigned long long)(world->work / 1000000000));
    }
    figures->events += world->events;
    figures->trials += world->said;
    figures->worst = sched_max(figures->worst,
                               (world->now - began) * 1000 / (world->work + 20000 * NS_PER_MS));
    kin_deinit(&world->kin);
    sched_free(world->sched);
    free(world);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void trial_random_jobs_all_end(void **state)
{
    const uint64_t runs = from_environment("GPUSHARE_TEST_RUNS", 300);
    const uint64_t seed = from_environment("GPUSHARE_TEST_SEED", 1);
    struct figures figures = {0};

    (void)state;
    for (uint64_t i = 0; i < runs; i++)
        run_one(seed + i, &figures);
    print_message("%llu runs, %llu messages, %u remarks of trials; at most %.2f of the time of "
                  "the jobs one after the other, and 20 s\n",
                  (unsigned long long)runs, (unsigned long long)figures.events, figures.trials,
                  (double)figures.worst / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trial_random_jobs_all_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
