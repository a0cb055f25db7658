/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil_kernels.cu: the kernels of turmoil on a real card; their stand-ins for the simulated
 * one are in turmoil_card.c. Compiled into a fat binary that the program carries as data.
 */
#include <stdint.h>

#define CYCLE ((uint64_t)1 << 20)

struct report {
    unsigned long long count, kernel, address, word, got, wanted;
};

__device__ static void wait_ns(uint64_t ns)
{
    uint64_t begin, now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

__device__ static bool is_wrong(const volatile uint64_t *at, uint64_t word, uint64_t wanted, unsigned kernel, struct report *report)
{
    const uint64_t got = at[word];

    if (got == wanted)
        return false;
    if (atomicAdd_system(&report->count, 1ull) == 0) {
        report->kernel = kernel;
        report->address = (uint64_t)at;
        report->word = word;
        report->got = got;
        report->wanted = wanted;
        __threadfence_system();
    }
    return true;
}

__device__ static uint64_t first_word()
{
    return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ static uint64_t next_word()
{
    return gridDim.x * (uint64_t)blockDim.x;
}

extern "C" __global__ void turmoil_fill(uint64_t *to, uint64_t words, uint64_t base, uint64_t ns, struct report *report)
{
    wait_ns(ns / 2);
    for (uint64_t i = first_word(); i < words; i += next_word())
        to[i] = base + i % CYCLE;
    wait_ns(ns / 2);
    for (uint64_t i = first_word(); i < words; i += next_word())
        if (is_wrong(to, i, base + i % CYCLE, 0, report))
            return;
}

extern "C" __global__ void turmoil_check(const uint64_t *from, uint64_t words, uint64_t base, uint64_t step, uint64_t ns,
                                         struct report *report)
{
    for (int round = 0; round < 2; round++) {
        wait_ns(ns / 2);
        for (uint64_t i = first_word(); i < words; i += next_word())
            if (is_wrong(from, i, base + i % CYCLE * step, 1 + round, report))
                return;
    }
}

extern "C" __global__ void turmoil_chain(uint64_t *to, const uint64_t *from, uint64_t words, uint64_t base, uint64_t step,
                                         uint64_t to_base, uint64_t ns, struct report *report)
{
    wait_ns(ns);
    for (uint64_t i = first_word(); i < words; i += next_word()) {
        if (is_wrong(from, i, base + i % CYCLE * step, 3, report))
            return;
        to[i] = to_base + i % CYCLE;
    }
}

extern "C" __global__ void turmoil_bump(uint64_t *at, uint64_t words, uint64_t ns)
{
    wait_ns(ns);
    for (uint64_t i = first_word(); i < words; i += next_word())
        at[i]++;
}
