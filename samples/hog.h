/* SPDX-License-Identifier: Apache-2.0
 *
 * hog.h: what hog writes into memory. Used by its kernels, by their stand-ins and by the check
 * on the host.
 *
 * Word w of page p after step s is base(seed, p, s) + w * HOG_STRIDE (mod 2^64): cheap to make,
 * different for every page and step, and the sum over a page is known without making it.
 */
#pragma once

#include "sample.h"

#define HOG_PAGE    4096u /* bytes */
#define HOG_WORDS   (HOG_PAGE / 8u)
#define HOG_STRIDE  UINT64_C(0x9e3779b97f4a7c15)
#define HOG_NO_PAGE UINT64_MAX /* first_bad when every page was right */

#ifdef __CUDACC__
#define HOG_BOTH __host__ __device__
#else
#define HOG_BOTH
#endif

HOG_BOTH static inline uint64_t hog_base(uint64_t seed, uint64_t page, uint64_t step)
{
    return sample_mix(seed + page * UINT64_C(0xd1342543de82ef95) + step * HOG_STRIDE);
}

HOG_BOTH static inline uint64_t hog_sum(uint64_t seed, uint64_t page, uint64_t step)
{
    return hog_base(seed, page, step) * HOG_WORDS +
           HOG_STRIDE * (uint64_t)(HOG_WORDS * (HOG_WORDS - 1) / 2);
}
