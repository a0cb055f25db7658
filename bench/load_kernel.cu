/* SPDX-License-Identifier: Apache-2.0
 *
 * load_kernel.cu: the kernel of load. Compiled into a fat binary that load carries as data.
 */
#include "load.h"

#include <stdint.h>

/* The first values; `first` is the number of the first word. */
extern "C" __global__ void load_fill(uint32_t *words, uint64_t count, uint64_t first)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        words[i] = (uint32_t)(first + i) * LOAD_FIRST;
}

/* Reads every word and writes it after so many steps. */
extern "C" __global__ void load_step(uint32_t *words, uint64_t count, uint32_t steps)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t value = words[i];

        for (uint32_t step = 0; step < steps; step++)
            value = value * LOAD_FACTOR + LOAD_ADDEND;
        words[i] = value;
    }
}
