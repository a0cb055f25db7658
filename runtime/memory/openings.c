/* SPDX-License-Identifier: Apache-2.0
 *
 * openings.c: owns the memory of other processes that is open here: a list, and the tree of its
 * addresses, under gs_memory_lock.
 *
 * Invariant: an opening is in the tree exactly while it has references. One without references
 * belongs to the thread that opens or closes it. Any thread.
 */
#include "runtime/memory/openings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/driver.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/uncancelled.h"
#include "runtime/memory/synchronize.h"
#include "runtime/range/memory_lock.h"
#include "runtime/range/vmm.h"

#define PAUSE_NS 500000 /* while another thread opens the same */

static struct gs_range_tree tree;
static struct gs_opening *openings;
static uint64_t next_id = 1ull << 62; /* far from those of ranges */

const struct gs_opening *gs_openings_at(CUdeviceptr address)
{
    return (const struct gs_opening *)gs_range_tree_find(&tree, address);
}

bool gs_openings_any(void)
{
    return openings != NULL;
}

bool gs_openings_of(const uint8_t exporter[16])
{
    const struct gs_opening *each;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (each = openings; each != NULL; each = each->next)
        if (memcmp(each->exporter, exporter, sizeof each->exporter) == 0)
            break;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return each != NULL;
}

static uint64_t bytes_of(const struct gs_opening *opening, uint32_t chunk)
{
    const uint64_t from = chunk * opening->chunk_bytes;

    return opening->bytes - from < opening->chunk_bytes ? opening->bytes - from
                                                        : opening->chunk_bytes;
}

/* --- mapping --- */

static void unmap_chunks(struct gs_opening *opening, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        gs_vmm_unmap_at(opening->mapped + i * opening->chunk_bytes, bytes_of(opening, i));
    if (opening->mapped != 0)
        gs_driver.cuMemAddressFree(opening->mapped, opening->bytes);
    opening->mapped = 0;
}

void gs_opening_drop(struct gs_opening *opening)
{
    for (uint32_t i = 0; i < opening->got; i++)
        gs_vmm_release(opening->handles[i]);
    free(opening->handles);
    opening->handles = NULL;
    opening->got = opening->chunk_count = 0;
    gs_own_fd_close(&opening->lifeline); /* last: after this the memory may move */
}

/* Makes it accessible to the device that opens it, and to its own if the process sees that one. */
static CUresult set_access(const struct gs_opening *opening)
{
    CUmemAccessDesc access[2];
    size_t count = 1;
    int devices = 0;

    access[0] = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = opening->device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access[1] = access[0];
    gs_driver.cuDeviceGetCount(&devices);
    for (int i = 0; i < devices && count == 1; i++) {
        CUuuid uuid;

        if (i != opening->device->ordinal &&
            gs_driver.cuDeviceGetUuid_v2(&uuid, i) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, opening->uuid, sizeof opening->uuid) == 0)
            access[count++].location.id = i;
    }
    return gs_driver.cuMemSetAccess(opening->mapped, opening->bytes, access, count);
}

