/* SPDX-License-Identifier: Apache-2.0
 *
 * mapping.c: maps the program's own VMM memory (handles: virtual.c), and keeps the address space
 * that it has reserved for that.
 *
 * State: the reservations, under gs_memory_lock. A range that is needed changes only where the
 * client thread does not work on it: inside the gate, or while that thread is parked. A range is
 * not needed before it is accessible.
 */
#include "runtime/memory/mapping.h"
#include "runtime/memory/foreign_mapping.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/virtual.h"
#include "runtime/range/vmm.h"
#include "runtime/swap/swap.h"

static struct gs_range_tree reservations GS_ZERO_IN_CHILD;

void gs_reserved_add(CUdeviceptr address, uint64_t bytes)
{
    struct gs_range_tree_node *node = calloc(1, sizeof *node);

    if (node == NULL)
        return; /* mapping there will be refused; better than a mapping that cannot be undone */
    node->base = address;
    node->size = bytes;
    GS_HOLD_MEMORY;
    gs_range_tree_insert(&reservations, node);
}

CUresult gs_reserved_free(CUdeviceptr address, uint64_t bytes)
{
    struct gs_range_tree_node *node;
    CUresult result;
    bool mapped;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    node = gs_range_tree_find(&reservations, address);
    mapped = node != NULL ? gs_range_overlaps(node->base, node->size)
                          : gs_range_at(address) != NULL || gs_range_is_near(address);
    /* removed before the driver can give the address to another thread; added again if it
     * refuses */
    if (node != NULL && !mapped)
        gs_range_tree_remove(&reservations, node->base);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (mapped)
        return CUDA_ERROR_INVALID_VALUE;
    result = gs_driver.cuMemAddressFree(address, bytes);
    if (result == CUDA_SUCCESS || node == NULL) {
        free(node);
        return result;
    }
    GS_WITH_MEMORY(gs_range_tree_insert(&reservations, node));
    return result;
}

bool gs_reserved_find(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes)
{
    GS_HOLD_MEMORY;
    const struct gs_range_tree_node *node = gs_range_tree_find(&reservations, address);

    if (node != NULL) {
        *base = node->base;
        *bytes = node->size;
    }
    return node != NULL;
}

/* Maps memory that the range has already at its new address. */
static CUresult map_resident(struct gs_range *range)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t i;

    for (i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (gs_chunk_is_there(&range->chunks[i]))
            result = gs_vmm_map(range, i);
    if (result == CUDA_SUCCESS)
        return result;
    for (i--; i-- > 0;)
        if (gs_chunk_is_there(&range->chunks[i]))
            gs_vmm_unmap(range, i);
    return result;
}

/* under the lock: true for whole pages of reservations with nothing mapped there */
static bool may_map(CUdeviceptr address, uint64_t bytes, uint64_t granule)
{
    const CUdeviceptr end = address + bytes;
    const struct gs_range_tree_node *node;

    if (bytes == 0 || bytes % granule != 0 || address % granule != 0 || end < address ||
        gs_range_overlaps(address, bytes) || gs_foreign_first(address, bytes) != NULL)
        return false;
    while (address < end && (node = gs_range_tree_find(&reservations, address)) != NULL)
        address = node->base + node->size;
    return address >= end;
}

/* Under the lock. foreign: the driver makes the mapping itself. The driver (580) maps no part of
 * what a handle stands for. */
static CUresult note_mapping(struct gs_range *range, CUdeviceptr address, uint64_t bytes,
                             uint64_t offset, bool *foreign)
{
    *foreign = range->own->mapped;
    if (bytes != 0 && (offset != 0 || bytes != range->reserved))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!may_map(address, bytes, range->device->granule))
        return CUDA_ERROR_INVALID_VALUE;
    if (!*foreign) {
        gs_range_set_address(range, address, bytes);
        range->own->access_count = 0;
        range->own->mapped = true;
    }
    return CUDA_SUCCESS;
}

