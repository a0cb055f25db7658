// SPDX-License-Identifier: Apache-2.0
//
// kernels.cu: what the library runs on the GPU. Built into it as data (kernels_image.S), loaded into the program's contexts
// when their memory first moves.
#include "runtime/swap/hash_core.h"

// Hashes blocks of device memory (hash_core.h), one thread block for each.
// base: 16-byte aligned; bytes: a multiple of 16; block: bytes of each but the last; results: two words a block
extern "C" __global__ void __launch_bounds__(GS_HASH_THREADS)
    gs_hash_blocks(const uint4 *base, uint64_t bytes, uint64_t block, uint64_t secret0, uint64_t secret1,
                   uint64_t *results)
{
    __shared__ uint64_t sums[2][GS_HASH_THREADS];
    const uint64_t from = blockIdx.x * block / 16;
    const uint64_t length = (bytes - blockIdx.x * block < block ? bytes - blockIdx.x * block : block) / 16;
    const uint64_t steps = (length + GS_HASH_THREADS - 1) / GS_HASH_THREADS;
    const uint32_t thread = threadIdx.x;
    struct gs_hash_point points[2];
    uint64_t hashes[2] = {0, 0};

    gs_hash_prepare(&points[0], secret0);
    gs_hash_prepare(&points[1], secret1);
#pragma unroll 4
    for (uint64_t i = 0; i < steps; i++) {
        const uint64_t at = i * GS_HASH_THREADS + thread;
        const uint4 words = at < length ? base[from + at] : make_uint4(0, 0, 0, 0);

        hashes[0] = gs_hash_step(&points[0], hashes[0], words.x, words.y, words.z, words.w);
        hashes[1] = gs_hash_step(&points[1], hashes[1], words.x, words.y, words.z, words.w);
    }
    sums[0][thread] = gs_hash_place(&points[0], hashes[0], thread);
    sums[1][thread] = gs_hash_place(&points[1], hashes[1], thread);
    for (uint32_t half = GS_HASH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            sums[0][thread] = gs_hash_final(sums[0][thread] + sums[0][thread + half]);
            sums[1][thread] = gs_hash_final(sums[1][thread] + sums[1][thread + half]);
        }
    }
    if (thread < 2)
        results[2 * blockIdx.x + thread] = gs_hash_final(sums[thread][0]);
}
