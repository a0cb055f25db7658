/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hash.c: the hash of blocks (runtime/swap/hash_core.h) against the polynomial it says it is,
 * and what it must tell apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/swap/hash_core.h"
#include "tests/runtime/random.h"

#define STEPS 3u
#define WORDS (4u * GS_HASH_THREADS * STEPS)

static uint64_t secret = 0x123456789abcdefull;

/* as the kernel does it */
static uint64_t hash_by_threads(const uint32_t *words)
{
    struct gs_hash_point point;
    uint64_t sum = 0;

    gs_hash_prepare(&point, secret);
    for (uint32_t thread = 0; thread < GS_HASH_THREADS; thread++) {
        uint64_t value = 0;

        for (uint32_t step = 0; step < STEPS; step++) {
            const uint32_t *at = words + (size_t)4 * (step * GS_HASH_THREADS + thread);

            value = gs_hash_step(&point, value, at[0], at[1], at[2], at[3]);
        }
        sum = gs_hash_final(sum + gs_hash_place(&point, value, thread));
    }
    return sum;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    return (uint64_t)((gs_wide)a * b % GS_HASH_PRIME);
}

/* as the header describes it */
static uint64_t evaluate_polynomial(const uint32_t *words)
{
    static uint64_t power[WORDS + 1];
    uint64_t sum = 0;

    power[0] = 1;
    for (uint32_t i = 1; i <= WORDS; i++)
        power[i] = multiply(power[i - 1], secret);
    for (uint32_t step = 0; step < STEPS; step++)
        for (uint32_t thread = 0; thread < GS_HASH_THREADS; thread++)
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t exponent =
                    4 * GS_HASH_THREADS * (STEPS - 1 - step) + 4 * thread + (3 - j) + 1;
                const uint32_t word = words[4 * (step * GS_HASH_THREADS + thread) + j];

                sum = (sum + multiply(power[exponent], word)) % GS_HASH_PRIME;
            }
    return sum;
}

static void fill_words(uint32_t *words, uint64_t *seed)
{
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = (uint32_t)random_below(seed, 1ull << 32);
}

static void hash_is_the_polynomial(void **state)
{
    static uint32_t words[WORDS];
    uint64_t seed = 7;

    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        secret = random_below(&seed, GS_HASH_PRIME - 2) + 2;
        fill_words(words, &seed);
        assert_true(hash_by_threads(words) == evaluate_polynomial(words));
    }
    memset(words, 0xff, sizeof words); /* the greatest sums */
    secret = GS_HASH_PRIME - 1;
    assert_true(hash_by_threads(words) == evaluate_polynomial(words));
}

static void hash_of_zeros_is_zero(void **state)
{
    static const uint32_t words[WORDS];

    (void)state;
    assert_true(hash_by_threads(words) == 0);
}

static void hash_sees_each_bit_and_each_place(void **state)
{
    static uint32_t words[WORDS];
    uint64_t seed = 11, before;

    (void)state;
    fill_words(words, &seed);
    secret = 0x123456789abcdefull;
    before = hash_by_threads(words);
    for (unsigned round = 0; round < 500; round++) {
        const uint64_t at = random_below(&seed, (uint64_t)WORDS),
                       other = random_below(&seed, (uint64_t)WORDS);
        const uint32_t bit = 1u << random_below(&seed, 32), kept = words[at];

        words[at] ^= bit;
        assert_true(hash_by_threads(words) != before);
        words[at] ^= bit;
        if (words[other] == kept)
            continue;
        words[at] = words[other];
        words[other] = kept;
        assert_true(hash_by_threads(words) != before);
        words[other] = words[at];
        words[at] = kept;
    }
    assert_true(hash_by_threads(words) == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_the_polynomial),
        cmocka_unit_test(hash_of_zeros_is_zero),
        cmocka_unit_test(hash_sees_each_bit_and_each_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
