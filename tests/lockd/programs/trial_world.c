/* SPDX-License-Identifier: Apache-2.0
 *
 * trial_world.c: the ranks of the jobs and what they tell the scheduler. Each rank
 * computes, then enters a collective that ends only when all ranks of its job are in it and run.
 * Ranks with evidence *spin* there: they cannot stop before it ends, as NCCL's kernels. Ranks
 * without evidence can stop, but get no further before all run at the same time. In a world that
 * is late they compute as soon as they are there, and wait on the host before their first
 * collective until all have come; and some of them need more memory after a few rounds. One thread.
 */
#include "tests/lockd/programs/trial_world.h"

#include <stdio.h>
#include <string.h>

#include "tests/lockd/check.h"

#define TOTAL    (10 * GIB)
#define IN_STEP  (512 * MIB) /* what is moved in a step: 100 GB/s */
#define STUCK_AT (2000 * NS_PER_MS)

uint64_t trial_world_random(struct trial_world *world, uint64_t below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return below == 0 ? 0 : (world->random >> 11) % below;
}

static void count_remark(void *context, void *owner, const char *text)
{
    struct trial_world *world = context;

    (void)owner;
    assert_true(strlen(text) < 192);
    world->said++;
}

void trial_world_begin(struct trial_world *world)
{
    const struct sched_settings settings = {.quantum_ns = world->quantum,
                                            .idle_ns = LOCKD_AUTO,
                                            .reserve = LOCKD_AUTO,
                                            .policy = world->policy};

    world->sched = sched_new(&settings, world->now);
    assert_non_null(world->sched);
    kin_init(&world->kin, count_remark, world);
}

/* --- a rank --- */

static bool all_have_come(const struct trial_job *job)
{
    for (unsigned i = 0; i < job->ranks; i++) {
        if (job->rank[i].round == 0 && !job->rank[i].collective &&
            job->rank[i].client == NULL && !job->rank[i].ended)
            return false;
    }
    return true;
}

static void report_rank(struct trial_world *world, struct trial_rank *rank, unsigned device)
{
    struct trial_side *side = &rank->side[device];
    const bool wants = world->late ? !rank->on_host : all_have_come(rank->job);
    struct gs_wire_state state = {.uuid = {(uint8_t)(device + 1)},
                                  .target_seq = side->seq,
                                  .device_total = TOTAL,
                                  .device_free = UINT64_MAX,
                                  .demand = side->demand,
                                  .resident = side->resident,
                                  .over = side->beyond,
                                  .calls = rank->calls};
    const bool may = (side->flags & GS_TARGET_RUN) != 0;

    state.flags =
        (wants ? GS_STATE_WANT : 0) | (rank->running ? GS_STATE_RUNNING : 0) |
        (rank->stop_since != 0 && world->now - rank->stop_since >= STUCK_AT ? GS_STATE_STUCK
                                                                            : 0) |
        (!rank->running && may && side->resident < side->demand ? GS_STATE_MOVING : 0);
    side->fresh = false;
    world->events++;
    assert_int_equal(sched_state(rank->client, &state, world->now), 0);
}

static void report_all(struct trial_world *world, struct trial_rank *rank)
{
    for (unsigned i = 0; i < world->devices; i++) {
        if (rank->side[i].used)
            report_rank(world, rank, i);
    }
}

static void learn_keys(struct trial_world *world, const struct trial_rank *rank)
{
    const uint64_t job = rank->job->number;

    if (world->grouped)
        return;
    if (rank->job->evidence && world->now >= rank->knows_at)
        kin_learn(&world->kin, rank->program, 100 + job, GS_KIN_MASTER,
                  rank->job->says_ranks ? rank->job->ranks : 0, world->now);
    kin_learn(&world->kin, rank->program, 200 + job, GS_KIN_PARENT, 0, world->now);
    kin_learn(&world->kin, rank->program, 7, GS_KIN_SESSION, 0, world->now);
}

