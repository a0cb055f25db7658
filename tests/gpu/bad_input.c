/* SPDX-License-Identifier: Apache-2.0
 *
 * bad_input.c: calls the driver's memory functions as they must not be called, and says what
 * they answered: one line a call, "case step: CUresult". Run with GPUSHARE_DISABLE=1 and
 * without, the two outputs must be equal, on the simulated card and on a real one (test_bad_input.py
 * compares).
 *
 * Every case has a process of its own, since the answer may be a crash inside the driver or an
 * error that the context keeps; the former ends the case with "signal N". Behind each case
 * memory that it had nothing to do with must hold what it held, and what is free must be as
 * before.
 *
 *   bad_input [CASE]     one case only
 *
 * Built without CUDA libraries: everything by dlsym.
 */
#include "tests/gpu/bad_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_SIZE ((size_t)1 << 50)
#define PATTERN   0x5b
#define LEEWAY    (4 * MIB) /* a driver keeps a little */

void *driver;
static const char *running;
CUdeviceptr kept;
CUstream stream;
unsigned char host[4096];

void show(const char *step, CUresult result)
{
    printf("%s %s: %d\n", running, step, (int)result);
    fflush(stdout);
}

void show_true(const char *step, int value)
{
    printf("%s %s: %s\n", running, step, value ? "yes" : "no");
    fflush(stdout);
}

/* --- the calls --- */

CUresult allocate(CUdeviceptr *p, size_t bytes)
{
    return CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(p, bytes);
}

CUresult release(CUdeviceptr p)
{
    return CALL(cuMemFree_v2, cuMemFree_v3020)(p);
}

CUresult allocate_async(CUdeviceptr *p, size_t bytes)
{
    return CALL(cuMemAllocAsync, cuMemAllocAsync_v11020)(p, bytes, stream);
}

CUresult release_async(CUdeviceptr p)
{
    return CALL(cuMemFreeAsync, cuMemFreeAsync_v11020)(p, stream);
}

CUresult set(CUdeviceptr p, size_t bytes)
{
    const CUresult result = CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(p, 7, bytes);

    return result == CUDA_SUCCESS ? CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)() : result;
}

static CUresult address_range(CUdeviceptr p)
{
    CUdeviceptr base;
    size_t size;

    return CALL(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020)(&base, &size, p);
}

static CUresult memory_type(CUdeviceptr p)
{
    unsigned type;

    return CALL(cuPointerGetAttribute,
                cuPointerGetAttribute_v4000)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
}

static size_t free_bytes(void)
{
    size_t left = 0, total = 0;

    CALL(cuMemGetInfo_v2, cuMemGetInfo_v3020)(&left, &total);
    return left;
}

static CUdeviceptr have_memory(size_t bytes)
{
    CUdeviceptr p = 0;

    show("allocate", allocate(&p, bytes));
    return p;
}

/* --- allocation --- */

static void alloc_sizes(void)
{
    static const size_t sizes[] = {
        0, SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - 2 * MIB + 1, HUGE_SIZE, SIZE_MAX / 2 + 1};
    size_t left, total = 0;
    CUdeviceptr p = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        show("size", allocate(&p, sizes[i]));
    CALL(cuMemGetInfo_v2, cuMemGetInfo_v3020)(&left, &total);
    show("more than there is", allocate(&p, total + 1));
    show("NULL", allocate(NULL, 100));
    show("NULL and 0", allocate(NULL, 0));
}

static void pitch_sizes(void)
{
    static const size_t sizes[][2] = {{0, 10},
                                      {10, 0},
                                      {SIZE_MAX, 1},
                                      {SIZE_MAX, 2},
                                      {SIZE_MAX - 511, 1},
                                      {HUGE_SIZE, HUGE_SIZE},
                                      {1, SIZE_MAX},
                                      {(size_t)1 << 32, (size_t)1 << 32},
                                      {1 << 20, 1 << 30}};
    CUdeviceptr p = 0;
    size_t pitch = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        show("sizes", CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(&p, &pitch, sizes[i][0],
                                                                      sizes[i][1], 4));
    for (unsigned element = 0; element < 33; element += element < 4 ? 1 : 4)
        if (element != 4 && element != 8 && element != 16)
            show("element",
                 CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(&p, &pitch, 100, 10, element));
    show("NULL", CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(NULL, &pitch, 100, 10, 4));
    show("NULL pitch", CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(&p, NULL, 100, 10, 4));
}

