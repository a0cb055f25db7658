/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_vmm.c: the driver's virtual memory management as the program calls it. Handles and
 * addresses of ours go to virtual.c, all others to the driver. No state.
 */
#include <fcntl.h>

#include "runtime/client/evidence.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/gate/gate.h"
#include "runtime/calls/hooks.h"
#include "runtime/memory/virtual.h"
#include "runtime/memory/mapping.h"
#include "runtime/range/handover.h"

/* our answer if it is our memory, else the driver's */
#define OURS_OR(call, otherwise)                                                               \
    ({                                                                                         \
        bool ours = false;                                                                     \
        const CUresult answer = (call);                                                        \
                                                                                               \
        ours ? answer : (otherwise);                                                           \
    })

CUresult __wrap_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                    CUdeviceptr addr, unsigned long long flags)
{
    CUresult result =
        GS_READY(gs_driver.cuMemAddressReserve(ptr, size, alignment, addr, flags));

    if (result == CUDA_SUCCESS)
        gs_reserved_add(*ptr, size);
    return result;
}

CUresult __wrap_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    return GS_READY(gs_reserved_free(ptr, size));
}

CUresult __wrap_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct gs_device *device;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    device = handle != NULL && flags == 0 ? gs_virtual_device(prop) : NULL;
    if (device != NULL && gs_client_attach_device(device))
        return gs_virtual_create(device, size, prop, handle);
    return GS_IN_ROOM(gs_device_at_location(&prop->location),
                      gs_driver.cuMemCreate(handle, size, prop, flags));
}

CUresult __wrap_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    return GS_READY(OURS_OR(gs_virtual_release(handle, &ours), gs_driver.cuMemRelease(handle)));
}

CUresult __wrap_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (handle == NULL)
        return gs_driver.cuMemRetainAllocationHandle(handle, addr);
    return OURS_OR(gs_virtual_retain((CUdeviceptr)(uintptr_t)addr, handle, &ours),
                   gs_driver.cuMemRetainAllocationHandle(handle, addr));
}

CUresult __wrap_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (prop == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return OURS_OR(gs_virtual_properties(handle, prop, &ours),
                   gs_driver.cuMemGetAllocationPropertiesFromHandle(prop, handle));
}

CUresult __wrap_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return GS_READY(OURS_OR(gs_virtual_map(ptr, size, offset, handle, flags, &ours),
                            gs_foreign_map(ptr, size, offset, handle, flags)));
}

CUresult __wrap_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    return GS_READY(
        OURS_OR(gs_virtual_unmap(ptr, size, &ours), gs_driver.cuMemUnmap(ptr, size)));
}

CUresult __wrap_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                               size_t count)
{
    return GS_READY(OURS_OR(gs_virtual_set_access(ptr, size, desc, count, &ours),
                            gs_driver.cuMemSetAccess(ptr, size, desc, count)));
}

CUresult __wrap_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr ptr)
{
    return GS_READY(OURS_OR(gs_virtual_get_access(ptr, location, flags, &ours),
                            gs_driver.cuMemGetAccess(flags, location, ptr)));
}

/* A driver makes descriptors only of memory that it made in this process: of other memory we have
 * the descriptor with which it came. The range is pinned. */
static CUresult export_chunk(void *to, const struct gs_chunk *chunk,
                             CUmemAllocationHandleType type, unsigned long long flags)
{
    bool made;
    int fd;

    if (chunk->descriptor == 0 || to == NULL || flags != 0 ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return gs_driver.cuMemExportToShareableHandle(to, chunk->handle, type, flags);
    fd = fcntl(gs_handover_lend(chunk, &made), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)to = fd;
    return CUDA_SUCCESS;
}

static CUresult export_handle(void *to, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    struct gs_range *range;
    CUresult result;
    bool ours;

    range = gs_virtual_hold(handle, &ours);
    if (range == NULL)
        return ours ? CUDA_ERROR_INVALID_VALUE
                    : gs_driver.cuMemExportToShareableHandle(to, handle, type, flags);
    /* ours may be exportable, and of several chunks, where the program did not ask for that */
    result = ((unsigned)range->own->prop.requestedHandleTypes & (unsigned)type) == 0
                 ? CUDA_ERROR_INVALID_VALUE
                 : gs_virtual_pin(range);
    if (result == CUDA_SUCCESS) /* exportable memory is one chunk */
        result = export_chunk(to, &range->chunks[0], type, flags);
    gs_virtual_drop(range);
    return result;
}

CUresult __wrap_cuMemExportToShareableHandle(void *shareableHandle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handleType,
                                             unsigned long long flags)
{
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    result = export_handle(shareableHandle, handle, handleType, flags);
    if (result == CUDA_SUCCESS && !gs_runtime.config.disabled)
        gs_evidence_exported();
    return result;
}

/* Other hardware will reach this memory by its address: it stays where it is from now on. */
static void pin_range(CUdeviceptr from, size_t bytes)
{
    const CUdeviceptr end = from + bytes;

    while (from < end) {
        struct gs_range *range;

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        range = gs_range_at(from);
        if (range != NULL) {
            gs_range_pin(range);
            from = range->node.base + range->reserved;
        } else {
            from = end;
        }
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
}

CUresult __wrap_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
                                              CUmemRangeHandleType handleType,
                                              unsigned long long flags)
{
    const unsigned pass = gs_gate_enter();
    CUresult result;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = gs_driver.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
    if (result == CUDA_SUCCESS)
        pin_range(dptr, size);
    gs_gate_leave(pass);
    return result;
}