static void connect_rank(struct trial_world *world, struct trial_rank *rank)
{
    struct gs_wire_hello hello = {.weight = GS_WEIGHT_DEFAULT};

    if (world->grouped && rank->job->ranks > 1)
        snprintf(hello.group, sizeof hello.group, "%u", rank->job->number);
    rank->identity = (struct lockd_identity){.uid = 1 + rank->job->user, .pid = 1};
    rank->client = sched_client_add(world->sched, rank);
    if (world->late)
        sched_describe(rank->client, &hello, 1 + rank->job->user);
    rank->program = kin_came(&world->kin, rank->client, rank, &rank->identity, false);
    assert_non_null(rank->program);
    learn_keys(world, rank);
    rank->back_at = LOCKD_NEVER;
    for (unsigned i = 0; i < TRIAL_DEVICES; i++)
        rank->side[i].flags = rank->running ? GS_TARGET_RUN : 0;
    report_all(world, rank);
}

static void leave_rank(struct trial_world *world, struct trial_rank *rank)
{
    rank->ended = true;
    rank->running = rank->collective = false;
    rank->back_at = LOCKD_NEVER;
    if (rank->client == NULL)
        return;
    kin_gone(&world->kin, rank->program);
    sched_client_gone(rank->client, world->now);
    rank->client = NULL;
    for (unsigned i = 0; i < TRIAL_DEVICES; i++)
        rank->side[i].resident = 0;
}

static bool may_run(const struct trial_rank *rank)
{
    for (unsigned i = 0; i < TRIAL_DEVICES; i++) {
        if (rank->side[i].used && (rank->side[i].flags & GS_TARGET_RUN) == 0)
            return false;
    }
    return true;
}

/* All ranks are in this collective and run. */
static bool is_collective_complete(const struct trial_job *job, uint32_t round)
{
    for (unsigned i = 0; i < job->ranks; i++) {
        const struct trial_rank *each = &job->rank[i];

        if (each->round == round && (!each->collective || !each->running))
            return false;
        if (each->round < round)
            return false;
    }
    return true;
}

/* In this round it needs more memory: its gate is shut until that is there. */
static void grow_rank(const struct trial_world *world, struct trial_rank *rank)
{
    for (unsigned i = 0; i < world->devices; i++) {
        struct trial_side *side = &rank->side[i];

        if (!side->used || side->later == 0 || rank->round < side->grows_at ||
            world->now < side->grows_when)
            continue;
        side->demand = side->later;
        side->later = 0;
        side->fresh = true;
        rank->running = false;
    }
}

static void run_rank(struct trial_world *world, struct trial_rank *rank)
{
    struct trial_job *job = rank->job;

    if (!rank->collective) {
        rank->left = sched_less(rank->left, TRIAL_STEP);
        if (rank->left != 0)
            return;
        rank->on_host = world->late && rank->round == 0 && !all_have_come(job);
        if (rank->on_host)
            return;
        grow_rank(world, rank);
        if (!rank->running)
            return;
        rank->calls += 10;
        rank->collective = true;
        return;
    }
    if (!is_collective_complete(job, rank->round))
        return;
    for (unsigned i = 0; i < job->ranks; i++) { /* for all of them at once */
        struct trial_rank *each = &job->rank[i];

        each->collective = false;
        each->round++;
        each->calls++;
        each->left = 1 + job->compute / 2 + trial_world_random(world, job->compute);
    }
}

/* Its gate is open, or work is unfinished. Returns whether there is something to report. */
static bool step_running(struct trial_world *world, struct trial_rank *rank)
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
           world->now - rank->stop_since < STUCK_AT + TRIAL_STEP;
}

/* What it lacks goes beyond the card, and comes back between two turns. */
static bool step_beyond(struct trial_world *world, struct trial_side *side)
{
    const bool beyond = (side->flags & GS_TARGET_BEYOND) != 0;
    const uint64_t lacks = sched_less(side->demand, side->resident);

    if (beyond && lacks != 0) {
        side->demand -= lacks;
        side->beyond += lacks;
        world->beyond++;
    } else if (!beyond && side->beyond != 0) {
        side->demand += side->beyond;
        side->beyond = 0;
    } else {
        return false;
    }
    return true;
}

