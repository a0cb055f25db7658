/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc_churn_standin.c: host code for alloc_churn's kernel on the simulated card.
 */
#include "tests/simcuda/standin.h"

static void xor_bytes(const struct simcuda_launch *launch)
{
    uint8_t *bytes = *(uint8_t *const *)launch->params[0];
    uint64_t count = *(const uint64_t *)launch->params[1];
    uint32_t key = *(const uint32_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        bytes[i] ^= (uint8_t)(key + i);
}

static const uint32_t xor_params[] = {8, 8, 4};

const struct simcuda_kernel simcuda_kernels[] = {
    {"churn_xor", xor_bytes, 3, xor_params},
    {0},
};
