/* SPDX-License-Identifier: Apache-2.0
 *
 * builtin.c: the stand-in for the one kernel that gpushare's own library runs on the card
 * (runtime/swap/kernels.cu), so that what it decides by a block's hash is decided here as well: the
 * same hash of the same bytes.
 *
 * SIMCUDA_BUILTIN=0: it is not there, as on a card that the library has no code for. No state;
 * the stand-in runs on a stream's worker, once for all thread blocks of a launch.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/swap/hash_core.h"
#include "tests/simcuda/module.h"

static void run_hash_blocks(const struct simcuda_launch *launch)
{
    const char *base = *(char *const *)launch->params[0];
    const uint64_t bytes = *(const uint64_t *)launch->params[1];
    const uint64_t block = *(const uint64_t *)launch->params[2];
    uint64_t(*results)[2] = *(uint64_t(*const *)[2])launch->params[5];
    struct gs_hash_point points[2];

    for (unsigned i = 0; i < 2; i++)
        gs_hash_prepare(&points[i], *(const uint64_t *)launch->params[3 + i]);
    for (uint64_t i = 0; i < launch->grid[0]; i++) {
        const uint64_t left = bytes - i * block;

        gs_hash_block(base + i * block, left < block ? left : block, points, results[i]);
    }
}

static const uint32_t hash_sizes[] = {8, 8, 8, 8, 8, 8};
static const struct simcuda_kernel hash = {GS_HASH_KERNEL, run_hash_blocks, 6, hash_sizes};

bool sim_is_builtin(const struct simcuda_kernel *kernel)
{
    return kernel == &hash;
}

const struct simcuda_kernel *sim_builtin_find(const char *name)
{
    const char *wanted = getenv("SIMCUDA_BUILTIN");

    if (wanted && strcmp(wanted, "0") == 0)
        return NULL;
    return strcmp(name, hash.name) == 0 ? &hash : NULL;
}
