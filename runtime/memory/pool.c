/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: the pools that we serve, as the program uses them: creation, allocation, attributes,
 * and access by other devices. pool_accounts.c has their accounts. No state. Any thread.
 */
#include "runtime/memory/pool.h"
#include "runtime/gate/capture.h"
#include "runtime/memory/idle_ranges.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/stream_order.h"

/* The driver's pools grow in steps of 32 MiB, and a pool's greatest size is a number of steps (an
 * H100, driver 580). Programs subtract what they use from what is reserved. */
#define STEP_BYTES ((uint64_t)32 << 20)

static uint64_t round_to_steps(uint64_t bytes)
{
    return bytes > UINT64_MAX - STEP_BYTES ? bytes
                                           : (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
}

static struct gs_pool *add_pool(CUmemoryPool handle, struct gs_device *device, uint64_t most)
{
    struct gs_pool *pool = calloc(1, sizeof *pool), *there;
    uint64_t threshold = 0;
    int may_wait = 1;

    if (pool == NULL)
        return NULL;
    if (gs_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                        &threshold) != CUDA_SUCCESS)
        threshold = 0;
    if (gs_driver.cuMemPoolGetAttribute(handle,
                                        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                                        &may_wait) != CUDA_SUCCESS)
        may_wait = 0;
    pool->handle = handle;
    pool->device = device;
    pool->most = most;
    pool->threshold = threshold;
    pool->may_wait = may_wait != 0;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    there = gs_pool_find(handle);
    if (there == NULL) {
        gs_pool_add(pool);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (there != NULL)
        free(pool);
    return there != NULL ? there : pool;
}

/* A handle whose creation was not seen is a device's default pool, or an imported pool. */
static struct gs_pool *standard_pool(CUmemoryPool handle)
{
    struct gs_device *device = gs_device_current();
    CUmemoryPool standard;

    for (unsigned i = 0; device != NULL; device = gs_device_at(i++))
        if (gs_device_is_movable(device) &&
            gs_driver.cuDeviceGetDefaultMemPool(&standard, device->ordinal) == CUDA_SUCCESS &&
            standard == handle)
            return add_pool(handle, device, 0);
    return NULL;
}

struct gs_pool *gs_pool_of(CUmemoryPool handle)
{
    struct gs_pool *pool;

    if (handle == NULL || gs_runtime.config.disabled)
        return NULL;
    pool = GS_WITH_MEMORY(gs_pool_find(handle));
    return pool != NULL ? pool : standard_pool(handle);
}

void gs_pool_created(CUmemoryPool handle, const CUmemPoolProps *props)
{
    struct gs_device *device;

    if (gs_runtime.config.disabled || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->usage != 0) {
        gs_log("a memory pool does not hold plain device memory: its memory is not moved");
        return;
    }
    device = gs_device_get(props->location.id);
    if (device != NULL && gs_device_is_movable(device))
        add_pool(handle, device, round_to_steps(props->maxSize));
}

void gs_pool_destroyed(CUmemoryPool handle)
{
    struct gs_device *device = NULL;
    struct gs_pool *pool;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    pool = gs_pool_find(handle);
    if (pool != NULL) {
        device = pool->device;
        pool->destroyed = true;
        pool->threshold = 0;
        pool->ranges++; /* keeps the pool until its idle memory has been released */
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (pool == NULL)
        return;
    gs_idle_give_back(device, pool, UINT64_MAX);
    GS_WITH_MEMORY(pool->ranges--; gs_pool_free_if_over(pool));
}

/* --- allocation --- */

CUresult gs_pool_allocate(struct gs_pool *pool, uint64_t bytes,
                          const struct gs_stream_position *position, CUdeviceptr *address)
{
    const struct gs_request request = {
        .device = pool->device, .pool = pool, .position = position, .bytes = bytes};
    CUresult result = gs_memory_allocate(&request, address);

    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    gs_pool_trim(pool, 0);
    return gs_memory_allocate(&request, address);
}

/* --- attributes --- */

void gs_pool_attribute_set(struct gs_pool *pool, CUmemPool_attribute attribute,
                           const void *value)
{
    uint64_t number = 0;
    int flag = 0;

    if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        memcpy(&flag, value, sizeof flag);
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(&number, value, sizeof number);
    GS_HOLD_MEMORY;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->may_wait = flag != 0;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = number;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* it can only be reset */
        pool->reserved_high = pool->reserved;
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        pool->used_high = pool->used;
        break;
    default:
        break;
    }
}

void gs_pool_attribute_get(struct gs_pool *pool, CUmemPool_attribute attribute, void *value)
{
    uint64_t number = 0;

    if (attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return;
    if (!gs_capture_active())
        gs_stream_order_collect(false);
    memcpy(&number, value, sizeof number);
    GS_WITH_MEMORY(number += attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                 ? round_to_steps(pool->reserved)
                             : attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
                                 ? round_to_steps(pool->reserved_high)
                             : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? pool->used
                                                                             : pool->used_high);
    memcpy(value, &number, sizeof number);
}

void gs_pool_trim(struct gs_pool *pool, uint64_t keep)
{
    uint64_t reserved;

    if (!gs_capture_active())
        gs_stream_order_collect(false);
    reserved = GS_WITH_MEMORY(pool->reserved);
    if (reserved > keep)
        gs_idle_give_back(pool->device, pool, reserved - keep);
}

/* --- peers --- */

/* under the lock: access of a device replaces its earlier access */
static bool note_peer(struct gs_pool *pool, const CUmemAccessDesc *access)
{
    unsigned at = 0;

    while (at < pool->peer_count && pool->peers[at].location.id != access->location.id)
        at++;
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        if (at < pool->peer_count)
            pool->peers[at] = pool->peers[--pool->peer_count];
        return true;
    }
    if (at == GS_MAX_PEERS)
        return false;
    pool->peers[at] = *access;
    if (at == pool->peer_count)
        pool->peer_count++;
    return true;
}

CUresult gs_pool_set_access(struct gs_pool *pool, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = CUDA_SUCCESS, granted;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access[i].location.id != pool->device->ordinal && !note_peer(pool, &access[i]))
            result = CUDA_ERROR_NOT_SUPPORTED;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    granted = gs_range_grant(pool->device, pool, access, count);
    return granted != CUDA_SUCCESS ? granted : result;
}
