/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_pool.c: the program's calls for stream-ordered allocation and memory pools. The driver
 * itself serves pools that can be exported, and those of the host or of managed memory. It also
 * serves everything on a stream that is being captured (it becomes a node of the graph, whose
 * memory the driver keeps; report.c sees it in the free memory of the card). No state.
 */
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/calls/hooks.h"
#include "runtime/memory/managed_memory.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/pool.h"
#include "runtime/memory/free.h"

/* the driver's own call on hStream: submitted inside the gate, and again if room was made */
#define DRIVERS_OWN(per_thread, call)                                                          \
    ({                                                                                         \
        CUresult own_result = CUDA_ERROR_OUT_OF_MEMORY;                                        \
        unsigned attempt = 0, pass;                                                            \
                                                                                               \
        do {                                                                                   \
            pass = gs_gate_enter_on(hStream,                                                   \
                                    GS_CALL_QUEUES | ((per_thread) ? GS_CALL_PER_THREAD : 0)); \
            if (pass == GS_PASS_REFUSED)                                                       \
                break;                                                                         \
            own_result = (call);                                                               \
            gs_gate_leave(pass);                                                               \
        } while (own_result == CUDA_ERROR_OUT_OF_MEMORY && (pass & GS_PASS_NESTED) == 0 &&     \
                 gs_room_make(NULL, attempt++));                                               \
        own_result;                                                                            \
    })

/* An error counts as yes, so that the driver reports it. */
static bool is_captured(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;

    if (((stream == NULL && !per_thread) || stream == CU_STREAM_LEGACY) && !gs_capture_active())
        return false; /* it is never captured itself, but refused beside some captures */
    result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                        : gs_driver.cuStreamIsCapturing(stream, &status);
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct gs_device *device_of(CUcontext context)
{
    const struct gs_context *known = gs_context_find(context);

    return known != NULL ? known->device : gs_device_current();
}

/* In the context of the stream, which is current. */
static CUresult find_pool(CUmemoryPool handle, CUcontext context, struct gs_pool **pool)
{
    struct gs_device *device = device_of(context);
    CUresult result = CUDA_SUCCESS;

    if (device == NULL || !gs_device_is_movable(device))
        return CUDA_SUCCESS;
    if (handle == NULL)
        result = gs_driver.cuDeviceGetMemPool(&handle, device->ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    *pool = gs_pool_of(handle);
    if (*pool != NULL)
        gs_client_attach_current((*pool)->device);
    return CUDA_SUCCESS;
}

/* The driver looks at the stream and its context first, then at captures. */
static CUresult find_position(CUstream stream, bool per_thread,
                              struct gs_stream_position *position)
{
    CUresult result = gs_stream_position_of(stream, per_thread, position);

    if (result == CUDA_SUCCESS)
        result = gs_context_check(position->context);
    if (result == CUDA_SUCCESS && gs_capture_refuses())
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return result;
}

/* Finds the pool that serves an allocation on this stream (handle NULL: the current pool of its
 * device); NULL: the driver serves it. The thread may have another current context, or none. */
static CUresult find_serving_pool(CUmemoryPool handle, CUstream stream, bool per_thread,
                                  struct gs_stream_position *position, struct gs_pool **pool)
{
    CUresult result;
    bool pushed;

    *pool = NULL;
    if (gs_runtime.config.disabled || is_captured(stream, per_thread))
        return CUDA_SUCCESS;
    result = find_position(stream, per_thread, position);
    if (result != CUDA_SUCCESS)
        return result;
    pushed = gs_stream_position_enter(position->context);
    result = find_pool(handle, position->context, pool);
    gs_stream_position_leave(pushed);
    return result;
}

/* The driver would allow this call beside its captures, but may not allow the calls that we make
 * for it. */
static CUresult allocate_from(struct gs_pool *pool, uint64_t bytes,
                              const struct gs_stream_position *position, CUdeviceptr *address)
{
    const CUstreamCaptureMode mode = gs_capture_relax();
    const CUresult result = gs_pool_allocate(pool, bytes, position, address);

    gs_capture_restore(mode);
    return result;
}

static _Atomic(bool) has_managed_pools; /* relaxed: set before the program has the pool */

/* Memory that the driver gave from a pool of managed memory counts (managed_memory.h). */
static CUresult adopt_pooled(CUresult result, const CUdeviceptr *address, size_t bytes)
{
    if (result == CUDA_SUCCESS && address != NULL && !gs_runtime.config.disabled &&
        atomic_load_explicit(&has_managed_pools, memory_order_relaxed) &&
        gs_managed_is(*address))
        gs_managed_adopt(*address, bytes, true, NULL);
    return result;
}

#define ALLOCATE(handle, per_thread, drivers_own)                                              \
    ({                                                                                         \
        struct gs_stream_position position;                                                    \
        struct gs_pool *pool = NULL;                                                           \
        CUresult answer = CUDA_SUCCESS;                                                        \
                                                                                               \
        if (dptr != NULL && bytesize != 0) /* the driver answers for invalid arguments */      \
            answer = find_serving_pool(handle, hStream, per_thread, &position, &pool);         \
        if (answer == CUDA_SUCCESS)                                                            \
            answer = pool != NULL                                                              \
                         ? allocate_from(pool, bytesize, &position, dptr)                      \
                         : adopt_pooled(DRIVERS_OWN(per_thread, drivers_own), dptr, bytesize); \
        answer;                                                                                \
    })

#define ALLOC_ASYNC(symbol, per_thread)                                                        \
    CUresult __wrap_##symbol(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)             \
    {                                                                                          \
        return GS_READY(                                                                       \
            ALLOCATE(NULL, per_thread, gs_driver.symbol(dptr, bytesize, hStream)));            \
    }

ALLOC_ASYNC(cuMemAllocAsync, false)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define ALLOC_FROM_POOL(symbol, per_thread)                                                    \
    CUresult __wrap_##symbol(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool handle,          \
                             CUstream hStream)                                                 \
    {                                                                                          \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        if (handle == NULL)                                                                    \
            return gs_driver.symbol(dptr, bytesize, handle, hStream);                          \
        return ALLOCATE(handle, per_thread,                                                    \
                        gs_driver.symbol(dptr, bytesize, handle, hStream));                    \
    }

ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

/* Memory of cuMemAlloc may be freed in this way as well. *ours is false: the driver frees it. */
static CUresult free_async(CUdeviceptr address, CUstream stream, bool per_thread, bool *ours)
{
    struct gs_allocation allocation;
    struct gs_stream_position position;
    CUstreamCaptureMode mode;
    CUresult result;

    *ours = address != 0 && gs_memory_find(address, &allocation) != GS_MEMORY_FOREIGN &&
            !is_captured(stream, per_thread);
    if (!*ours)
        return CUDA_SUCCESS;
    result = find_position(stream, per_thread, &position);
    if (result != CUDA_SUCCESS)
        return result;
    mode = gs_capture_relax();
    result = gs_memory_free(address, &position, ours);
    gs_capture_restore(mode);
    return result;
}

#define FREE_ASYNC(symbol, per_thread)                                                         \
    CUresult __wrap_##symbol(CUdeviceptr dptr, CUstream hStream)                               \
    {                                                                                          \
        CUresult result;                                                                       \
        bool ours;                                                                             \
                                                                                               \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        result = free_async(dptr, hStream, per_thread, &ours);                                 \
        if (!ours && gs_managed_has_lent())                                                    \
            gs_managed_disown(dptr);                                                           \
        return ours ? result : DRIVERS_OWN(per_thread, gs_driver.symbol(dptr, hStream));       \
    }

FREE_ASYNC(cuMemFreeAsync, false)
FREE_ASYNC(cuMemFreeAsync_ptsz, true)

/* --- pools: the driver is called first and checks everything --- */

CUresult __wrap_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    const CUresult result = GS_READY(GS_IN_ROOM(gs_device_at_location(&poolProps->location),
                                                gs_driver.cuMemPoolCreate(pool, poolProps)));

    if (result == CUDA_SUCCESS && poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        atomic_store_explicit(&has_managed_pools, true, memory_order_relaxed);
    if (result == CUDA_SUCCESS)
        gs_pool_created(*pool, poolProps);
    return result;
}

CUresult __wrap_cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = GS_READY(gs_driver.cuMemPoolDestroy(pool));

    if (result == CUDA_SUCCESS)
        gs_pool_destroyed(pool);
    return result;
}

