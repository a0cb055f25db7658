/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_settings.c: cases of `pools` about what a program may ask of and set for a pool. One thread.
 */
#include "tests/runtime/pools.h"

#define STEP (32 * MIB) /* what is reserved is a number of these */

void pools_case_attributes(void)
{
    const CUmemPool_attribute used = CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                              used_high = CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                              reserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                              reserved_high = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    CUdeviceptr large, small;
    uint64_t number = 0;
    CUmemoryPool pool;
    CUstream stream;
    int flag = 0;

    begin_context();
    pool = pool_new(0);
    stream = stream_new();
    CHECK(read_amount(pool, used) == 0 && read_amount(pool, reserved) == 0);
    OK(cuMemAllocFromPoolAsync(&large, 10 * MIB, pool, stream));
    OK(cuMemAllocFromPoolAsync(&small, 1000, pool, stream));
    CHECK(read_amount(pool, used) == 10 * MIB + 1000);
    CHECK(read_amount(pool, reserved) >= read_amount(pool, used));
    OK(cuMemFreeAsync(large, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_amount(pool, used) == 1000);
    CHECK(read_amount(pool, reserved) <= STEP); /* the threshold is 0 */
    CHECK(read_amount(pool, used_high) >= 10 * MIB &&
          read_amount(pool, reserved_high) >= 10 * MIB);
    GIVES(cuMemPoolSetAttribute(pool, used_high, &(uint64_t){5}), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolSetAttribute(pool, used_high, &number));
    OK(cuMemPoolSetAttribute(pool, reserved_high, &number));
    CHECK(read_amount(pool, used_high) == read_amount(pool, used));
    CHECK(read_amount(pool, reserved_high) == read_amount(pool, reserved));
    GIVES(cuMemPoolSetAttribute(pool, used, &number), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag));
    flag = 7;
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag));
    CHECK(flag == 0);
    OK(cuMemFreeAsync(small, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_amount(pool, used) == 0 && read_amount(pool, reserved) == 0);
    OK(cuMemPoolDestroy(pool));
}

/* run with gpushare only: the simulated driver's own pools hold nothing back */
void pools_case_threshold(void)
{
    const CUmemPool_attribute reserved = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    uint64_t all = UINT64_MAX;
    CUdeviceptr a, b, c;
    CUmemoryPool pool;
    CUstream stream;
    uint64_t told = 0;

    begin_context();
    pool = default_pool();
    stream = stream_new();
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &told));
    CHECK(told == all);
    OK(cuMemAllocAsync(&a, 8 * MIB, stream));
    OK(cuMemAllocAsync(&b, 4 * MIB, stream));
    OK(cuMemsetD8Async(a, 1, 8 * MIB, stream)); /* what was never used may have no memory yet */
    OK(cuMemsetD8Async(b, 1, 4 * MIB, stream));
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemFreeAsync(b, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_amount(pool, reserved) == STEP);
    CHECK(read_amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuMemAllocAsync(&c, 8 * MIB, stream));
    CHECK(c == a && read_amount(pool, reserved) == STEP);
    OK(cuMemFreeAsync(c, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemPoolTrimTo(pool, 9 * MIB));
    CHECK(read_amount(pool, reserved) <= STEP);
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(read_amount(pool, reserved) == 0);
}

void pools_case_current(void)
{
    CUcontext context = begin_context();
    CUmemoryPool pool, other, found;
    CUdeviceptr address;
    CUstream stream;

    stream = stream_new();
    pool = pool_new(0);
    other = pool_new(0);
    OK(cuDeviceGetMemPool(&found, 0));
    CHECK(found == default_pool());
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuDeviceGetMemPool(&found, 0));
    CHECK(found == pool);
    OK(cuMemAllocAsync(&address, 3 * MIB, stream));
    CHECK(read_amount(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB);
    CHECK(read_amount(other, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address + 5));
    CHECK(found == pool);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address + 5));
    CHECK(context == NULL);
    OK(cuMemPoolDestroy(pool)); /* while memory of it lives, and while it is the current one */
    OK(cuDeviceGetMemPool(&found, 0));
    CHECK(found == default_pool());
    OK(cuMemsetD8Async(address, 7, 3 * MIB, stream));
    OK(cuStreamSynchronize(stream));
    expect_bytes(address, 3 * MIB, 7);
    OK(cuMemFreeAsync(address, stream));
    GIVES(cuMemPoolDestroy(default_pool()), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(other));
    OK(cuStreamSynchronize(stream));
}

void pools_case_most(void)
{
    CUdeviceptr a, b;
    CUmemoryPool pool;
    CUstream stream;

    begin_context();
    pool = pool_new(16 * MIB); /* the driver takes whole steps */
    stream = stream_new();
    OK(cuMemAllocFromPoolAsync(&a, 20 * MIB, pool, stream));
    OK(cuMemsetD8Async(a, 1, 20 * MIB,
                       stream)); /* what was never used may have no memory yet */
    GIVES(cuMemAllocFromPoolAsync(&b, 14 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(a, stream));
    OK(cuMemAllocFromPoolAsync(&b, 20 * MIB, pool, stream));
    CHECK(a == b);
    OK(cuMemFreeAsync(b, stream));
}