CUresult gs_virtual_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags,
                        bool *ours)
{
    struct gs_range *range = gs_virtual_hold(handle, ours);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    bool foreign = false;

    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    gs_virtual_begin(range);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (flags == 0)
        result = note_mapping(range, address, bytes, offset, &foreign);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (result == CUDA_SUCCESS && !foreign) {
        result = map_resident(range);
        if (result != CUDA_SUCCESS) {
            GS_WITH_MEMORY(gs_range_clear_address(range); range->own->mapped = false);
        }
    }
    gs_virtual_end(range);
    if (result == CUDA_SUCCESS && foreign)
        return gs_foreign_map_ours(address, range);
    gs_virtual_drop(range);
    return result;
}

/* What is mapped between two addresses. */
enum span {
    UNKNOWN, /* nothing of ours, and no mapping of the program's that we know */
    MAPPED,  /* whole mappings of the program's, and gaps */
    BROKEN,  /* anything else */
};

/* under the lock: the mapping at the address; false: none */
static bool find_mapping(CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes)
{
    const struct gs_range *range = gs_range_at(address);
    const struct gs_foreign *foreign = gs_foreign_at(address);

    *base = foreign != NULL ? foreign->node.base : range != NULL ? range->node.base : 0;
    *bytes = foreign != NULL ? foreign->node.size : range != NULL ? range->reserved : 0;
    return foreign != NULL || (range != NULL && range->own != NULL);
}

/* under the lock: the next address with memory of ours, or a mapping of the driver's; end: none */
static CUdeviceptr skip_gap(CUdeviceptr at, CUdeviceptr end)
{
    const struct gs_range *range = at < end ? gs_range_first(at, end - at) : NULL;
    const struct gs_range_tree_node *foreign = at < end ? gs_foreign_first(at, end - at) : NULL;
    CUdeviceptr next = range != NULL ? range->node.base : end;

    if (foreign != NULL && foreign->base < next)
        next = foreign->base;
    return next > at ? next : at;
}

/* Under the lock. MAPPED: the bytes cut no mapping; with `edges`, a mapping begins and one ends
 * with them. */
static enum span span_of(CUdeviceptr address, uint64_t bytes, bool edges)
{
    const CUdeviceptr end = address + bytes;
    CUdeviceptr first = end, last = address, base = 0;
    uint64_t size = 0;

    if (!gs_range_overlaps(address, bytes) && gs_foreign_first(address, bytes) == NULL)
        return UNKNOWN;
    for (CUdeviceptr at = skip_gap(address, end); at < end; at = skip_gap(last, end)) {
        if (!find_mapping(at, &base, &size) || base < address || base + size > end)
            return BROKEN;
        first = base < first ? base : first;
        last = base + size;
    }
    return first == end || (edges && (first != address || last != end)) ? BROKEN : MAPPED;
}

/* Under the lock: the end of the mappings that follow one another from the address on. */
static CUdeviceptr end_of_mappings(CUdeviceptr address, CUdeviceptr end)
{
    CUdeviceptr base = 0;
    uint64_t size = 0;

    while (address < end && find_mapping(address, &base, &size))
        address = base + size;
    return address;
}

