/* SPDX-License-Identifier: Apache-2.0
 *
 * alone.c: a program's ordinary work, for the ways in which the library finds that it must run
 * without sharing (test_alone.py). Every call must come back, and every byte be right.
 *
 *   alone work            that
 *   alone numbers         ... with no number left for a descriptor from the first context on
 */
#include <pthread.h>
#include <unistd.h>

#include "tests/runtime/check.h"
#include "tests/runtime/numbers.h"

#define BLOCK  (8 * MIB)
#define ROUNDS 40 /* of BLOCK: several times the card */

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static void allocate_and_free(void)
{
    CUdeviceptr address;

    OK(cuMemAlloc(&address, BLOCK));
    OK(cuMemsetD8(address, 3, BLOCK));
    OK(cuCtxSynchronize());
    expect_bytes(address, BLOCK, 3);
    OK(cuMemFree(address));
    OK(cuMemAlloc(&address, 1000));
    OK(cuMemsetD8(address, 4, 1000));
    expect_bytes(address, 1000, 4);
    OK(cuMemFree(address));
}

/* What is freed in stream order must come back, too, with nobody to look after it. */
static void churn_in_order(void)
{
    CUdeviceptr address;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        OK(cuMemAllocAsync(&address, BLOCK, stream));
        OK(cuMemsetD8Async(address, (unsigned char)i, BLOCK, stream));
        OK(cuMemFreeAsync(address, stream));
        if (i % 2 != 0)
            OK(cuStreamSynchronize(stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

/* memory of the program's own making */
static void map_own(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    OK(cuMemAddressReserve(&address, BLOCK, 0, 0, 0));
    OK(cuMemCreate(&handle, BLOCK, &prop, 0));
    OK(cuMemMap(address, BLOCK, 0, handle, 0));
    OK(cuMemSetAccess(address, BLOCK, &access, 1));
    OK(cuMemsetD8(address, 5, BLOCK));
    expect_bytes(address, BLOCK, 5);
    OK(cuMemUnmap(address, BLOCK));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, BLOCK));
}

static void *work_in_thread(void *context)
{
    OK(cuCtxSetCurrent(context));
    allocate_and_free();
    return NULL;
}

int main(int argc, char **argv)
{
    CUcontext context, second;
    pthread_t thread;

    CHECK(argc == 2);
    OK(cuInit(0));
    if (strcmp(argv[1], "numbers") == 0) {
        const int next = dup(STDERR_FILENO);

        CHECK(next >= 0 && close(next) == 0);
        limit_numbers((size_t)next);
    }
    context = begin_context();
    allocate_and_free();
    churn_in_order();
    map_own();
    CHECK(pthread_create(&thread, NULL, work_in_thread, context) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(cuCtxCreate(&second, NULL, 0,
                   0)); /* another chance for the library, which changes nothing */
    allocate_and_free();
    OK(cuCtxDestroy(second));
    puts("ok");
    return 0;
}
