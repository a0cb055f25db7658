/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.c: a program with managed memory, for test_managed.py. What it finds wrong it says on
 * stderr, and ends with 1.
 *
 *   managed work SIZE ROUNDS   launches ROUNDS kernels that touch SIZE of managed memory, then
 *                              compares every word of it; prints the milliseconds of that
 *   managed told               does what its stdin says, a line at a time (tell_result())
 *
 * The kernel adds 1 to a word in each 64 KiB, which costs nothing but the coming of its pages.
 */
#include <time.h>

#include "common/size.h"
#include "tests/runtime/check.h"

#define STEP ((size_t)64 << 10)

static void run_touch(const struct simcuda_launch *launch)
{
    uint8_t *bytes = *(uint8_t **)launch->params[0];
    const uint64_t count = *(const uint64_t *)launch->params[1];

    for (uint64_t at = 0; at < count; at += STEP)
        ++*(volatile uint64_t *)(bytes + at);
}

static const uint32_t touch_sizes[] = {8, 8};
__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"touch", run_touch, 2, touch_sizes}, {NULL, NULL, 0, NULL}};

static CUfunction load_kernel(void)
{
    CUmodule module;
    CUfunction function;

    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"));
    OK(cuModuleGetFunction(&function, module, "touch"));
    return function;
}

static void touch_memory(CUfunction function, CUdeviceptr address, uint64_t bytes)
{
    void *parameters[] = {&address, &bytes};

    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void fill_memory(CUdeviceptr address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += STEP)
        *(volatile uint64_t *)(address + at) = at;
}

/* by the processor, wherever the pages are */
static void expect_words(CUdeviceptr address, uint64_t bytes, uint64_t more)
{
    for (uint64_t at = 0; at < bytes; at += STEP)
        if (*(volatile uint64_t *)(address + at) != at + more) {
            fprintf(stderr, "managed: word at %#llx is %llu, must be %llu\n",
                    (unsigned long long)at,
                    (unsigned long long)*(volatile uint64_t *)(address + at),
                    (unsigned long long)(at + more));
            exit(1);
        }
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void run_work(uint64_t bytes, unsigned rounds)
{
    const CUfunction function = load_kernel();
    const uint64_t began = now_ms();
    CUdeviceptr address;

    OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    fill_memory(address, bytes);
    for (unsigned i = 0; i < rounds; i++) {
        touch_memory(function, address, bytes);
        if (i % 4 == 3)
            OK(cuCtxSynchronize());
    }
    OK(cuCtxSynchronize());
    printf("%llu\n", (unsigned long long)(now_ms() - began));
    expect_words(address, bytes, rounds);
    OK(cuMemFree(address));
}

/* --- told --- */

static CUdeviceptr block;
static size_t block_bytes;

static int read_attribute(CUmem_range_attribute which, size_t from, size_t bytes)
{
    int value = -99;

    OK(cuMemRangeGetAttribute(&value, sizeof value, which, block + from, bytes));
    return value;
}

/* What the program is told of the block's two halves. */
static void say_facts(void)
{
    int accessed[2] = {-99, -99};
    const size_t half = block_bytes / 2;

    OK(cuMemRangeGetAttribute(accessed, sizeof accessed, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                              block, block_bytes));
    printf("read-mostly %d %d preferred %d %d prefetched %d %d accessed %d %d\n",
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, half),
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, half, half),
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, half),
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, half, half),
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, half),
           read_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, half, half),
           accessed[0], accessed[1]);
}

static void advise_memory(void)
{
    const CUmemLocation card = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    const size_t half = block_bytes / 2;

    OK(cuMemAdvise(block, half, CU_MEM_ADVISE_SET_READ_MOSTLY, card));
    OK(cuMemAdvise(block + half, half, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    OK(cuMemAdvise(block, block_bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, card));
    OK(cuMemPrefetchAsync(block, half, card, 0, NULL));
    OK(cuCtxSynchronize());
}

static void tell_result(const char *word, size_t mib, CUfunction function)
{
    const unsigned flags = CU_MEM_ATTACH_GLOBAL;
    size_t left, total;
    CUdeviceptr other;

    if (strcmp(word, "alloc") == 0) {
        block_bytes = mib * MIB;
        OK(cuMemAllocManaged(&block, block_bytes, flags));
        fill_memory(block, block_bytes);
    } else if (strcmp(word, "touch") == 0) {
        touch_memory(function, block, block_bytes);
        OK(cuCtxSynchronize());
    } else if (strcmp(word, "expect") == 0) { /* after so many touches */
        expect_words(block, block_bytes, mib);
    } else if (strcmp(word, "free") == 0) {
        OK(cuMemFree(block));
    } else if (strcmp(word, "advise") == 0) {
        advise_memory();
    } else if (strcmp(word, "facts") == 0) {
        say_facts();
        return;
    } else if (strcmp(word, "device") == 0) { /* plain device memory beside it */
        OK(cuMemAlloc(&other, mib * MIB));
        OK(cuMemsetD8(other, 5, mib * MIB));
        OK(cuCtxSynchronize());
        OK(cuMemFree(other));
    } else if (strcmp(word, "attach") == 0) { /* 1 global, 2 host */
        OK(cuStreamAttachMemAsync(NULL, block, 0, (unsigned)mib));
        OK(cuCtxSynchronize());
    } else if (strcmp(word, "left") == 0) {
        OK(cuMemGetInfo(&left, &total));
        printf("%zu\n", left / MIB);
        return;
    } else {
        puts("what?");
        return;
    }
    puts("ok");
}

int main(int argc, char **argv)
{
    char line[64], word[32];
    uint64_t bytes;
    size_t mib;

    setvbuf(stdout, NULL, _IOLBF, 0);
    begin_context();
    if (argc == 4 && strcmp(argv[1], "work") == 0 && gs_size_parse(argv[2], &bytes) == 0) {
        run_work(bytes, (unsigned)strtoul(argv[3], NULL, 10));
    } else if (argc == 2 && strcmp(argv[1], "told") == 0) {
        const CUfunction function = load_kernel();

        while (fgets(line, sizeof line, stdin) != NULL) {
            mib = 0;
            /* NOLINTNEXTLINE(cert-err34-c): a test's small numbers */
            if (sscanf(line, "%31s %zu", word, &mib) >= 1)
                tell_result(word, mib, function);
        }
    } else {
        fprintf(stderr, "usage: managed work SIZE ROUNDS | told\n");
        return 2;
    }
    return 0;
}
