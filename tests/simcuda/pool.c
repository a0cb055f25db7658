/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: owns memory pools and stream-ordered allocation.
 *
 * cuMemAllocAsync takes its memory at once; cuMemFreeAsync gives it back to the card when the
 * stream gets there. A pool keeps nothing: what it has reserved is what is in use, in steps of
 * 32 MiB (as an H100, driver 580). Freed but
 * not yet reached by the stream, memory is still counted; an allocation that finds the card
 * full waits for that. Invariants: a pool that was destroyed lives until its last allocation is
 * freed. Threads: any, under sim.lock; frees run on workers and take it.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

#define STEP_BYTES ((uint64_t)32 << 20)

struct sim_pool {
    unsigned device;
    bool standard, destroyed;
    uint64_t used, threshold;
    uint64_t used_high, reserved_high; /* since the last reset; the second one in steps */
    size_t live;                       /* allocations */
    int reuse[4];                      /* attributes 1 to 3, kept for those who ask */
};

static struct sim_pool *pool_new(unsigned device, bool standard)
{
    struct sim_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    if (sim_handle_add(pool, SIM_KIND_POOL)) {
        free(pool);
        return NULL;
    }
    pool->device = device;
    pool->standard = standard;
    for (int i = 1; i <= 3; i++)
        pool->reuse[i] = 1;
    return pool;
}

static struct sim_pool *pool_of(CUmemoryPool handle)
{
    return sim_handle_is(handle, SIM_KIND_POOL) ? (struct sim_pool *)handle : NULL;
}

static struct sim_pool *pool_current(unsigned number, bool standard)
{
    struct sim_device *device = &sim.device[number];

    if (!device->default_pool)
        device->default_pool = pool_new(number, true);
    if (!device->pool)
        device->pool = device->default_pool;
    return standard ? device->default_pool : device->pool;
}

void sim_pool_forget(const struct sim_allocation *allocation)
{
    struct sim_pool *pool = allocation->pool;

    pool->used -= allocation->range.size;
    pool->live--;
    if (pool->destroyed && !pool->live)
        free(pool);
}

/* -- allocation in stream order -- */

/* Allocation and freeing need no current context, and are refused beside captures as cuMemAlloc
 * is, unless they are captured themselves (an H200, driver 580). */
static CUresult submit_check(struct sim_stream *stream)
{
    CUresult result = __atomic_load_n(&stream->context->sticky, __ATOMIC_RELAXED);

    if (!result)
        result = sim_capture_check_submit(stream);
    if (!result && !stream->capture && sim_capture_forbids())
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return result;
}

/* pool NULL: the current pool of the stream's device */
static CUresult alloc_async(struct sim_call *call, CUdeviceptr *out, size_t size,
                            struct sim_pool *pool, struct sim_stream *stream)
{
    struct sim_allocation *allocation = NULL;

    if (!stream)
        return call->result;
    CUresult result = submit_check(stream);
    if (result)
        return result;
    if (!pool)
        pool = pool_current(stream->context->device, false);
    if (!out || !pool || (!size && stream->capture))
        return pool || !out ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (!size) { /* as a real driver (580) */
        *out = 0;
        return CUDA_SUCCESS;
    }
    if (stream->capture) /* memory of the graph: no pool has it */
        return sim_graph_memory_alloc(stream, size, out);
    result = sim_alloc(stream->context, size, SIM_DEVICE, &allocation);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = sim_context_drain(stream->context);
        result = result ? result : sim_alloc(stream->context, size, SIM_DEVICE, &allocation);
    }
    if (result)
        return result;
    allocation->pool = pool;
    pool->live++;
    pool->used += size;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->used > pool->reserved_high)
        pool->reserved_high = pool->used;
    *out = allocation->range.start;
    return CUDA_SUCCESS;
}

struct free_op {
    struct sim_op op;
    CUdeviceptr address;
};

static CUresult free_run(const struct sim_op *op, struct sim_context *context)
{
    (void)context;
    pthread_mutex_lock(&sim.lock);
    struct sim_allocation *allocation =
        sim_allocation_find(((const struct free_op *)op)->address);
    if (allocation && allocation->freeing)
        sim_free(allocation);
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

static CUresult free_async(struct sim_call *call, CUdeviceptr address,
                           struct sim_stream *stream)
{
    struct sim_allocation *allocation = sim_allocation_find(address);

    if (!stream)
        return call->result;
    const CUresult refused = submit_check(stream);
    if (refused)
        return refused;
    if (stream->capture)
        return sim_graph_memory_free(stream, address);
    if (!allocation || allocation->range.start != address || allocation->freeing ||
        allocation->kind != SIM_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    struct free_op *op =
        (struct free_op *)sim_op_new(sizeof *op, "free", CU_GRAPH_NODE_TYPE_MEM_FREE, free_run);
    if (op)
        op->address = address;
    const CUresult result = sim_submit(call, stream, op ? &op->op : NULL);
    if (!result)
        allocation->freeing = true;
    return result;
}

/* -- pools -- */

static CUresult pool_out(CUmemoryPool *out, int device, bool standard)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)pool_current((unsigned)device, standard);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_use(int device, CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);

    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->device != (unsigned)device)
        return CUDA_ERROR_INVALID_VALUE;
    sim.device[device].pool = pool;
    return CUDA_SUCCESS;
}

