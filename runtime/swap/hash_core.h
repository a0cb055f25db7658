/* SPDX-License-Identifier: Apache-2.0
 *
 * hash_core.h: the hash of a block of device memory, for the GPU (kernels.cu), for the
 * simulated card and for the tests: the same text for all.
 *
 * The block's 32-bit words are the coefficients of a polynomial over the field of 2^61 - 1,
 * evaluated at two secret random points. Two different blocks of n words agree at a random
 * point with a probability of at most n / 2^61 (a polynomial has no more roots than its
 * degree), at both with n^2 / 2^122: 2^-84 for 2 MiB. A block of zeros, and practically no
 * other, has the hash 0, 0.
 *
 * Word 4 * (THREADS * i + t) + j (thread t, step i, j = 0..3) of a block of S steps stands at
 * the power 4 * THREADS * (S - 1 - i) + 4 * t + (3 - j) + 1, so that threads work on
 * neighbouring words and each needs only Horner's rule.
 */
#pragma once

#include <stdint.h>
#ifndef __CUDACC__
#include <string.h>
#endif

#ifdef __CUDACC__
#define GS_HASH_INLINE static __device__ __forceinline__
#else
#define GS_HASH_INLINE static inline
#endif

#define GS_HASH_THREADS                                                                        \
    1024u /* of a thread block; each takes 16 bytes at a time. As many as there may be: each of a \
             chunk's 64 blocks has one processor of the GPU, and must use all of it */
#define GS_HASH_PRIME  0x1fffffffffffffffull
#define GS_HASH_KERNEL "gs_hash_blocks"

__extension__ typedef unsigned __int128 gs_wide;

/* Reduces to a number below 2^61 + 2^6; for products of two such numbers, and for sums of a few
 * of them with 32-bit numbers. */
GS_HASH_INLINE uint64_t gs_hash_fold(gs_wide value)
{
    const uint64_t sum = ((uint64_t)value & GS_HASH_PRIME) + (uint64_t)(value >> 61);

    return (sum & GS_HASH_PRIME) + (sum >> 61);
}

GS_HASH_INLINE uint64_t gs_hash_times(uint64_t a, uint64_t b)
{
    return gs_hash_fold((gs_wide)a * b);
}

/* the only equivalent number in 0 .. prime - 1 */
GS_HASH_INLINE uint64_t gs_hash_final(uint64_t value)
{
    value = (value & GS_HASH_PRIME) + (value >> 61);
    return value >= GS_HASH_PRIME ? value - GS_HASH_PRIME : value;
}

GS_HASH_INLINE uint64_t gs_hash_power(uint64_t base, uint32_t exponent)
{
    uint64_t result = 1;

    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0)
            result = gs_hash_times(result, base);
        base = gs_hash_times(base, base);
    }
    return result;
}

struct gs_hash_point { /* a secret point and its powers that every step needs */
    uint64_t power[5]; /* [k]: to the k-th */
    uint64_t step;     /* to 4 * GS_HASH_THREADS */
};

GS_HASH_INLINE void gs_hash_prepare(struct gs_hash_point *point, uint64_t secret)
{
    point->power[0] = 1;
    for (unsigned i = 1; i < 5; i++)
        point->power[i] = gs_hash_times(point->power[i - 1], secret);
    point->step = gs_hash_power(secret, 4 * GS_HASH_THREADS);
}

/* one step of a thread: 16 bytes */
GS_HASH_INLINE uint64_t gs_hash_step(const struct gs_hash_point *point, uint64_t hash,
                                     uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    gs_wide sum = (gs_wide)hash * point->step;

    sum += (gs_wide)a * point->power[4];
    sum += (gs_wide)b * point->power[3];
    sum += (gs_wide)c * point->power[2];
    sum += (gs_wide)d * point->power[1];
    return gs_hash_fold(sum);
}

/* the part of the block's hash that comes from this thread */
GS_HASH_INLINE uint64_t gs_hash_place(const struct gs_hash_point *point, uint64_t hash,
                                      uint32_t thread)
{
    return gs_hash_times(hash, gs_hash_power(point->power[1], 4 * thread));
}

#ifndef __CUDACC__
/* All of a block's hash, by the processor. bytes: a multiple of 16. */
static inline void gs_hash_block(const char *from, uint64_t bytes,
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
#endif
