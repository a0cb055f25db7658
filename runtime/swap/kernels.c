/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.c: loads and launches the kernels of kernels.cu.
 *
 * State: the process's secret points, made when they are first needed. Client thread only.
 */
#include "runtime/swap/kernels.h"

#include <sys/random.h>

#include "runtime/swap/hash_core.h"
#include "runtime/range/host.h"

#define LOAD_ATTEMPTS 3 /* a full card may have no room for the code now */
#define OWN_CHUNK                                                                              \
    ((size_t)2 << 20) /* page-locked memory that the driver (580) cuts from no chunk */

extern const unsigned char
    gs_kernels_image[]; /* kernels_image.S; begins with 0: there is none */

static uint64_t secrets[2] GS_ZERO_IN_CHILD;

static bool have_secrets(void)
{
    for (unsigned i = 0; i < 2; i++)
        while (secrets[i] < 2) {
            if (getrandom(&secrets[i], sizeof secrets[i], 0) != sizeof secrets[i])
                return false;
            secrets[i] = gs_hash_final(secrets[i] & GS_HASH_PRIME);
        }
    return true;
}

bool gs_kernels_ready(struct gs_context *context)
{
    CUmodule module;
    CUresult result;

    if (context->hash != NULL)
        return true;
    if (context->kernel_attempts >= LOAD_ATTEMPTS || gs_kernels_image[0] == 0 ||
        !have_secrets())
        return false;
    context->kernel_attempts++;
    result = gs_driver.cuModuleLoadData(&module, gs_kernels_image);
    if (result == CUDA_SUCCESS)
        result = gs_driver.cuModuleGetFunction(&context->hash, module, GS_HASH_KERNEL);
    if (result == CUDA_SUCCESS)
        return true;
    context->hash = NULL;
    gs_log("the hash kernels cannot be loaded (CUresult %d): all memory is copied "
           "each time",
           result);
    return false;
}

CUresult gs_hash_queue(const struct gs_context *context, CUdeviceptr address, uint64_t bytes,
                       CUdeviceptr results, CUstream stream)
{
    const unsigned blocks = (unsigned)((bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES);
    uint64_t block = GS_BLOCK_BYTES;
    void *params[] = {&address, &bytes, &block, &secrets[0], &secrets[1], &results};

    return gs_driver.cuLaunchKernel(context->hash, blocks, 1, 1, GS_HASH_THREADS, 1, 1, 0,
                                    stream, params, NULL);
}

void gs_hash_on_host(const char *memory, uint64_t bytes, uint64_t result[2])
{
    struct gs_hash_point points[2];

    for (unsigned i = 0; i < 2; i++)
        gs_hash_prepare(&points[i], secrets[i]);
    gs_hash_block(memory, bytes, points, result);
}

uint64_t (*gs_hash_results(unsigned slots, CUdeviceptr *device))[GS_HASH_MOST][2]
{
    const size_t bytes = (size_t)slots * GS_HASH_MOST * 2 * sizeof(uint64_t);
    void *memory = NULL;

    /* not from the chunk of which the program's small pieces are cut: they would have our flags */
    if (gs_driver.cuMemHostAlloc(&memory, bytes < OWN_CHUNK ? OWN_CHUNK : bytes,
                                 CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
        return NULL;
    if (gs_driver.cuMemHostGetDevicePointer_v2(device, memory, 0) == CUDA_SUCCESS)
        return memory;
    gs_driver.cuMemFreeHost(memory);
    return NULL;
}
