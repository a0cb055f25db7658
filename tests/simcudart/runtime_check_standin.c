/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check_standin.c: host code for runtime_check's kernel on the simulated card.
 */
#include "tests/simcuda/standin.h"

static void add_vectors(const struct simcuda_launch *launch)
{
    int *words = *(int *const *)launch->params[0];
    int count = *(const int *)launch->params[1];
    int more = *(const int *)launch->params[2];

    for (int i = 0; i < count; i++)
        words[i] += more;
}

static const uint32_t add_params[] = {8, 4, 4};

const struct simcuda_kernel simcuda_kernels[] = {
    {"check_add", add_vectors, 3, add_params},
    {0},
};
