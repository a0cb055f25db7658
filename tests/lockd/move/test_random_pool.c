/* SPDX-License-Identifier: Apache-2.0
 *
 * test_random_pool.c: random programs that come, change what they do, end, and cannot always be moved: nobody goes to and fro,
 * the balance comes to rest, everybody with work runs. GPUSHARE_TEST_WORLDS=N: so many worlds instead of 60.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lockd/move/pool.h"

#include <stdlib.h>

#define S  POOL_SECOND
#define GB POOL_GB

static uint64_t count_worlds(void)
{
    const char *text = getenv("GPUSHARE_TEST_WORLDS");

    return text != NULL ? strtoull(text, NULL, 10) : 60;
}

static void add_random(struct pool *pool, bool always)
{
    const uint64_t work = (1 + pool_random(pool, 40)) * 250 * POOL_MS;
    const uint64_t rest = always || pool_random(pool, 2) ? 0 : pool_random(pool, 3 * work);
    const uint32_t number = pool_add(
        pool, (uint32_t)pool_random(pool, 3) ? 0 : (uint32_t)pool_random(pool, pool->cards),
        (1 + pool_random(pool, 70)) * GB, work, rest);

    if (!always && pool_random(pool, 8) == 0)
        pool->programs[number].class =
            pool_random(pool, 2) ? GS_CLASS_INTERACTIVE : GS_CLASS_BACKGROUND;
}

static uint32_t programs_of(const struct pool *pool)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < POOL_PROGRAMS; i++)
        count += pool->programs[i].balance != NULL;
    return count;
}

/* What balance.c promises: before each move but the first, waits of twice the cost, doubled by each move of the last while; one of
 * these is forgotten every 600 s. The shortest move there is takes 1 s. */
static uint32_t most_moves(uint64_t ns)
{
    uint32_t most = 1 + (uint32_t)(ns / (600 * S));

    for (uint64_t loss = 2 * S; loss < ns; loss *= 2)
        most++;
    return most;
}

/* The longest that one may wait: the turns of all others, and the time of two moves, which take up to 4 s each. */
static uint64_t longest_wait(uint32_t programs)
{
    return programs * (S + 2 * POOL_STEP) + 8 * S;
}

static void check_programs(const struct pool *pool, uint64_t ns, uint64_t seed)
{
    for (uint32_t i = 0; i < POOL_PROGRAMS; i++) {
        const struct pool_program *program = &pool->programs[i];

        if (program->balance == NULL)
            continue;
        if (program->moved > most_moves(ns))
            fail_msg("seed %llu: program %u moved %u times", (unsigned long long)seed, i,
                     program->moved);
        if (program->longest_wait > longest_wait(POOL_PROGRAMS))
            fail_msg("seed %llu: program %u waited %.1f s", (unsigned long long)seed, i,
                     (double)program->longest_wait / 1e9);
    }
}

/* Programs come, change and end all the time, and a part of the moves fails. */
static void balance_random_nobody_goes_to_and_fro(void **state)
{
    uint32_t moved = 0, attempts = 0, most = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= count_worlds(); seed++) {
        struct pool pool;
        const uint32_t rounds = 60;

        pool_init(&pool, 2 + (uint32_t)(seed % (POOL_CARDS - 1)), seed);
        pool.failing_ppm = seed % 3 == 0 ? 300000 : 0;
        pool.open = seed % 5 == 0;
        for (uint32_t round = 0; round < rounds; round++) {
            struct pool_program *any = &pool.programs[pool_random(&pool, POOL_PROGRAMS)];

            if (programs_of(&pool) < 4 + seed % 16)
                add_random(&pool, false);
            if (pool_random(&pool, 12) == 0)
                pool_remove(&pool, (uint32_t)pool_random(&pool, POOL_PROGRAMS));
            if (any->balance != NULL && pool_random(&pool, 4) == 0)
                any->rest = any->rest == 0 ? any->work : 0;
            pool_run(&pool, 30 * S);
        }
        check_programs(&pool, 30 * S * rounds, seed);
        for (uint32_t i = 0; i < POOL_PROGRAMS; i++)
            most = pool.programs[i].moved > most ? pool.programs[i].moved : most;
        moved += pool.moved;
        attempts += pool.attempts;
        pool_deinit(&pool);
    }
    print_message("%u moves, %u attempts; at most %u of one program in half an hour\n", moved,
                  attempts, most);
    assert_true(moved > count_worlds());
}

/* Programs that go on as they are: after a while nobody moves any more, and of those that always work no card has clearly more than
 * another one. */
static void balance_random_comes_to_rest(void **state)
{
    uint32_t moved = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= count_worlds(); seed++) {
        const bool always = seed % 2 == 0;
        uint32_t fewest = UINT32_MAX, most = 0;
        struct pool pool;

        pool_init(&pool, 2 + (uint32_t)(seed % (POOL_CARDS - 1)), seed);
        for (uint64_t i = 0; i < 2 + seed % (POOL_PROGRAMS - 4); i++)
            add_random(&pool, always);
        pool_run(&pool, 900 * S);
        moved += pool.moved;
        pool.last_move = 0;
        check_programs(&pool, 900 * S, seed);
        if (always) {
            for (uint32_t card = 0; card < pool.cards; card++) {
                const uint32_t count = pool_count(&pool, card);

                fewest = count < fewest ? count : fewest;
                most = count > most ? count : most;
            }
            assert_true(most <= fewest + 1 + most / 8);
            pool_run(&pool, 1800 * S);
            assert_int_equal(pool.last_move, 0);
        }
        pool_deinit(&pool);
    }
    print_message("%u moves\n", moved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balance_random_nobody_goes_to_and_fro),
        cmocka_unit_test(balance_random_comes_to_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
