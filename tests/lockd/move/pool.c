/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: see pool.h. A card's holder runs until it rests or, if others wait, its second is over;
 * then comes the one that has waited longest.
 */
#include "tests/lockd/move/pool.h"

#include <stdio.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define MEMORY (80 * POOL_GB)

static struct pool *asked; /* balance_ask has no context */

uint64_t pool_random(struct pool *pool, uint64_t below)
{
    uint64_t mixed = pool->random += 0x9e3779b97f4a7c15u; /* splitmix64 */

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return below == 0 ? 0 : (mixed ^ (mixed >> 31)) % below;
}

static struct pool_program *program_of(const struct sched_client *client)
{
    return &asked->programs[(uintptr_t)client - 1];
}

static bool holds_card(const struct pool *pool, const struct pool_program *program)
{
    return pool->holder[program->card] == (uint32_t)(program - pool->programs);
}

static bool answer_load(const struct sched_client *client, uint32_t number,
                        struct sched_load *load, uint64_t now_ns)
{
    const struct pool_program *program = program_of(client);

    (void)now_ns;
    if (number != 0 || program->moves)
        return false;
    *load = (struct sched_load){
        .uuid = {(uint8_t)(program->card + 1)},
        .alone = true,
        .waits = program->works && !asked->open && !holds_card(asked, program),
        .turns = !asked->open,
        .class = program->class,
        .run_ns = program->run_ns,
        .wait_ns = program->wait_ns,
        .demand = program->memory,
        .resident = program->memory / 2,
        .capacity = MEMORY,
    };
    return true;
}

static void count_remark(void *context, void *owner, const char *text)
{
    (void)owner;
    (void)text;
    ((struct pool *)context)->hidden_said++;
}

void pool_init(struct pool *pool, uint32_t cards, uint64_t seed)
{
    memset(pool, 0, sizeof *pool);
    pool->cards = cards;
    pool->random = seed;
    pool->now = POOL_SECOND;
    pool->overhead = POOL_SECOND;
    pool->outcome = LOCKD_MOVE_DONE;
    for (uint32_t i = 0; i < POOL_CARDS; i++)
        pool->holder[i] = NOBODY;
    asked = pool;
    balance_init(&pool->balance, answer_load, count_remark, pool);
    balance_set(&pool->balance, true);
}

void pool_deinit(struct pool *pool)
{
    balance_deinit(&pool->balance);
}

uint32_t pool_add(struct pool *pool, uint32_t card, uint64_t memory, uint64_t work,
                  uint64_t rest)
{
    uint32_t number = 0;
    struct pool_program *program;

    while (pool->programs[number].balance != NULL)
        number++;
    program = &pool->programs[number];
    *program = (struct pool_program){.card = card,
                                     .class = GS_CLASS_BATCH,
                                     .memory = memory,
                                     .work = work,
                                     .rest = rest,
                                     .works = true,
                                     .phase_left = work,
                                     .waits_since = pool->now};
    program->balance = balance_came(
        &pool->balance, (const struct sched_client *)(uintptr_t)(number + 1), program);
    for (uint32_t i = 0; i < pool->cards; i++) {
        struct lockd_seen seen = {
            .uuid = {(uint8_t)(i + 1)}, .name = "card", .total = MEMORY + 2 * POOL_GB};

        if (i == card || (pool->hidden >> i & 1) == 0)
            balance_sees(&pool->balance, program->balance, &seen);
    }
    return number;
}

void pool_remove(struct pool *pool, uint32_t number)
{
    struct pool_program *program = &pool->programs[number];

    if (program->balance == NULL)
        return;
    if (holds_card(pool, program))
        pool->holder[program->card] = NOBODY;
    balance_gone(&pool->balance, program->balance);
    program->balance = NULL;
}

uint32_t pool_count(const struct pool *pool, uint32_t card)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < POOL_PROGRAMS; i++)
        count += pool->programs[i].balance != NULL && !pool->programs[i].moves &&
                 pool->programs[i].card == card;
    return count;
}

/* --- one step --- */

static void next_phase(struct pool_program *program, uint64_t now)
{
    program->works = !program->works || program->rest == 0;
    program->phase_left = program->works ? program->work : program->rest;
    if (program->works)
        program->waits_since = now;
}