static bool step_stopped(struct trial_world *world, struct trial_rank *rank)
{
    bool changed = false, complete = true;

    for (unsigned i = 0; i < world->devices; i++) {
        struct trial_side *side = &rank->side[i];
        uint64_t goal;

        if (!side->used)
            continue;
        changed = step_beyond(world, side) || changed;
        goal = sched_min(side->budget, side->demand);
        if (side->resident > side->budget) {
            side->resident -= sched_min(side->resident - side->budget, IN_STEP);
            changed = true;
        } else if (may_run(rank) && side->resident < goal) {
            side->resident += sched_min(goal - side->resident, IN_STEP);
            changed = true;
        }
        complete = complete && side->resident == side->demand;
    }
    if (complete && may_run(rank) && (world->late || all_have_come(rank->job))) {
        rank->running = true;
        changed = true;
    }
    return changed;
}

static void step_rank(struct trial_world *world, struct trial_rank *rank)
{
    const bool was_on_host = rank->on_host;
    bool changed;

    if (rank->ended)
        return;
    if (rank->client == NULL && world->now >= rank->back_at)
        connect_rank(world, rank);
    if (rank->client != NULL && rank->knows_at != 0 && world->now >= rank->knows_at) {
        learn_keys(world, rank);
        rank->knows_at = 0;
    }
    changed = rank->running          ? step_running(world, rank)
              : rank->client != NULL ? step_stopped(world, rank)
                                     : false;
    if (rank->round >= rank->job->rounds) {
        leave_rank(world, rank);
        return;
    }
    rank->on_host = rank->on_host && !all_have_come(rank->job);
    changed = changed || rank->on_host != was_on_host;
    for (unsigned i = 0; i < world->devices && rank->client != NULL; i++) {
        if (rank->side[i].used && (changed || rank->side[i].fresh))
            report_rank(world, rank, i);
    }
}

static void take_targets(struct trial_world *world)
{
    struct sched_send send;

    while (sched_next_send(world->sched, &send)) {
        struct trial_rank *rank = send.owner;
        struct trial_side *side = &rank->side[send.target.uuid[0] - 1];

        side->seq = send.target.seq;
        side->flags = send.target.flags;
        side->budget = send.target.budget;
        side->fresh = true;
        world->events++;
    }
}

/* --- the world --- */

/* Many jobs start at the same moment and are too large to fit together; memory is needed in the
 * first rounds, or a while later. */
static void make_late(struct trial_world *world, struct trial_job *job)
{
    const bool at_once = trial_world_random(world, 3) != 0;
    const uint64_t apart = at_once ? 200 : 8000;

    job->evidence = job->evidence || (world->grouped && job->ranks > 1);
    job->user = (uint32_t)trial_world_random(world, 3);
    job->says_ranks = trial_world_random(world, 2) == 0;
    for (unsigned i = 0; i < job->ranks; i++) {
        job->rank[i].back_at =
            world->now + (i + 1) * trial_world_random(world, apart) * NS_PER_MS;
        if (world->unaware)
            job->rank[i].knows_at =
                job->rank[i].back_at + trial_world_random(world, 20000) * NS_PER_MS;
        for (unsigned d = 0; d < world->devices; d++) {
            struct trial_side *side = &job->rank[i].side[d];

            if (!side->used || job->ranks == 1)
                continue;
            if (at_once)
                side->demand = (5 + trial_world_random(world, 4)) * GIB;
            if (trial_world_random(world, 2) == 0)
                continue;
            side->later = side->demand;
            side->demand = (1 + trial_world_random(world, 1024)) * MIB;
            side->grows_at = (uint32_t)trial_world_random(world, at_once ? 3 : 12);
        }
    }
}