static void unmap_one(struct gs_range *range)
{
    bool last;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (gs_range_is_needed(range) && !range->pinned)
        gs_range_unneed(range);
    range->own->accessible = false;
    range->own->access_count = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (uint32_t i = 0; i < range->chunk_count; i++) {
        if (gs_chunk_is_mapped(&range->chunks[i]))
            gs_vmm_unmap(range, i);
        range->chunks[i].adrift = false; /* it is to be mapped nowhere */
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_range_clear_address(range);
    range->own->mapped = false;
    last = gs_virtual_ends(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (last)
        gs_swap_dispose(range);
}

/* Whole granules, of which the first is reserved. */
static bool is_in_granules(CUdeviceptr address, uint64_t bytes)
{
    const struct gs_device *device = gs_device_at(0);
    GS_HOLD_MEMORY;

    return (device == NULL || (address | bytes) % device->granule == 0) &&
           gs_range_tree_find(&reservations, address) != NULL;
}

CUresult gs_virtual_unmap(CUdeviceptr address, uint64_t bytes, bool *ours)
{
    const CUdeviceptr end = address + bytes;
    struct gs_range *range;
    CUresult result;
    bool entered;
    unsigned pass;
    enum span span = GS_WITH_MEMORY(span_of(address, bytes, false));

    *ours = span != UNKNOWN;
    if (span != MAPPED || !is_in_granules(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = gs_foreign_unmap(address, bytes); /* first the call that the driver might refuse */
    if (result != CUDA_SUCCESS ||
        GS_WITH_MEMORY(gs_range_first(address, end - address)) == NULL)
        return result;
    entered = gs_gate_try_enter(&pass);
    if (!entered)
        gs_worker_park();
    while ((range = GS_WITH_MEMORY(gs_range_first(address, end - address))) != NULL)
        unmap_one(range);
    if (entered)
        gs_gate_leave(pass);
    else
        gs_worker_unpark();
    gs_worker_wake();
    return CUDA_SUCCESS;
}

/* Asks the driver for its answer to these rights, before there is memory. Noted rights are
 * requested at every mapping from now on, and refused rights would keep the memory away for
 * ever. */
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

/* under the lock: rights for a location replace earlier rights for the same location */
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

static CUresult set_access(const struct gs_range *range, const CUmemAccessDesc *access,
                           size_t count)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (gs_chunk_is_mapped(&range->chunks[i]))
            result = gs_driver.cuMemSetAccess(gs_range_chunk_address(range, i),
                                              gs_range_chunk_bytes(range, i), access, count);
    return result;
}

/* The first access makes the range needed (between gs_virtual_begin and _end): its memory is
 * made now, or is missing and the gate closes. */
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
    if (result == CUDA_SUCCESS)
        result = set_access(range, access, count);
    if (result != CUDA_SUCCESS)
        return result;
    /* the client thread leaves it alone until it is accessible */
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
    gs_worker_wake();
    return CUDA_SUCCESS;
}

/* Changes the access rights of memory that is in use. */
static CUresult change_access(struct gs_range *range, const CUmemAccessDesc *access,
                              size_t count)
{
    const unsigned pass = gs_gate_enter();
    struct gs_virtual before;
    CUresult result;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    GS_WITH_MEMORY(before = *range->own; result = note_access(range->own, access, count));
    if (result == CUDA_SUCCESS)
        result = set_access(range, access, count);
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
    CUdeviceptr end = address + bytes;
    CUresult result = CUDA_SUCCESS;
    struct gs_range *range;
    enum span span = GS_WITH_MEMORY(span_of(address, bytes, true)); /* as the driver (H200) */

    *ours = span != UNKNOWN;
    if (span != MAPPED || access == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    end = GS_WITH_MEMORY(end_of_mappings(address, end)); /* the driver stops at the first gap */
    range = GS_WITH_MEMORY(gs_range_first(address, end - address));
    if (range != NULL)
        result = check_access(range->device, access, count);
    if (result == CUDA_SUCCESS)
        result = gs_foreign_set_access(address, end - address, access, count);
    for (; range != NULL && result == CUDA_SUCCESS;
         range = GS_WITH_MEMORY(gs_range_first(address, end - address))) {
        bool needed;

        if (range->own == NULL) /* between two reservations */
            return CUDA_ERROR_INVALID_VALUE;
        gs_virtual_begin(range);
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        needed = gs_range_is_needed(range);
        address = range->node.base + range->reserved;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (!needed)
            result = make_needed(range, access, count);
        gs_virtual_end(range);
        if (needed)
            result = change_access(range, access, count);
    }
    return result;
}

CUresult gs_virtual_get_access(CUdeviceptr address, const CUmemLocation *location,
                               unsigned long long *flags, bool *ours)
{
    bool hole, accessible = true;
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    hole = range == NULL && gs_range_is_near(address);
    if (range != NULL && range->own != NULL)
        accessible = range->own->accessible;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    *ours = hole || (range != NULL && flags != NULL && location != NULL);
    if (!*ours || hole)
        return CUDA_ERROR_INVALID_VALUE;
    if (!accessible) { /* the driver does not know this mapping yet */
        if (location->type != CU_MEM_LOCATION_TYPE_HOST &&
            (location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
             gs_device_get(location->id) == NULL))
            return CUDA_ERROR_INVALID_DEVICE;
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
    }
    /* the driver knows mapped memory only */
    return GS_INSIDE(gs_driver.cuMemGetAccess(flags, location, address));
}