static uint64_t count_working(const struct pool *pool, uint32_t card)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < POOL_PROGRAMS; i++)
        count += pool->programs[i].balance != NULL && !pool->programs[i].moves &&
                 pool->programs[i].card == card && pool->programs[i].works;
    return count;
}

static void step_program(struct pool *pool, struct pool_program *program)
{
    const bool has = pool->open ? program->works : holds_card(pool, program);
    const uint64_t step =
        pool->open && has ? POOL_STEP / count_working(pool, program->card) : POOL_STEP;

    if (program->works && !has) {
        const uint64_t waited = pool->now - program->waits_since;

        program->wait_ns += POOL_STEP;
        program->longest_wait = waited > program->longest_wait ? waited : program->longest_wait;
        return;
    }
    if (has)
        program->run_ns += POOL_STEP;
    program->phase_left -= program->phase_left < step ? program->phase_left : step;
    if (program->phase_left != 0)
        return;
    if (has && !pool->open) {
        pool->holder[program->card] = NOBODY;
        program->waits_since = pool->now;
    }
    next_phase(program, pool->now);
}

static void step_card(struct pool *pool, uint32_t card)
{
    uint32_t first = NOBODY;

    for (uint32_t i = 0; i < POOL_PROGRAMS; i++) {
        const struct pool_program *each = &pool->programs[i];

        if (each->balance != NULL && !each->moves && each->card == card && each->works &&
            pool->holder[card] != i &&
            (first == NOBODY || each->waits_since < pool->programs[first].waits_since))
            first = i;
    }
    if (pool->open || first == NOBODY ||
        (pool->holder[card] != NOBODY && pool->now < pool->turn_ends[card]))
        return;
    if (pool->holder[card] != NOBODY)
        pool->programs[pool->holder[card]].waits_since = pool->now;
    pool->holder[card] = first;
    pool->turn_ends[card] = pool->now + POOL_SECOND;
}

static uint32_t card_of(const uint8_t *uuid)
{
    return uuid[0] - 1u;
}

static void begin_move(struct pool *pool, const struct balance_move *move)
{
    struct pool_program *program = move->owner;

    pool->attempts++;
    program->attempts++;
    program->last_attempt = pool->now;
    if (holds_card(pool, program))
        pool->holder[program->card] = NOBODY;
    program->moves = true;
    program->goes_to = card_of(move->to);
    program->arrives_at =
        pool->now + pool->overhead + (program->memory + program->memory / 2) / 50;
}

static void end_move(struct pool *pool, struct pool_program *program)
{
    const enum lockd_move_end failures[] = {LOCKD_MOVE_LATER, LOCKD_MOVE_NOT_THERE,
                                            LOCKD_MOVE_NOT_IT, LOCKD_MOVE_NOBODY};
    enum lockd_move_end outcome = pool->outcome;

    if (pool_random(pool, 1000000) < pool->failing_ppm)
        outcome = failures[pool_random(pool, 4)];
    if (program->fixed)
        outcome = LOCKD_MOVE_NOT_IT;
    program->moves = false;
    program->waits_since = pool->now;
    if (outcome == LOCKD_MOVE_DONE) {
        program->card = program->goes_to;
        program->moved++;
        pool->moved++;
        pool->last_move = pool->now;
    }
    balance_outcome(&pool->balance, program->balance, outcome,
                    pool->now - program->last_attempt, program->memory + program->memory / 2,
                    pool->now);
}

void pool_run(struct pool *pool, uint64_t ns)
{
    const uint64_t until = pool->now + ns;
    struct balance_move move;

    asked = pool;
    while (pool->now < until) {
        for (uint32_t card = 0; card < pool->cards; card++)
            step_card(pool, card);
        pool->now += POOL_STEP;
        for (uint32_t i = 0; i < POOL_PROGRAMS; i++) {
            struct pool_program *program = &pool->programs[i];

            if (program->balance == NULL)
                continue;
            if (!program->moves)
                step_program(pool, program);
            else if (pool->now >= program->arrives_at)
                end_move(pool, program);
        }
        balance_tend(&pool->balance, pool->now);
        while (balance_next(&pool->balance, &move))
            begin_move(pool, &move);
    }
}