static void async_sizes(void)
{
    static const size_t sizes[] = {0, SIZE_MAX, SIZE_MAX - 511, HUGE_SIZE, SIZE_MAX / 2 + 1};
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool = NULL;
    CUdeviceptr p = 0;

    show("pool", CALL(cuMemPoolCreate, cuMemPoolCreate_v11020)(&pool, &props));
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        show("size", allocate_async(&p, sizes[i]));
        show("of a pool", CALL(cuMemAllocFromPoolAsync,
                               cuMemAllocFromPoolAsync_v11020)(&p, sizes[i], pool, stream));
    }
    show("NULL", allocate_async(NULL, 100));
    show("of a pool, NULL", CALL(cuMemAllocFromPoolAsync,
                                 cuMemAllocFromPoolAsync_v11020)(NULL, 100, pool, stream));
    show("pool destroy", CALL(cuMemPoolDestroy, cuMemPoolDestroy_v11020)(pool));
}

static void no_pool(void)
{
    CUdeviceptr p = 0;

    show("pool NULL",
         CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_v11020)(&p, 100, NULL, stream));
}

/* --- freeing --- */

static void free_foreign(void)
{
    CUdeviceptr p = have_memory(5 * MIB), small = have_memory(1000);

    show("0", release(0));
    show("small number", release(0x1234));
    show("host", release((CUdeviceptr)(uintptr_t)host));
    show("largest", release(UINT64_MAX));
    show("inside 1", release(p + 1));
    show("inside 512", release(p + 512));
    show("last byte", release(p + 5 * MIB - 1));
    show("inside small", release(small + 512));
    show("right", release(p));
    show("right small", release(small));
}

static void free_twice(void)
{
    static const size_t sizes[] = {1, 1000, MIB, 2 * MIB, 5 * MIB, 70 * MIB};

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr p = have_memory(sizes[i]);

        show("free", release(p));
        show("again", release(p));
        show("inside", release(p + 1));
    }
}

static void free_async_foreign(void)
{
    CUdeviceptr p = 0;

    show("async", allocate_async(&p, 5 * MIB));
    show("0", release_async(0));
    show("small number", release_async(0x1234));
    show("inside", release_async(p + 512));
    show("free inside", release(p + 512));
    show("right", release_async(p));
}

/* --- over the end --- */

/* Begins in the allocation and leads out of it. */
static void over_end(void)
{
    static unsigned char bytes[512];
    const CUdeviceptr p = have_memory(6 * MIB), last = p + 6 * MIB - 256;

    show("all of the end", CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(bytes, last, 256));
    show("to the host", CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(bytes, last, 512));
    show("from the host", CALL(cuMemcpyHtoD_v2, cuMemcpyHtoD_v3020)(last, bytes, 512));
    show("from it", CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(kept, last, 512));
    show("to it", CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(last, kept, 512));
    show("later",
         CALL(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v3020)(bytes, last, 512, stream));
    show("set", set(last, 512));
    show("set words", CALL(cuMemsetD32_v2, cuMemsetD32_v3020)(last, 7, 128));
    show("synchronize", CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)());
    show("free", release(p));
}

/* --- asking --- */

