/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_managed.c: the program's calls for managed memory. The driver makes and keeps the memory;
 * memory/managed_memory.h learns of it and gives it turns. Memory that is attached to the host or
 * to one stream is left to the driver. No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/gate/gate.h"
#include "runtime/gate/throttle.h"
#include "runtime/memory/managed_memory.h"

/* --- making and ending --- */

CUresult __wrap_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    const CUresult result =
        GS_READY(GS_IN_ROOM(NULL, gs_driver.cuMemAllocManaged(dptr, bytesize, flags)));
    struct gs_device *device;

    if (result != CUDA_SUCCESS || gs_runtime.config.disabled)
        return result;
    if (flags != CU_MEM_ATTACH_GLOBAL) {
        gs_managed_set_aside(*dptr, bytesize);
        return CUDA_SUCCESS;
    }
    device = gs_device_current();
    if (device != NULL)
        gs_client_attach_current(device);
    gs_managed_adopt(*dptr, bytesize, false, NULL);
    return CUDA_SUCCESS;
}

/* A variable of a library or module, if it is managed. */
static void adopt_variable(CUdeviceptr address, uint64_t bytes, const void *library)
{
    if (!gs_runtime.config.disabled && address != 0 && gs_managed_is(address))
        gs_managed_adopt(address, bytes, true, library);
}

#define GET_VARIABLE(symbol, handle_type)                                                      \
    CUresult __wrap_##symbol(CUdeviceptr *dptr, size_t *bytes, handle_type library,            \
                             const char *name)                                                 \
    {                                                                                          \
        CUdeviceptr address = 0;                                                               \
        CUresult result;                                                                       \
        size_t size = 0;                                                                       \
                                                                                               \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        if (dptr == NULL && bytes == NULL) /* the driver has an answer to that */              \
            return gs_driver.symbol(NULL, NULL, library, name);                                \
        result = GS_IN_ROOM(                                                                   \
            NULL, gs_driver.symbol(dptr != NULL ? &address : NULL, &size, library, name));     \
        if (result != CUDA_SUCCESS)                                                            \
            return result;                                                                     \
        if (dptr != NULL)                                                                      \
            *dptr = address;                                                                   \
        if (bytes != NULL)                                                                     \
            *bytes = size;                                                                     \
        adopt_variable(address, size, library);                                                \
        return CUDA_SUCCESS;                                                                   \
    }

GET_VARIABLE(cuLibraryGetManaged, CUlibrary)
GET_VARIABLE(cuModuleGetGlobal_v2, CUmodule)

#define UNLOAD(symbol, handle_type)                                                            \
    CUresult __wrap_##symbol(handle_type library)                                              \
    {                                                                                          \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        gs_managed_disown_library(library);                                                    \
        return gs_driver.symbol(library);                                                      \
    }

UNLOAD(cuLibraryUnload, CUlibrary)
UNLOAD(cuModuleUnload, CUmodule)

/* --- calls that are queued, or need the memory in place: inside the gate --- */

#define INSIDE(stream, calls, call)                                                            \
    ({                                                                                         \
        CUresult inside = CUDA_ERROR_OUT_OF_MEMORY;                                            \
        const unsigned pass = gs_gate_enter_on(stream, calls);                                 \
                                                                                               \
        if (pass != GS_PASS_REFUSED) {                                                         \
            inside = (call);                                                                   \
            if (inside == CUDA_SUCCESS && pass == GS_PASS_WATCHED && (calls) != 0)             \
                gs_throttle_bound(&gs_gate_self, stream, ((calls)&GS_CALL_PER_THREAD) != 0);   \
            gs_gate_leave(pass);                                                               \
        }                                                                                      \
        if (inside != CUDA_SUCCESS)                                                            \
            gs_context_failed(NULL, inside);                                                   \
        inside;                                                                                \
    })
#define LEGACY     GS_CALL_QUEUES
#define PER_THREAD (GS_CALL_QUEUES | GS_CALL_PER_THREAD)

/* the older forms name a device, or the host */
static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                           : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = device == CU_DEVICE_CPU ? 0 : device};
}

/* The note is made inside the gate, so that memory which leaves right after it is sent according to
 * the advice. */
#define NOTED(call, note)                                                                      \
    ({                                                                                         \
        const CUresult noted = (call);                                                         \
                                                                                               \
        if (noted == CUDA_SUCCESS)                                                             \
            note;                                                                              \
        noted;                                                                                 \
    })

CUresult __wrap_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUdevice device)
{
    return INSIDE(NULL, 0,
                  NOTED(gs_driver.cuMemAdvise(devPtr, count, advice, device),
                        gs_managed_advised(devPtr, count, advice, device == CU_DEVICE_CPU)));
}

CUresult __wrap_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                               CUmemLocation location)
{
    return INSIDE(NULL, 0,
                  NOTED(gs_driver.cuMemAdvise_v2(devPtr, count, advice, location),
                        gs_managed_advised(devPtr, count, advice,
                                           location.type != CU_MEM_LOCATION_TYPE_DEVICE)));
}

#define PREFETCH(symbol, calls)                                                                \
    CUresult __wrap_##symbol(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,             \
                             CUstream hStream)                                                 \
    {                                                                                          \
        const CUmemLocation location = location_of(dstDevice);                                 \
                                                                                               \
        return INSIDE(hStream, calls,                                                          \
                      NOTED(gs_driver.symbol(devPtr, count, dstDevice, hStream),               \
                            gs_managed_prefetched(devPtr, count, &location)));                 \
    }

