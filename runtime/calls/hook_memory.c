/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_memory.c: allocation and freeing, and handles of CUDA IPC. If a device cannot move memory (no
 * VMM, GPUSHARE_MEMORY=native) everything goes to the driver. Arrays stay on the card, and are
 * counted (memory/arrays.h). NCCL registers the host memory that the ranks of a communicator share,
 * before the first collective. No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/client/evidence.h"
#include "runtime/client/ipc.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/arrays.h"
#include "runtime/memory/free.h"
#include "runtime/memory/managed_memory.h"
#include "runtime/memory/memory.h"

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

/* Memory that processes share by handles (legacy CUDA IPC). Handles of our memory are ours
 * (memory/exports.h); all others are the driver's. No state. */

/* The driver refuses handles of memory that it did not allocate as a whole. The program gets
 * that error, and the user a hint. */
static CUresult driver_handle(CUipcMemHandle *handle, CUdeviceptr address)
{
    static bool said;
    struct gs_allocation allocation;
    const unsigned pass = gs_gate_enter();
    CUresult result;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = gs_driver.cuIpcGetMemHandle(handle, address);
    gs_gate_leave(pass);
    if (result != CUDA_SUCCESS && gs_memory_find(address, &allocation) == GS_MEMORY_LIVE &&
        allocation.pool == NULL && !allocation.own) {
        gs_say_once(&said, "this program shares device memory with other processes (legacy "
                           "CUDA IPC), which needs gpushare-lockd, or GPUSHARE_MEMORY=native");
        gs_daemon_say("legacy IPC was refused: run with GPUSHARE_MEMORY=native");
    }
    return result;
}

CUresult __wrap_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct gs_device *device;
    struct gs_ipc_handle handle;
    CUresult result;
    bool ours;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    device = gs_runtime.config.disabled ? NULL : gs_device_current();
    if (pHandle == NULL || device == NULL)
        return gs_driver.cuIpcGetMemHandle(pHandle, dptr);
    if (gs_daemon_is_absent()) /* without a daemon no process could open it */
        return driver_handle(pHandle, dptr);
    result = gs_exports_handle(dptr, &handle, &ours);
    if (!ours)
        return driver_handle(pHandle, dptr);
    if (result == CUDA_SUCCESS)
        memcpy(pHandle, &handle, sizeof *pHandle);
    return result;
}

static int get_memory(const void *handle, struct gs_opening *opening)
{
    return gs_opener_get(handle, opening);
}

static void say_why(int error)
{
    static bool said;

    if (error == -ECONNREFUSED)
        gs_say_once(&said,
                    "memory of another process cannot be opened (CUDA IPC): no "
                    "gpushare-lockd serves this program (`gpusharectl doctor %d` says more)",
                    (int)getpid());
    else
        gs_log("memory of another process cannot be opened: %s", strerror(-error));
    if (error != -ENOENT)
        gs_daemon_say(error == -ETIMEDOUT
                          ? "memory of another process (CUDA IPC) did not come in time"
                          : "memory of another process (CUDA IPC) could not be opened");
}

static CUresult open_ours(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    struct gs_device *device = gs_device_current();
    struct gs_ipc_handle ours;
    struct gs_exported own;
    CUresult result;
    int error;

    /* the driver refuses 0 as well */
    if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    memcpy(&ours, &handle, sizeof ours);
    if (ours.pid == (int32_t)getpid() && gs_exports_find(ours.token, false, &own))
        return CUDA_ERROR_INVALID_CONTEXT; /* the driver's answer in the exporter */
    gs_client_attach_current(device);
    result = gs_openings_open(&ours, device, get_memory, &ours, address, &error);
    if (error != 0)
        say_why(error);
    if (error != -ENOENT)
        return result;
    /* the driver does not know our handles: what it says about a handle that means nothing */
    result = gs_driver.cuIpcOpenMemHandle_v2(address, handle, flags);
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED
               ? result
               : CUDA_ERROR_INVALID_VALUE;
}

static bool is_ours(const CUipcMemHandle *handle)
{
    struct gs_ipc_handle ours;

    memcpy(&ours, handle, sizeof ours);
    return !gs_runtime.config.disabled && gs_ipc_handle_is_ours(&ours);
}

/* Both variants of the driver's function have the same type; `driver` is the variant that was
 * called. */
static CUresult open_handle(typeof(*gs_driver.cuIpcOpenMemHandle_v2) *const *driver,
                            CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    return GS_READY(is_ours(&handle) ? open_ours(address, handle, flags)
                                     : GS_IN_ROOM(NULL, (*driver)(address, handle, flags)));
}

CUresult __wrap_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle,
                                   unsigned int Flags)
{
    return open_handle(&gs_driver.cuIpcOpenMemHandle, pdptr, handle, Flags);
}

CUresult __wrap_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
                                      unsigned int Flags)
{
    return open_handle(&gs_driver.cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
}

CUresult __wrap_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    CUresult result;
    bool ours;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (gs_device_current() == NULL) /* without a context the driver answers */
        return gs_driver.cuIpcCloseMemHandle(dptr);
    result = gs_openings_close(dptr, &ours);
    return ours ? result : gs_driver.cuIpcCloseMemHandle(dptr);
}
