/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_query.c: queries about memory are answered as if the program had the card for itself: the
 * card as this program may use it alone, and allocations as the program made them, wherever their
 * bytes are at the moment. No state.
 */
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/calls/hooks.h"
#include "runtime/memory/mapping.h"
#include "runtime/memory/memory.h"
#include "runtime/range/over.h"
#include "runtime/memory/stream_order.h"

#define UNKNOWN_ADDRESS ((CUdeviceptr)1) /* an address about which the driver knows nothing */

CUresult __wrap_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    size_t real_free, real_total;
    struct gs_device *device;
    struct gs_accounts accounts;
    uint64_t capacity, limit;
    CUresult result = GS_READY(gs_driver.cuMemGetInfo_v2(&real_free, &real_total));

    if (result != CUDA_SUCCESS)
        gs_context_failed(NULL, result);
    if (result != CUDA_SUCCESS || free == NULL || total == NULL)
        return result != CUDA_SUCCESS ? result : gs_driver.cuMemGetInfo_v2(free, total);
    device = gs_device_current();
    *free = real_free;
    *total = real_total;
    if (device == NULL || !gs_device_is_movable(device) || gs_runtime.config.disabled)
        return CUDA_SUCCESS;
    gs_client_attach_current(device);
    gs_daemon_await_target(device); /* or until there is no daemon, which changes the answer */
    limit = gs_over_limit(device);
    *total = device->total + limit;
    if (!gs_capture_active())
        gs_stream_order_collect(false); /* frees that streams have passed count */
    accounts = gs_memory_accounts(device);
    if (gs_daemon_is_absent() && device->total == device->physical) {
        *free +=
            accounts.idle; /* without a daemon nothing makes room: only free memory is free */
    } else {
        capacity = gs_device_room(device);
        *free = capacity > accounts.demand ? capacity - accounts.demand : 0;
    }
    *free += limit > accounts.over ? limit - accounts.over : 0;
    return CUDA_SUCCESS;
}

CUresult __wrap_cuDeviceTotalMem_v2(size_t *bytes, CUdevice_v1 dev)
{
    const struct gs_device *device;
    CUresult result = GS_READY(gs_driver.cuDeviceTotalMem_v2(bytes, dev));

    if (result == CUDA_SUCCESS && gs_runtime.config.device_limit != 0 &&
        *bytes > gs_runtime.config.device_limit)
        *bytes = gs_runtime.config.device_limit;
    if (result != CUDA_SUCCESS || gs_runtime.config.disabled)
        return result;
    device = gs_runtime.config.overcommit_set ? gs_device_get(dev) : gs_device_find(dev);
    if (device != NULL && gs_device_is_movable(device))
        *bytes += gs_over_limit(device);
    return result;
}

CUresult __wrap_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct gs_allocation allocation;
    enum gs_memory_found found;
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    found = gs_memory_find(dptr, &allocation);
    if (found == GS_MEMORY_FOREIGN ||
        (pbase == NULL && psize == NULL)) /* the driver has an answer to that */
        return gs_driver.cuMemGetAddressRange_v2(pbase, psize, dptr);
    result = gs_context_refusal(); /* what the driver looks at first */
    if (result != CUDA_ERROR_INVALID_VALUE)
        return result;
    if (found == GS_MEMORY_HOLE || allocation.without_access) {
        allocation = (struct gs_allocation){0}; /* what the driver (580) gives then */
        result = CUDA_ERROR_NOT_FOUND;
    } else {
        result = CUDA_SUCCESS;
    }
    if (pbase != NULL)
        *pbase = allocation.base;
    if (psize != NULL)
        *psize = allocation.bytes;
    return result;
}

static CUresult put_value(void *data, const void *value, size_t bytes)
{
    memcpy(data, value, bytes);
    return CUDA_SUCCESS;
}

/* the driver writes flags as 4 bytes (tests/gpu/driver_facts.c on an H200, driver 580) */
static CUresult put_flag(void *data, bool value)
{
    const unsigned flag = value;

    return put_value(data, &flag, sizeof flag);
}

static bool has_no_context(void)
{
    CUcontext current = NULL;

    return gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL;
}

/* The driver's answers about a mapping to which no device has access yet (an H200, driver 580):
 * it is mapped in our records only. */