static void ask_cases(void)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    unsigned type = 77;
    CUdeviceptr device = 77, p = have_memory(5 * MIB), small = have_memory(1000);
    void *values[] = {&type, &device};
    PFN_cuPointerGetAttributes_v7000 all =
        CALL(cuPointerGetAttributes, cuPointerGetAttributes_v7000);

    show("range of 0", address_range(0));
    show("range of a small number", address_range(0x1234));
    show("range of the host", address_range((CUdeviceptr)(uintptr_t)host));
    show("range behind small", address_range(small + 1000));
    show("range, nothing wanted",
         CALL(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020)(NULL, NULL, p));
    show("type of 0", memory_type(0));
    show("type of a small number", memory_type(0x1234));
    show("type to NULL", CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(
                             NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    show("attribute 0", CALL(cuPointerGetAttribute,
                             cuPointerGetAttribute_v4000)(&device, (CUpointer_attribute)0, p));
    show("attribute 9999", CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(
                               &device, (CUpointer_attribute)9999, p));
    show("none", all(0, attributes, values, p));
    show("no attributes", all(2, NULL, values, p));
    show("no values", all(2, attributes, NULL, p));
    show("both", all(2, attributes, values, p));
    show_true("device memory, that address", type == CU_MEMORYTYPE_DEVICE && device == p);
    show("free", release(p));
    show("free small", release(small));
    show("range after free", address_range(p));
    show("range after free, inside", address_range(p + MIB));
    show("type after free", memory_type(p));
    show("type after free, small", memory_type(small));
    type = 77;
    device = 77;
    show("both after free", all(2, attributes, values, p));
    show_true("type 0, address 0", type == 0 && device == 0);
}

/* --- one process for each --- */

static const struct bad_case cases[] = {
    {"alloc_sizes", alloc_sizes},
    {"pitch_sizes", pitch_sizes},
    {"async_sizes", async_sizes},
    {"no_pool", no_pool},
    {"free_foreign", free_foreign},
    {"free_twice", free_twice},
    {"free_async_foreign", free_async_foreign},
    {"over_end", over_end},
    {"ask", ask_cases},
    {NULL, NULL},
};

static void set_up(void)
{
    CUcontext context;
    CUresult result;

    alarm(120); /* nothing of this may hang */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || CALL(cuInit, cuInit_v2000)(0) != CUDA_SUCCESS)
        _exit(77);
    result = CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000)(&context, 0);
    if (result == CUDA_SUCCESS)
        result = CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(context);
    if (result == CUDA_SUCCESS)
        result = CALL(cuStreamCreate, cuStreamCreate_v2000)(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = allocate(&kept, KEPT);
    if (result == CUDA_SUCCESS)
        result = CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(kept, PATTERN, KEPT);
    if (result != CUDA_SUCCESS) {
        printf("%s: the card cannot be used: %d\n", running, (int)result);
        exit(1);
    }
}

/* What had nothing to do with the case is as it was. (A case may write to its first bytes.) */
static void look_after(size_t left)
{
    unsigned char first = 0, last = 0;
    CUdeviceptr p = 0;

    if (CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)() != CUDA_SUCCESS)
        return; /* the context is broken, on both sides */
    show("look", CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&first, kept + 4096, 1));
    show("look", CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&last, kept + KEPT - 1, 1));
    show_true("memory holds what it held", first == PATTERN && last == PATTERN);
    show_true("what is free is as before", free_bytes() + LEEWAY >= left);
    show("allocate", allocate(&p, 3 * MIB));
    show("use", set(p, 3 * MIB));
    show("free", release(p));
    show("free kept", release(kept));
}

static void run_case(const char *name, void (*run)(void))
{
    const pid_t pid = fork();
    int status = 0;

    running = name;
    if (pid == 0) {
        size_t left;

        set_up();
        left = free_bytes();
        run();
        look_after(left);
        exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", name, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        exit(WEXITSTATUS(status));
}

static void run_cases(const struct bad_case *at, const char *only)
{
    for (; at->name != NULL; at++)
        if (only == NULL || strcmp(only, at->name) == 0)
            run_case(at->name, at->run);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;

    setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is left in it when a process begins */
    run_cases(cases, only);
    run_cases(freed_cases, only);
    run_cases(vmm_cases, only);
    return 0;
}
