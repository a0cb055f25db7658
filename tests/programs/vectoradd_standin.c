/* SPDX-License-Identifier: Apache-2.0
 *
 * vectoradd_standin.c: host code for vectoradd's kernel on the simulated card.
 */
#include "tests/simcuda/standin.h"

static void add_vectors(const struct simcuda_launch *launch)
{
    const float *a = *(const float *const *)launch->params[0];
    const float *b = *(const float *const *)launch->params[1];
    float *sum = *(float *const *)launch->params[2];
    uint64_t count = *(const uint64_t *)launch->params[3];

    for (uint64_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

static const uint32_t add_params[] = {8, 8, 8, 8};

const struct simcuda_kernel simcuda_kernels[] = {
    {"vector_add", add_vectors, 4, add_params},
    {0},
};
