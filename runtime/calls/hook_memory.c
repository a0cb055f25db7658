/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_memory.c: allocation and freeing. If a device cannot move memory (no VMM,
 * GPUSHARE_MEMORY=native) everything goes to the driver. Arrays stay on the card, and are counted
 * (memory/arrays.h). NCCL registers the host memory that the ranks of a communicator share, before
 * the first collective. No state.
 */
#include "runtime/gate/capture.h"
#include "runtime/calls/hooks.h"
#include "runtime/client/evidence.h"
#include "runtime/memory/arrays.h"
#include "runtime/memory/managed_memory.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/free.h"

#define PITCH_BYTES                                                                            \
    512 /* what drivers give; textures want at least the device's own alignment, which is no   \
           larger */

/* The current device if we give out its memory; NULL: the call goes to the driver. The real
 * driver is there. */
static struct gs_device *movable_device(void)
{
    struct gs_device *device;

    if (gs_runtime.config.disabled)
        return NULL;
    device = gs_device_current();
    if (device == NULL || !gs_device_is_movable(device))
        return NULL;
    gs_client_attach_current(device);
    return device;
}

CUresult __wrap_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct gs_device *device;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    device = movable_device();
    if (device == NULL || dptr == NULL)
        return GS_IN_ROOM(device, gs_driver.cuMemAlloc_v2(dptr, bytesize));
    if (gs_capture_refuses())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return gs_memory_allocate(&(struct gs_request){.device = device, .bytes = bytesize}, dptr);
}

CUresult __wrap_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                   size_t Height, unsigned int ElementSizeBytes)
{
    struct gs_device *device;
    size_t pitch = 0, bytes = 0;
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    device = movable_device();
    /* the driver refuses impossible requests */
    if (device == NULL || dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
        __builtin_add_overflow(WidthInBytes, PITCH_BYTES - 1, &pitch) ||
        __builtin_mul_overflow(pitch & ~(size_t)(PITCH_BYTES - 1), Height, &bytes))
        return gs_driver.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height,
                                            ElementSizeBytes);
    if (gs_capture_refuses())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pitch &= ~(size_t)(PITCH_BYTES - 1);
    result = gs_memory_allocate(&(struct gs_request){.device = device, .bytes = bytes}, dptr);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

CUresult __wrap_cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult result;
    bool ours = false;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    result = gs_context_check_current();
    if (result != CUDA_SUCCESS)
        return result;
    if (gs_capture_refuses())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (dptr != 0) {
        result = gs_memory_free(dptr, NULL, &ours);
        if (ours)
            return result;
        if (gs_managed_has_lent())
            gs_managed_disown(dptr); /* of a pool; the driver does not free variables */
    }
    return gs_driver.cuMemFree_v2(dptr);
}

/* the driver's call; then the array is counted */
#define MAKE_ARRAY(call, handle, shape, levels)                                                \
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
    MAKE_ARRAY(cuArrayCreate_v2(pHandle, pAllocateArray), *pHandle, &shape, 1);
}

CUresult __wrap_cuArray3DCreate_v2(CUarray *pHandle,
                                   const CUDA_ARRAY3D_DESCRIPTOR_v2 *pAllocateArray)
{
    MAKE_ARRAY(cuArray3DCreate_v2(pHandle, pAllocateArray), *pHandle, pAllocateArray, 1);
}

CUresult __wrap_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                       const CUDA_ARRAY3D_DESCRIPTOR_v2 *pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels)
{
    MAKE_ARRAY(cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels), *pHandle,
               pMipmappedArrayDesc, numMipmapLevels);
}

#define DESTROY_ARRAY(symbol, type)                                                            \
    CUresult __wrap_##symbol(type array)                                                       \
    {                                                                                          \
        const CUresult result = GS_READY(gs_driver.symbol(array));                             \
                                                                                               \
        if (result == CUDA_SUCCESS)                                                            \
            gs_arrays_ended(array);                                                            \
        return result;                                                                         \
    }

DESTROY_ARRAY(cuArrayDestroy, CUarray)
DESTROY_ARRAY(cuMipmappedArrayDestroy, CUmipmappedArray)

#define REGISTER(symbol)                                                                       \
    CUresult __wrap_##symbol(void *p, size_t bytesize, unsigned int Flags)                     \
    {                                                                                          \
        const CUresult result = GS_READY(gs_driver.symbol(p, bytesize, Flags));                \
                                                                                               \
        if (result == CUDA_SUCCESS && !gs_runtime.config.disabled)                             \
            gs_evidence_registered(p);                                                         \
        return result;                                                                         \
    }

REGISTER(cuMemHostRegister)
REGISTER(cuMemHostRegister_v2)
