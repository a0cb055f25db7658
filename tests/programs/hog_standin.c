/* SPDX-License-Identifier: Apache-2.0
 *
 * hog_standin.c: host code for hog's kernels on the simulated card. One pass over memory per
 * launch, at the speed of memory.
 */
#include "samples/hog.h"
#include "tests/simcuda/standin.h"

#define PARAM(launch, index, type) (*(const typeof(type) *)(launch)->params[index])

static void fill_memory(const struct simcuda_launch *launch)
{
    uint64_t *memory = PARAM(launch, 0, uint64_t *);
    uint64_t first_page = PARAM(launch, 1, uint64_t);
    uint64_t pages = PARAM(launch, 2, uint64_t);
    uint64_t seed = PARAM(launch, 3, uint64_t);

    for (uint64_t page = 0; page < pages; page++) {
        uint64_t value = hog_base(seed, first_page + page, 0);

        for (unsigned int word = 0; word < HOG_WORDS; word++)
            memory[page * HOG_WORDS + word] = value + word * HOG_STRIDE;
    }
}

/* One page: sum of the old values, and the bits in which any of them was not as expected. */
static uint64_t step_page(uint64_t *restrict words, uint64_t expected, uint64_t next,
                          uint64_t *sum)
{
    uint64_t total = 0;
    uint64_t wrong = 0;

    for (unsigned int word = 0; word < HOG_WORDS; word++) {
        uint64_t value = words[word];

        total += value;
        wrong |= value ^ (expected + word * HOG_STRIDE);
        words[word] = next + word * HOG_STRIDE;
    }
    *sum = total;
    return wrong;
}

/* The same without writing: the memory may be read by others meanwhile. */
static uint64_t check_page(const uint64_t *words, uint64_t expected, uint64_t *sum)
{
    uint64_t total = 0;
    uint64_t wrong = 0;

    for (unsigned int word = 0; word < HOG_WORDS; word++) {
        total += words[word];
        wrong |= words[word] ^ (expected + word * HOG_STRIDE);
    }
    *sum = total;
    return wrong;
}

static void step_memory(const struct simcuda_launch *launch)
{
    uint64_t *memory = PARAM(launch, 0, uint64_t *);
    uint64_t first_page = PARAM(launch, 1, uint64_t);
    uint64_t pages = PARAM(launch, 2, uint64_t);
    uint64_t seed = PARAM(launch, 3, uint64_t);
    uint64_t step_now = PARAM(launch, 4, uint64_t);
    int write = PARAM(launch, 5, int);
    uint64_t *sums = PARAM(launch, 6, uint64_t *);
    uint64_t *first_bad = PARAM(launch, 7, uint64_t *);

    for (uint64_t i = 0; i < pages; i++) {
        uint64_t page = first_page + i;
        uint64_t *words = memory + i * HOG_WORDS;
        uint64_t expected = hog_base(seed, page, step_now);
        uint64_t wrong =
            write ? step_page(words, expected, hog_base(seed, page, step_now + 1), &sums[page])
                  : check_page(words, expected, &sums[page]);

        if (wrong && page < *first_bad)
            *first_bad = page;
    }
}

static const uint32_t fill_params[] = {8, 8, 8, 8};
static const uint32_t step_params[] = {8, 8, 8, 8, 8, 4, 8, 8};

const struct simcuda_kernel simcuda_kernels[] = {
    {"hog_fill", fill_memory, 4, fill_params},
    {"hog_step", step_memory, 8, step_params},
    {0},
};
