/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime_check.cuh: how the parts of runtime_check.cu say what they expect, and what runs on the card.
 */
#pragma once

#include <atomic>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <unistd.h>
#include <vector>

static int failures;

#define GIVES(call, expected) gives((call), (expected), #call, __FILE__, __LINE__)
#define WORKS(call)           gives((call), cudaSuccess, #call, __FILE__, __LINE__)
#define TRUE(condition)       holds((condition), #condition, __FILE__, __LINE__)

static void gives(cudaError_t got, cudaError_t expected, const char *what,
                  const char *file, int line)
{
    if (got == expected)
        return;
    printf("%s:%d: %s gave %s, not %s\n", file, line, what, cudaGetErrorName(got),
           cudaGetErrorName(expected));
    failures++;
}

static void holds(bool condition, const char *what,
                  const char *file, int line)
{
    if (condition)
        return;
    printf("%s:%d: not so: %s\n", file, line, what);
    failures++;
}

__device__ int device_words[16];
__constant__ int constant_words[4];
__managed__ int managed_word = 17;

extern "C" __global__ void check_add(int *words, int count, int more)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        words[i] += more;
}
