/* SPDX-License-Identifier: Apache-2.0
 *
 * pools.h: what the files of the program `pools` share.
 */
#pragma once

#include "tests/runtime/check.h"

/* pool_settings.c: a pool's attributes, its threshold, the current pool, the most it may hold. */
void pools_case_attributes(void);
void pools_case_threshold(void);
void pools_case_current(void);
void pools_case_most(void);

static inline CUstream stream_new(void)
{
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUmemoryPool pool_new(size_t most)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .maxSize = most};
    CUmemoryPool pool;

    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static inline uint64_t read_amount(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    uint64_t value = 0;

    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static inline CUmemoryPool default_pool(void)
{
    CUmemoryPool pool;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}