static CUresult map_opening(struct gs_opening *opening)
{
    CUresult result = gs_driver.cuMemAddressReserve(&opening->mapped, opening->bytes, 0, 0, 0);
    uint32_t mapped = 0;

    if (result != CUDA_SUCCESS) {
        opening->mapped = 0;
        return result;
    }
    while (result == CUDA_SUCCESS && mapped < opening->chunk_count) {
        result = gs_driver.cuMemMap(opening->mapped + mapped * opening->chunk_bytes,
                                    bytes_of(opening, mapped), 0, opening->handles[mapped], 0);
        mapped += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = set_access(opening);
    if (result != CUDA_SUCCESS) {
        gs_log("memory of another process cannot be mapped: CUresult %d", result);
        unmap_chunks(opening, mapped);
    }
    return result;
}

static void end_opening(struct gs_opening *opening)
{
    unmap_chunks(opening, opening->chunk_count);
    gs_opening_drop(opening);
    free(opening);
}

/* --- opening --- */

/* Under the lock. */
static void remove_opening(struct gs_opening *opening)
{
    struct gs_opening **at = &openings;

    while (*at != opening)
        at = &(*at)->next;
    *at = opening->next;
}

enum known { NEW, OPEN, UNDER_WAY };

/* Adds a reference, or adds the new opening without references. */
static enum known begin_open(struct gs_opening *fresh, CUdeviceptr *address)
{
    enum known known = NEW;
    struct gs_opening *each;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (each = openings; each != NULL; each = each->next)
        if (each->context == fresh->context &&
            memcmp(each->token, fresh->token, sizeof each->token) == 0)
            break;
    if (each == NULL) {
        fresh->next = openings;
        openings = fresh;
    } else if (each->references == 0) {
        known = UNDER_WAY;
    } else {
        known = OPEN;
        each->references++;
        *address = each->node.base;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return known;
}

static void finish_open(struct gs_opening *opening, bool good)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (good) {
        opening->node.base = opening->mapped + opening->offset;
        opening->node.size = opening->size;
        opening->references = 1;
        opening->id = next_id++;
        gs_range_tree_insert(&tree, &opening->node);
    } else {
        remove_opening(opening);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

CUresult gs_openings_open(const struct gs_ipc_handle *like, struct gs_device *device,
                          int (*get)(const void *context, struct gs_opening *opening),
                          const void *context, CUdeviceptr *address, int *error)
{
    struct gs_opening *fresh = calloc(1, sizeof *fresh);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    enum known known;

    *error = 0;
    if (fresh == NULL)
        return result;
    fresh->device = device;
    memcpy(fresh->token, like->token, sizeof fresh->token);
    memcpy(fresh->exporter, like->exporter, sizeof fresh->exporter);
    atomic_store(&fresh->lifeline.fd, -1);
    result = gs_driver.cuCtxGetCurrent(&fresh->context);
    if (result != CUDA_SUCCESS) {
        free(fresh);
        return result;
    }
    while ((known = begin_open(fresh, address)) == UNDER_WAY)
        gs_pause(PAUSE_NS); /* the other thread's wait is bounded */
    if (known == OPEN) {
        free(fresh);
        return CUDA_SUCCESS;
    }
    *error = get(context, fresh);
    result = *error == 0 ? map_opening(fresh) : CUDA_ERROR_MAP_FAILED;
    finish_open(fresh, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
        *address = fresh->node.base;
        return result;
    }
    gs_opening_drop(fresh);
    free(fresh);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_MAP_FAILED;
}

CUresult gs_openings_close(CUdeviceptr address, bool *ours)
{
    struct gs_opening *opening;
    bool last = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    opening = (struct gs_opening *)gs_range_tree_find(&tree, address);
    *ours = opening != NULL;
    if (opening != NULL && opening->node.base != address)
        opening = NULL;
    else if (opening != NULL)
        last = --opening->references == 0;
    if (last) {
        gs_range_tree_remove(&tree, address);
        remove_opening(opening);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (opening == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!last)
        return CUDA_SUCCESS;
    gs_synchronize_context(opening->context); /* work that was submitted may still use it */
    end_opening(opening);
    return CUDA_SUCCESS;
}

static struct gs_opening *take_of_context(CUcontext context)
{
    struct gs_opening *opening;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (opening = openings; opening != NULL; opening = opening->next)
        if (opening->context == context && opening->references != 0)
            break;
    if (opening != NULL) {
        gs_range_tree_remove(&tree, opening->node.base);
        remove_opening(opening);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return opening;
}

void gs_openings_context_ended(CUcontext context)
{
    struct gs_opening *opening;

    while ((opening = take_of_context(context)) != NULL)
        end_opening(opening);
}

void gs_openings_after_fork(void)
{
    for (struct gs_opening *each = openings; each != NULL; each = each->next)
        gs_own_fd_close(&each->lifeline); /* the parent's alone; its books are left to it */
    openings = NULL;
    tree.root = NULL;
}