static CUresult attribute_without_access(void *data, CUpointer_attribute attribute,
                                         const struct gs_allocation *allocation)
{
    const unsigned long long none = 0, id = allocation->id;
    CUdeviceptr base = allocation->base;
    uint64_t bytes = allocation->bytes;

    gs_reserved_find(base, &base, &bytes); /* the extent is that of the reservation */
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put_value(data, &none, sizeof none);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put_value(data, &id, sizeof id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put_value(data, &base, sizeof base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put_value(data, &bytes, sizeof bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put_value(data, &allocation->handle_types, sizeof allocation->handle_types);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put_flag(data, true);
    default:
        return attribute > 0 && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
                   ? put_flag(data, false)
                   : CUDA_ERROR_INVALID_VALUE;
    }
}

/* Attributes in which the program's allocation and the VMM mapping behind it differ are answered
 * from our own records. *answered is false for the rest. Types: CUDA driver API manual,
 * cuPointerGetAttribute. */
static CUresult own_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                              const struct gs_allocation *allocation, bool *answered)
{
    const unsigned device_memory = CU_MEMORYTYPE_DEVICE,
                   access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const unsigned long long id = allocation->id, none = 0;
    const CUcontext no_context = NULL;
    const int ordinal = allocation->device->ordinal;
    const size_t bytes = allocation->bytes;

    *answered = true;
    if (allocation->own) { /* the driver knows this kind; only the chunks are ours */
        if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)
            return put_value(data, &allocation->base, sizeof allocation->base);
        if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
            return put_value(data, &bytes, sizeof bytes);
        /* not by a piece that is in host memory at the moment (over.h) */
        if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            return put_value(data, &device_memory, sizeof device_memory);
        if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            return put_value(data, &ordinal, sizeof ordinal);
        if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && allocation->over)
            return CUDA_ERROR_INVALID_VALUE;
        /* the chunks may have more (handover.h) */
        if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)
            return put_value(data, &allocation->handle_types, sizeof allocation->handle_types);
        if (allocation->without_access)
            return attribute_without_access(data, attribute, allocation);
        *answered = false;
        return CUDA_SUCCESS;
    }
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* stream-ordered memory belongs to its pool, and so to none */
        return put_value(data, allocation->pool == NULL ? &allocation->context : &no_context,
                         sizeof(CUcontext));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put_value(data, &device_memory, sizeof device_memory);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (has_no_context())
            return CUDA_ERROR_INVALID_CONTEXT;
        return put_value(data, &address, sizeof address);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put_value(data, &id, sizeof id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put_value(data, &ordinal, sizeof ordinal);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put_value(data, &allocation->base, sizeof allocation->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put_value(data, &bytes, sizeof bytes);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put_value(data, &allocation->pool, sizeof(CUmemoryPool));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: /* whatever our memory has (handover.h) */
        return put_value(data, &none, sizeof none);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        /* in the driver's eyes it has a host pointer, or may have */
        *answered = allocation->device->managed || allocation->over;
        return *answered ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put_flag(data, true);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put_flag(data, false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        /* without a context, mapped memory has none, and an allocation has all */
        *answered = has_no_context();
        return *answered ? put_value(data, &access, sizeof access) : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: /* by handles of ours (exports.h) */
        return put_flag(data, allocation->pool == NULL && !allocation->opened &&
                                  !allocation->device->managed && !gs_daemon_is_absent());
    default:
        *answered = false;
        return CUDA_SUCCESS;
    }
}

static CUresult attribute_of_ours(void *data, CUpointer_attribute attribute,
                                  CUdeviceptr address, const struct gs_allocation *allocation)
{
    CUresult result;
    bool answered;

    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = own_attribute(data, attribute, address, allocation, &answered);
    if (answered)
        return result;
    /* the driver knows mapped memory only */
    return GS_INSIDE(gs_driver.cuPointerGetAttribute(data, attribute, address));
}

CUresult __wrap_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr ptr)
{
    struct gs_allocation allocation;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    switch (gs_memory_find(ptr, &allocation)) {
    case GS_MEMORY_LIVE:
        return attribute_of_ours(data, attribute, ptr, &allocation);
    case GS_MEMORY_HOLE:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return gs_driver.cuPointerGetAttribute(data, attribute, ptr);
    }
}

/* "no error if an attribute is not supported for the pointer: it is then set to NULL" (manual)
 */
CUresult __wrap_cuPointerGetAttributes(unsigned int numAttributes,
                                       CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr ptr)
{
    struct gs_allocation allocation;
    enum gs_memory_found found;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    found = gs_memory_find(ptr, &allocation);
    if (numAttributes == 0 || attributes == NULL || data == NULL || found != GS_MEMORY_LIVE)
        return gs_driver.cuPointerGetAttributes(
            numAttributes, attributes, data, found == GS_MEMORY_HOLE ? UNKNOWN_ADDRESS : ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        const void *none = NULL;
        CUresult result;
        bool answered;

        if (data[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        if (own_attribute(data[i], attributes[i], ptr, &allocation, &answered) != CUDA_SUCCESS)
            put_value(data[i], &none, sizeof none);
        if (answered)
            continue;
        result = GS_INSIDE(gs_driver.cuPointerGetAttributes(1, &attributes[i], &data[i], ptr));
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}