PREFETCH(cuMemPrefetchAsync, LEGACY)
PREFETCH(cuMemPrefetchAsync_ptsz, PER_THREAD)

#define PREFETCH_TO(symbol, calls)                                                             \
    CUresult __wrap_##symbol(CUdeviceptr devPtr, size_t count, CUmemLocation location,         \
                             unsigned int flags, CUstream hStream)                             \
    {                                                                                          \
        return INSIDE(hStream, calls,                                                          \
                      NOTED(gs_driver.symbol(devPtr, count, location, flags, hStream),         \
                            gs_managed_prefetched(devPtr, count, &location)));                 \
    }

PREFETCH_TO(cuMemPrefetchAsync_v2, LEGACY)
PREFETCH_TO(cuMemPrefetchAsync_v2_ptsz, PER_THREAD)

/* Location i is for the pieces from indices[i] on. */
static void note_batch(const CUdeviceptr *pieces, const size_t *sizes, size_t count,
                       const CUmemLocation *locations, const size_t *indices, size_t most)
{
    size_t at = 0;

    for (size_t i = 0; i < count && most != 0; i++) {
        while (at + 1 < most && indices[at + 1] <= i)
            at++;
        gs_managed_prefetched(pieces[i], sizes[i], &locations[at]);
    }
}

#define PREFETCH_BATCH(symbol, calls)                                                          \
    CUresult __wrap_##symbol(CUdeviceptr *dptrs, size_t *sizes, size_t count,                  \
                             CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,             \
                             size_t numPrefetchLocs, unsigned long long flags,                 \
                             CUstream hStream)                                                 \
    {                                                                                          \
        return INSIDE(                                                                         \
            hStream, calls,                                                                    \
            NOTED(gs_driver.symbol(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,         \
                                   numPrefetchLocs, flags, hStream),                           \
                  note_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,               \
                             numPrefetchLocs)));                                               \
    }

PREFETCH_BATCH(cuMemPrefetchBatchAsync, LEGACY)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz, PER_THREAD)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync, LEGACY)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, PER_THREAD)

/* The memory is attached to all (again): it counts (again), with the advice that it had. */
static void note_attached(CUdeviceptr address, unsigned flags)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;

    if (gs_driver.cuMemGetAddressRange_v2(&base, &bytes, address) != CUDA_SUCCESS)
        gs_managed_disown(address); /* it is not known which part of it counts */
    else if ((flags & CU_MEM_ATTACH_GLOBAL) == 0)
        gs_managed_set_aside(base, bytes);
    else
        gs_managed_take_back(base, bytes);
}

#define ATTACH(symbol, calls)                                                                  \
    CUresult __wrap_##symbol(CUstream hStream, CUdeviceptr dptr, size_t length,                \
                             unsigned int flags)                                               \
    {                                                                                          \
        const CUresult result =                                                                \
            INSIDE(hStream, calls, gs_driver.symbol(hStream, dptr, length, flags));            \
                                                                                               \
        if (result == CUDA_SUCCESS && !gs_runtime.config.disabled && gs_managed_is(dptr))      \
            note_attached(dptr, flags);                                                        \
        return result;                                                                         \
    }

ATTACH(cuStreamAttachMemAsync, LEGACY)
ATTACH(cuStreamAttachMemAsync_ptsz, PER_THREAD)

/* --- answers: as if nothing had been moved --- */

static void put_int(void *data, size_t bytes, int value)
{
    if (data != NULL && bytes >= sizeof value)
        memcpy(data, &value, sizeof value);
}

/* Corrects the parts of an answer that our own prefetches and advice have changed. */
static void correct_answer(void *data, size_t bytes, CUmem_range_attribute attribute,
                           CUdeviceptr address, size_t count)
{
    CUmemLocation location;
    bool read_mostly;

    if (attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) {
        if (gs_managed_read_mostly(address, count, &read_mostly))
            put_int(data, bytes, read_mostly);
        return;
    }
    if (attribute != CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION &&
        attribute != CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE &&
        attribute != CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
        return;
    if (!gs_managed_last_prefetch(address, count, &location))
        return;
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
        put_int(data, bytes,
                location.type == CU_MEM_LOCATION_TYPE_INVALID  ? CU_DEVICE_INVALID
                : location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id
                                                               : CU_DEVICE_CPU);
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE)
        put_int(data, bytes, (int)location.type);
    else
        put_int(data, bytes, location.id);
}

CUresult __wrap_cuMemRangeGetAttribute(void *data, size_t dataSize,
                                       CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                       size_t count)
{
    CUresult result =
        GS_READY(gs_driver.cuMemRangeGetAttribute(data, dataSize, attribute, devPtr, count));

    if (result == CUDA_SUCCESS)
        correct_answer(data, dataSize, attribute, devPtr, count);
    return result;
}

CUresult __wrap_cuMemRangeGetAttributes(void **data, size_t *dataSizes,
                                        CUmem_range_attribute *attributes, size_t numAttributes,
                                        CUdeviceptr devPtr, size_t count)
{
    CUresult result = GS_READY(gs_driver.cuMemRangeGetAttributes(data, dataSizes, attributes,
                                                                 numAttributes, devPtr, count));

    for (size_t i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
        correct_answer(data[i], dataSizes[i], attributes[i], devPtr, count);
    return result;
}
