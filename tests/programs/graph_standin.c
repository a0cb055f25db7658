/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_standin.c: host code for graph's kernels on the simulated card.
 */
#include "tests/simcuda/standin.h"

static void mix_values(const struct simcuda_launch *launch)
{
    uint32_t *words = *(uint32_t *const *)launch->params[0];
    uint64_t count = *(const uint64_t *)launch->params[1];
    uint32_t key = **(const uint32_t *const *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        words[i] = words[i] * 1664525u + (key ^ (uint32_t)i);
}

static void sum_values(const struct simcuda_launch *launch)
{
    const uint32_t *words = *(const uint32_t *const *)launch->params[0];
    uint64_t count = *(const uint64_t *)launch->params[1];
    uint64_t total = 0;

    for (uint64_t i = 0; i < count; i++)
        total += words[i];
    **(uint64_t *const *)launch->params[2] += total;
}

static const uint32_t three_params[] = {8, 8, 8};

const struct simcuda_kernel simcuda_kernels[] = {
    {"graph_mix", mix_values, 3, three_params},
    {"graph_sum", sum_values, 3, three_params},
    {0},
};
