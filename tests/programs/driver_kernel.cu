/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_kernel.cu: the kernel of driver_api and dlopen_driver. Compiled into a fat binary that
 * both carry as data.
 */
#include <stdint.h>

extern "C" __global__ void driver_scale(uint32_t *words, uint64_t count, uint32_t factor)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
         i += (uint64_t)gridDim.x * blockDim.x)
        words[i] = words[i] * factor + (uint32_t)i;
}
