/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: memory pools. Allocation from them is in stream.c, because it is ordered by a stream.
 *
 * Stateless; any thread. Structs and numbers of the runtime are the driver's own under other
 * names.
 */
#include "simcudart.h"

#include <string.h>

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuDeviceGetDefaultMemPool)(pool, device)));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(error ?: simcudart_result(DRIVER(cuDeviceGetMemPool)(pool, device)));
}

cudaError_t cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(error ?: simcudart_result(DRIVER(cuDeviceSetMemPool)(device, pool)));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolTrimTo)(pool, keep)));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void *value)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolSetAttribute)(
                                     pool, (CUmemPool_attribute)(int)attribute, value)));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void *value)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolGetAttribute)(
                                     pool, (CUmemPool_attribute)(int)attribute, value)));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const struct cudaMemAccessDesc *descriptors, size_t count)
{
    _Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "the same");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolSetAccess)(
                                     pool, (const CUmemAccessDesc *)descriptors, count)));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *properties)
{
    _Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "the same");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolCreate)(
                                     pool, (const CUmemPoolProps *)properties)));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemPoolDestroy)(pool)));
}