static CUresult pool_create(CUmemoryPool *out, const CUmemPoolProps *props)
{
    if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (props->location.id < 0 || (unsigned)props->location.id >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (CUmemoryPool)pool_new((unsigned)props->location.id, false);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_destroy(CUmemoryPool handle)
{
    struct sim_pool *pool = pool_of(handle);

    if (!pool || pool->standard)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim.device[pool->device].pool == pool)
        sim.device[pool->device].pool = sim.device[pool->device].default_pool;
    sim_handle_remove(pool);
    pool->destroyed = true;
    if (!pool->live)
        free(pool);
    return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value,
                               bool set)
{
    struct sim_pool *pool = pool_of(handle);
    uint64_t *number = NULL;
    const bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                      attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;

    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
        attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        int *reuse = &pool->reuse[attribute];
        memcpy(set ? (void *)reuse : value, set ? value : (const void *)reuse, sizeof *reuse);
        return CUDA_SUCCESS;
    }
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        number = &pool->threshold;
    else if (high)
        number = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? &pool->used_high
                                                            : &pool->reserved_high;
    else if (!set && (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
                      attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
        number = &pool->used;
    if (!number)
        return CUDA_ERROR_INVALID_VALUE;
    if (!set) {
        const bool reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
                              attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
        const uint64_t bytes =
            reserved ? (*number + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES : *number;
        memcpy(value, &bytes, sizeof bytes);
        return CUDA_SUCCESS;
    }
    uint64_t wanted = 0;
    memcpy(&wanted, value, sizeof wanted);
    if (high && wanted) /* a high-water mark is only reset */
        return CUDA_ERROR_INVALID_VALUE;
    *number = high ? pool->used : wanted;
    return CUDA_SUCCESS;
}

static bool is_device(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           (unsigned)location->id < sim.device_count;
}

static CUresult pool_access_set(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    if (!pool_of(handle) || (!map && count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_device(&map[i].location))
            return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

static CUresult pool_access_get(CUmemAccess_flags *flags, CUmemoryPool handle,
                                const CUmemLocation *location)
{
    const struct sim_pool *pool = pool_of(handle);

    if (!flags || !pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(location))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = (unsigned)location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

static CUresult pool_by_location(CUmemoryPool *out, const CUmemLocation *location,
                                 CUmemAllocationType type, bool standard)
{
    if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? pool_out(out, location->id, standard)
                                                         : CUDA_ERROR_NOT_SUPPORTED;
}

#define STREAM sim_stream(&call, stream, per_thread)

SIM_STREAM_API(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, size_t size, CUstream stream),
               SIM_INIT, alloc_async(&call, out, size, NULL, STREAM))
SIM_STREAM_API(cuMemAllocFromPoolAsync, _ptsz,
               (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream), SIM_INIT,
               pool_of(pool) ? alloc_async(&call, out, size, pool_of(pool), STREAM)
                             : CUDA_ERROR_INVALID_VALUE)
SIM_STREAM_API(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream stream), SIM_INIT,
               free_async(&call, address, STREAM))
SIM_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice device), SIM_INIT,
        pool_out(out, device, true))
SIM_API(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice device), SIM_INIT,
        pool_out(out, device, false))
SIM_API(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), SIM_INIT,
        pool_use(device, pool))
SIM_API(cuMemGetDefaultMemPool,
        (CUmemoryPool * out, CUmemLocation *location, CUmemAllocationType type), SIM_INIT,
        pool_by_location(out, location, type, true))
SIM_API(cuMemGetMemPool,
        (CUmemoryPool * out, CUmemLocation *location, CUmemAllocationType type), SIM_INIT,
        pool_by_location(out, location, type, false))
SIM_API(cuMemSetMemPool,
        (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool), SIM_INIT,
        location &&type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                location->type == CU_MEM_LOCATION_TYPE_DEVICE
            ? pool_use(location->id, pool)
            : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps *props),
        SIM_INIT | SIM_UNSAFE, pool_create(out, props))
SIM_API(cuMemPoolDestroy, (CUmemoryPool pool), SIM_INIT | SIM_UNSAFE, pool_destroy(pool))
SIM_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), SIM_INIT | SIM_UNSAFE,
        ((void)keep, pool_of(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE))
SIM_API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
        SIM_INIT | SIM_UNSAFE, pool_attribute(pool, attribute, value, true))
SIM_API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
        SIM_INIT, pool_attribute(pool, attribute, value, false))
SIM_API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
        SIM_INIT, pool_access_set(pool, map, count))
SIM_API(cuMemPoolGetAccess,
        (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location), SIM_INIT,
        pool_access_get(flags, pool, location))
