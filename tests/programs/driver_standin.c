/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_standin.c: host code for the kernel of driver_api and dlopen_driver on the simulated
 * card.
 */
#include "tests/simcuda/standin.h"

static void scale_values(const struct simcuda_launch *launch)
{
    uint32_t *words = *(uint32_t *const *)launch->params[0];
    uint64_t count = *(const uint64_t *)launch->params[1];
    uint32_t factor = *(const uint32_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        words[i] = words[i] * factor + (uint32_t)i;
}

static const uint32_t scale_params[] = {8, 8, 4};

const struct simcuda_kernel simcuda_kernels[] = {
    {"driver_scale", scale_values, 3, scale_params},
    {0},
};
