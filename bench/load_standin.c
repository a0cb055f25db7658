/* SPDX-License-Identifier: Apache-2.0
 *
 * load_standin.c: host code for load's kernels on the simulated card.
 */
#include "bench/load.h"
#include "tests/simcuda/standin.h"

static void fill_memory(const struct simcuda_launch *launch)
{
    uint32_t *words = *(uint32_t *const *)launch->params[0];
    const uint64_t count = *(const uint64_t *)launch->params[1];
    const uint64_t first = *(const uint64_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        words[i] = (uint32_t)(first + i) * LOAD_FIRST;
}

static void step_memory(const struct simcuda_launch *launch)
{
    uint32_t *words = *(uint32_t *const *)launch->params[0];
    const uint64_t count = *(const uint64_t *)launch->params[1];
    const uint32_t steps = *(const uint32_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++) {
        uint32_t value = words[i];

        for (uint32_t k = 0; k < steps; k++)
            value = value * LOAD_FACTOR + LOAD_ADDEND;
        words[i] = value;
    }
}

static const uint32_t fill_params[] = {8, 8, 8};
static const uint32_t step_params[] = {8, 8, 4};

const struct simcuda_kernel simcuda_kernels[] = {
    {"load_fill", fill_memory, 3, fill_params},
    {"load_step", step_memory, 3, step_params},
    {0},
};
