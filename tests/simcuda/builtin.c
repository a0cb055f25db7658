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

/* bytes: a multiple of 16 */
static void hash_block(const unsigned char *from, uint64_t bytes,
                       const struct gs_hash_point points[2], uint64_t result[2])
{
    uint64_t hashes[2][GS_HASH_THREADS] = {{0}};
    const uint64_t length = bytes / 16;
    const uint64_t steps = (length + GS_HASH_THREADS - 1) / GS_HASH_THREADS;

    for (uint64_t at = 0; at < steps * GS_HASH_THREADS; at++) {
        const unsigned thread = (unsigned)(at % GS_HASH_THREADS);
        uint32_t words[4] = {0};

        if (at < length)
            memcpy(words, from + at * 16, sizeof words);
        for (unsigned i = 0; i < 2; i++)
            hashes[i][thread] = gs_hash_step(&points[i], hashes[i][thread], words[0], words[1],
                                             words[2], words[3]);
    }
    for (unsigned i = 0; i < 2; i++) {
        result[i] = 0;
        for (unsigned thread = 0; thread < GS_HASH_THREADS; thread++)
            result[i] =
                gs_hash_final(result[i] + gs_hash_place(&points[i], hashes[i][thread], thread));
    }
}

static void run_hash_blocks(const struct simcuda_launch *launch)
{
    const unsigned char *base = *(unsigned char *const *)launch->params[0];
    const uint64_t bytes = *(const uint64_t *)launch->params[1];
    const uint64_t block = *(const uint64_t *)launch->params[2];
    uint64_t(*results)[2] = *(uint64_t(*const *)[2])launch->params[5];
    struct gs_hash_point points[2];

    for (unsigned i = 0; i < 2; i++)
        gs_hash_prepare(&points[i], *(const uint64_t *)launch->params[3 + i]);
    for (uint64_t i = 0; i < launch->grid[0]; i++) {
        const uint64_t left = bytes - i * block;

        hash_block(base + i * block, left < block ? left : block, points, results[i]);
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