CUresult __wrap_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    const CUresult result = GS_READY(gs_driver.cuMemPoolTrimTo(pool, minBytesToKeep));
    struct gs_pool *served = result == CUDA_SUCCESS ? gs_pool_of(pool) : NULL;

    if (served != NULL)
        gs_pool_trim(served, minBytesToKeep);
    return result;
}

#define POOL_ATTRIBUTE(symbol, ours)                                                           \
    CUresult __wrap_##symbol(CUmemoryPool pool, CUmemPool_attribute attr, void *value)         \
    {                                                                                          \
        const CUresult result = GS_READY(gs_driver.symbol(pool, attr, value));                 \
        struct gs_pool *served = result == CUDA_SUCCESS ? gs_pool_of(pool) : NULL;             \
                                                                                               \
        if (served != NULL)                                                                    \
            ours(served, attr, value);                                                         \
        return result;                                                                         \
    }

POOL_ATTRIBUTE(cuMemPoolSetAttribute, gs_pool_attribute_set)
POOL_ATTRIBUTE(cuMemPoolGetAttribute, gs_pool_attribute_get)

CUresult __wrap_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    const CUresult result = GS_READY(gs_driver.cuMemPoolSetAccess(pool, map, count));
    struct gs_pool *served = result == CUDA_SUCCESS ? gs_pool_of(pool) : NULL;

    return served != NULL ? GS_INSIDE(gs_pool_set_access(served, map, count)) : result;
}
