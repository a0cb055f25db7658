/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_arrays.c: creation and destruction of arrays. They stay on the card, and are counted
 * (memory/arrays.h). No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/memory/arrays.h"

/* the driver's call; then the array is counted */
#define MAKE(call, handle, shape, levels)                                                      \
    const CUresult result = GS_READY(GS_IN_ROOM(NULL, gs_driver.call));                        \
                                                                                               \
    if (result == CUDA_SUCCESS && !gs_runtime.config.disabled)                                 \
        gs_arrays_made(handle, gs_arrays_bytes(shape, levels));                                \
    if (result != CUDA_SUCCESS)                                                                \
        gs_context_failed(NULL, result);                                                       \
    return result

CUresult __wrap_cuArrayCreate_v2(CUarray *pHandle,
                                 const CUDA_ARRAY_DESCRIPTOR_v2 *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 shape = {0};

    if (pAllocateArray != NULL)
        shape = (CUDA_ARRAY3D_DESCRIPTOR_v2){.Width = pAllocateArray->Width,
                                             .Height = pAllocateArray->Height,
                                             .Format = pAllocateArray->Format,
                                             .NumChannels = pAllocateArray->NumChannels};
    MAKE(cuArrayCreate_v2(pHandle, pAllocateArray), *pHandle, &shape, 1);
}

CUresult __wrap_cuArray3DCreate_v2(CUarray *pHandle,
                                   const CUDA_ARRAY3D_DESCRIPTOR_v2 *pAllocateArray)
{
    MAKE(cuArray3DCreate_v2(pHandle, pAllocateArray), *pHandle, pAllocateArray, 1);
}

CUresult __wrap_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                       const CUDA_ARRAY3D_DESCRIPTOR_v2 *pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels)
{
    MAKE(cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels), *pHandle,
         pMipmappedArrayDesc, numMipmapLevels);
}

#define DESTROY(symbol, type)                                                                  \
    CUresult __wrap_##symbol(type array)                                                       \
    {                                                                                          \
        const CUresult result = GS_READY(gs_driver.symbol(array));                             \
                                                                                               \
        if (result == CUDA_SUCCESS)                                                            \
            gs_arrays_ended(array);                                                            \
        return result;                                                                         \
    }

DESTROY(cuArrayDestroy, CUarray)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
