/* SPDX-License-Identifier: Apache-2.0
 *
 * mapping.c: where the program maps its own VMM memory (handles: virtual.c), and the address
 * space it has reserved for that.
 *
 * State: the reservations, under gs_memory_lock. A range that is needed changes only where the
 * client thread does not work on it: inside the gate, or while that thread is parked; until it
 * is accessible it is not needed.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/lock.h"
#include "runtime/virtual.h"
#include "runtime/vmm.h"

static struct gs_tree reservations;

void gs_reserved_add(CUdeviceptr address, uint64_t bytes)
{
    struct gs_tree_node *node = calloc(1, sizeof *node);

    if (node == NULL)
        return; /* mapping there will be refused; better than a mapping nobody can undo */
    node->base = address;
    node->size = bytes;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_tree_insert(&reservations, node);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

CUresult gs_reserved_free(CUdeviceptr address, uint64_t bytes)
{
    struct gs_tree_node *node;
    CUresult result;
    bool mapped;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    node = gs_tree_find(&reservations, address);
    mapped = node != NULL && gs_range_overlaps(node->base, node->size);
    /* out before the driver can give the address to another thread; back if it refuses */
    if (node != NULL && !mapped)
        gs_tree_remove(&reservations, node->base);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (mapped)
        return CUDA_ERROR_INVALID_VALUE;
    result = gs_driver.cuMemAddressFree(address, bytes);
    if (result == CUDA_SUCCESS || node == NULL) {
        free(node);
        return result;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_tree_insert(&reservations, node);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return result;
}

/* under the lock */
static bool is_reserved(CUdeviceptr address, uint64_t bytes)
{
    const struct gs_tree_node *node = gs_tree_find(&reservations, address);

    return node != NULL && bytes <= node->base + node->size - address;
}

void gs_reserved_after_fork(void)
{
    reservations.root = NULL;
}

/* A second mapping of the same memory: pinned, and from then on the driver's own business. */
static CUresult map_alias(CUdeviceptr address, CUmemGenericAllocationHandle handle,
                          struct gs_range *range)
{
    CUmemGenericAllocationHandle real;
    CUresult result;
    bool ours;

    result = gs_virtual_pin(handle, &real, &ours);
    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        result =
            gs_driver.cuMemMap(address + i * range->chunk_bytes, gs_range_chunk_bytes(range, i),
                               0, range->chunks[i].handle, 0);
    return result;
}

/* memory that it has already goes where the program wants it now */
static CUresult map_resident(struct gs_range *range)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t i;

    for (i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            result = gs_vmm_map(range, i);
    if (result == CUDA_SUCCESS)
        return result;
    for (i--; i-- > 0;)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            gs_vmm_unmap(range, i);
    return result;
}

CUresult gs_virtual_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, bool *ours)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct gs_range *range;
    bool alias = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_virtual_usable(handle);
    *ours = gs_virtual_is_ours(handle);
    if (range != NULL) {
        alias = range->own->mapped;
        if (bytes > range->reserved || (bytes != 0 && offset % range->device->granule != 0))
            result = CUDA_ERROR_NOT_SUPPORTED; /* as the driver (580) says */
        else if (offset == 0 && bytes == range->reserved &&
                 address % range->device->granule == 0 && is_reserved(address, bytes) &&
                 !gs_range_overlaps(address, bytes))
            result = CUDA_SUCCESS;
        if (result == CUDA_SUCCESS && !alias) {
            gs_range_set_address(range, address, bytes);
            range->own->access_count = 0;
            range->own->mapped = true;
        }
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (result != CUDA_SUCCESS)
        return result;
    if (alias)
        return map_alias(address, handle, range);
    result = map_resident(range);
    if (result != CUDA_SUCCESS) {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        gs_range_clear_address(range);
        range->own->mapped = false;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
    return result;
}

/* Under the lock: whole mappings of the program's own, and nothing else, from address on.
 * Their number; -1 otherwise. */
static int mappings_in(CUdeviceptr address, uint64_t bytes)
{
    const CUdeviceptr end = address + bytes;
    int count = 0;

    while (address < end) {
        const struct gs_range *range = gs_range_at(address);

        if (range == NULL || range->own == NULL || range->node.base != address ||
            range->reserved > end - address)
            return -1;
        address += range->reserved;
        count++;
    }
    return count;
}

static void unmap_one(CUdeviceptr address)
{
    struct gs_range *range;
    bool last;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    if (gs_range_is_needed(range) && !range->pinned)
        gs_range_unneed(range);
    range->own->accessible = false;
    range->own->access_count = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (uint32_t i = 0; i < range->chunk_count; i++)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            gs_vmm_unmap(range, i);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_range_clear_address(range);
    range->own->mapped = false;
    last = gs_virtual_ends(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (last)
        gs_range_dispose(range);
}

CUresult gs_virtual_unmap(CUdeviceptr address, uint64_t bytes, bool *ours)
{
    const CUdeviceptr end = address + bytes;
    bool entered;
    unsigned pass;
    int count;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    *ours = gs_range_at(address) != NULL;
    count = mappings_in(address, bytes);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!*ours || count <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    entered = gs_gate_try_enter(&pass);
    if (!entered)
        gs_client_park();
    while (address < end) {
        uint64_t step;

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        step = gs_range_at(address)->reserved;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        unmap_one(address);
        address += step;
    }
    if (entered)
        gs_gate_leave(pass);
    else
        gs_client_unpark();
    gs_client_wake();
    return CUDA_SUCCESS;
}

/* What a driver would say of these without the memory being there; what is noted is asked for
 * at every mapping from now on, and one that is refused would keep the memory away for ever. */
static CUresult check_access(const struct gs_device *device, const CUmemAccessDesc *access,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int reaches = 1;

        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (access[i].location.id == device->ordinal)
            continue;
        if (gs_device_get(access[i].location.id) == NULL ||
            gs_driver.cuDeviceCanAccessPeer(&reaches, access[i].location.id, device->ordinal) !=
                CUDA_SUCCESS ||
            reaches == 0)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* under the lock: what the program asks for replaces what it asked for the same location */
static CUresult note_access(struct gs_virtual *own, const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned at = 0;

        while (at < own->access_count && memcmp(&own->access[at].location, &access[i].location,
                                                sizeof access[i].location) != 0)
            at++;
        if (at == GS_VIRTUAL_ACCESS)
            return CUDA_ERROR_NOT_SUPPORTED;
        own->access[at] = access[i];
        if (at == own->access_count)
            own->access_count++;
    }
    return CUDA_SUCCESS;
}

/* The first access makes it needed: its memory comes now, or is missing and the gate shuts. */
static CUresult make_needed(struct gs_range *range, const CUmemAccessDesc *access, size_t count)
{
    CUresult result;
    unsigned pass;
    bool entered;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    result = note_access(range->own, access, count);
    if (result != CUDA_SUCCESS)
        range->own->access_count = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            result = gs_driver.cuMemSetAccess(gs_range_chunk_address(range, i),
                                              gs_range_chunk_bytes(range, i), access, count);
    if (result != CUDA_SUCCESS)
        return result;
    /* until it is accessible the client thread leaves it alone */
    entered = gs_gate_try_enter(&pass);
    if (entered)
        gs_range_place(range);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range->own->accessible = true;
    if (!range->pinned)
        gs_range_miss(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (entered)
        gs_gate_leave(pass);
    gs_client_wake();
    return CUDA_SUCCESS;
}

/* more, or other, access to memory that is in use */
static CUresult change_access(struct gs_range *range, const CUmemAccessDesc *access,
                              size_t count)
{
    const unsigned pass = gs_gate_enter();
    struct gs_virtual before;
    CUresult result;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    before = *range->own;
    result = note_access(range->own, access, count);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            result = gs_driver.cuMemSetAccess(gs_range_chunk_address(range, i),
                                              gs_range_chunk_bytes(range, i), access, count);
    if (result != CUDA_SUCCESS) {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        memcpy(range->own->access, before.access, sizeof before.access);
        range->own->access_count = before.access_count;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
    gs_gate_leave(pass);
    return result;
}

CUresult gs_virtual_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count, bool *ours)
{
    const CUdeviceptr end = address + bytes;
    const struct gs_device *device = NULL;
    CUresult result;
    int mappings;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    *ours = gs_range_at(address) != NULL;
    if (*ours)
        device = gs_range_at(address)->device;
    mappings = mappings_in(address, bytes);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!*ours || mappings <= 0 || access == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = check_access(device, access, count);
    while (address < end && result == CUDA_SUCCESS) {
        struct gs_range *range;
        bool needed;

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        range = gs_range_at(address);
        needed = gs_range_is_needed(range);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        address += range->reserved;
        result =
            needed ? change_access(range, access, count) : make_needed(range, access, count);
    }
    return result;
}

CUresult gs_virtual_get_access(CUdeviceptr address, const CUmemLocation *location,
                               unsigned long long *flags, bool *ours)
{
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    *ours = range != NULL && range->own != NULL && flags != NULL && location != NULL;
    if (*ours) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        for (unsigned i = 0; i < range->own->access_count; i++)
            if (memcmp(&range->own->access[i].location, location, sizeof *location) == 0)
                *flags = range->own->access[i].flags;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return CUDA_SUCCESS;
}
