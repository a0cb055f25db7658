/* SPDX-License-Identifier: Apache-2.0
 *
 * many.c: many live allocations: what a call costs among them, and what the books take.
 *
 *   many COUNT BYTES
 *
 * Says "ready" and waits for a line, so that the test can take the card away first; then one
 * line "allocate=NS find=NS free=NS books=BYTES", the times medians of the last calls (find: of
 * random addresses, free: of random allocations), books: heap memory for each allocation.
 */
#include <malloc.h>
#include <time.h>

#include "tests/runtime/check.h"
#include "tests/runtime/random.h"

#define SAMPLES 1000

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static uint64_t samples[SAMPLES];

static uint64_t read_clock(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); /* the machine may be busy */
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;

    return (one > two) - (one < two);
}

static unsigned long long find_median(void)
{
    qsort(samples, SAMPLES, sizeof samples[0], compare_times);
    return samples[SAMPLES / 2];
}

static size_t measure_heap(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

int main(int argc, char **argv)
{
    const size_t count = argc == 3 ? strtoull(argv[1], NULL, 10) : 0,
                 bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    unsigned long long allocate, find, release;
    CUdeviceptr *list, base;
    uint64_t seed = 1, start;
    size_t before, books, size;

    if (count < 2ul * SAMPLES || bytes == 0) {
        fprintf(stderr, "usage: many COUNT BYTES\n");
        return 2;
    }
    list = calloc(count + 1, sizeof *list);
    CHECK(list != NULL);
    begin_context();
    OK(cuMemAlloc(&list[count], bytes));
    printf("ready\n");
    fflush(stdout);
    getchar();
    before = measure_heap();
    for (size_t i = 0; i < count; i++) {
        start = read_clock();
        OK(cuMemAlloc(&list[i], bytes));
        samples[i % SAMPLES] = read_clock() - start;
    }
    allocate = find_median();
    books = (measure_heap() - before) / count;
    for (size_t i = 0; i < SAMPLES; i++) {
        const CUdeviceptr at = list[random_below(&seed, count)];

        start = read_clock();
        OK(cuMemGetAddressRange(&base, &size, at + bytes - 1));
        samples[i] = read_clock() - start;
        CHECK(base == at && size == bytes);
    }
    find = find_median();
    for (size_t i = 0; i < SAMPLES; i++) {
        const size_t which = random_below(&seed, count);
        const CUdeviceptr at = list[which];

        list[which] = list[0];
        list[0] = 0;
        while (list[0] == 0 && which != 0) /* another one takes its place */
            OK(cuMemAlloc(&list[0], bytes));
        start = read_clock();
        OK(cuMemFree(at));
        samples[i] = read_clock() - start;
        if (which == 0)
            OK(cuMemAlloc(&list[0], bytes));
    }
    release = find_median();
    printf("allocate=%llu find=%llu free=%llu books=%zu\n", allocate, find, release, books);
    free(list);
    return 0;
}
