/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_ipc.c: memory that processes share by handles (legacy CUDA IPC). Handles of our memory are
 * ours (memory/exports.h); all others are the driver's. No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/client/ipc.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/memory.h"

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

/* The driver does not know our handles: returns what it says about a handle that means nothing
 * (any more). */
static CUresult say_unknown(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    const CUresult result = gs_driver.cuIpcOpenMemHandle_v2(address, handle, flags);

    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED
               ? result
               : CUDA_ERROR_INVALID_VALUE;
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
    return error == -ENOENT ? say_unknown(address, handle, flags) : result;
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