/* Jobs that have formed when they grow, all within half a second; any of them fits alone then. */
static void make_grown(struct trial_world *world, struct trial_job *job)
{
    const uint64_t most = 9 * GIB / world->jobs / MIB;

    job->evidence = true;
    job->dies_at += job->dies_at != LOCKD_NEVER ? world->grow_at - world->now : 0;
    job->user = (uint32_t)trial_world_random(world, 2);
    job->says_ranks = trial_world_random(world, 2) == 0;
    job->ranks = 2 + (unsigned)trial_world_random(world, world->devices - 1);
    job->compute = (50 + trial_world_random(world, 300)) * NS_PER_MS;
    job->rounds = (uint32_t)((world->grow_at - world->now) / job->compute) + 20;
    memset(job->rank, 0, sizeof job->rank);
    for (unsigned i = 0; i < job->ranks; i++) {
        struct trial_side *side = &job->rank[i].side[i];

        job->rank[i].job = job;
        job->rank[i].left = 1 + job->compute;
        job->rank[i].back_at = world->now + trial_world_random(world, 300) * NS_PER_MS;
        *side = (struct trial_side){.used = true,
                                    .demand = (1 + trial_world_random(world, most)) * MIB};
        if (trial_world_random(world, 2) == 0)
            continue;
        side->later = sched_max(side->demand, (4096 + trial_world_random(world, 5120)) * MIB);
        side->grows_when = world->grow_at + trial_world_random(world, 200) * NS_PER_MS;
    }
}

void trial_world_add_job(struct trial_world *world, unsigned number)
{
    struct trial_job *job = &world->job[number];
    const bool whole = trial_world_random(world, 6) == 0; /* one process on several devices */
    unsigned first;

    job->number = number;
    job->ranks = whole ? 1 : 1 + (unsigned)trial_world_random(world, world->devices);
    job->rounds = 5 + (uint32_t)trial_world_random(world, 200);
    job->compute = (10 + trial_world_random(world, 300)) * NS_PER_MS;
    job->evidence = job->ranks > 1 &&
                    (world->policy == GS_POLICY_FIFO || trial_world_random(world, 3) != 0);
    job->dies_at = trial_world_random(world, 5) == 0
                       ? world->now + trial_world_random(world, 30000) * NS_PER_MS
                       : LOCKD_NEVER;
    first = (unsigned)trial_world_random(world, world->devices);
    for (unsigned i = 0; i < job->ranks; i++) {
        struct trial_rank *rank = &job->rank[i];

        rank->job = job;
        rank->left = 1 + job->compute;
        rank->back_at = world->now + (number * trial_world_random(world, 2000) +
                                      trial_world_random(world, 300)) *
                                         NS_PER_MS;
        for (unsigned d = 0; d < (whole ? 1 + trial_world_random(world, world->devices) : 1);
             d++) {
            struct trial_side *side = &rank->side[(first + i + d) % world->devices];

            side->used = true;
            side->demand = (1 + trial_world_random(world, 9)) * GIB;
        }
    }
    if (world->grown)
        make_grown(world, job);
    else if (world->late)
        make_late(world, job);
    world->work += job->rounds * (job->compute * 3 / 2 + 3 * TRIAL_STEP);
}

static void restart_daemon(struct trial_world *world)
{
    kin_deinit(&world->kin);
    sched_free(world->sched);
    trial_world_begin(world);
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            struct trial_rank *rank = &world->job[j].rank[i];

            if (rank->client == NULL)
                continue;
            rank->client = NULL;
            rank->back_at = world->now + trial_world_random(world, 200) * NS_PER_MS;
        }
    }
}

bool trial_world_is_done(const struct trial_world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            if (!world->job[j].rank[i].ended)
                return false;
        }
    }
    return true;
}

void trial_world_step(struct trial_world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        struct trial_job *job = &world->job[j];

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
    if (sched_check(world->sched) != NULL)
        fail_msg("%s", sched_check(world->sched));
}

void trial_world_print(const struct trial_world *world)
{
    for (unsigned j = 0; j < world->jobs; j++) {
        for (unsigned i = 0; i < world->job[j].ranks; i++) {
            const struct trial_rank *rank = &world->job[j].rank[i];

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
