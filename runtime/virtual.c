/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual.c: owns the handles that the program holds of its own VMM memory.
 *
 * A handle is a range (range.h) without an address until the program maps it. Invariants (under
 * gs_memory_lock): the handle tree holds the ranges that are not yet disposed of; a range is in
 * the address tree exactly while `mapped`; chunks of a range that is not needed are touched by
 * nobody but the calls here. A range that is needed changes only where the client thread does
 * not work on it: inside the gate, or while that thread is parked.
 */
#include "runtime/virtual.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/runtime.h"
#include "runtime/vmm.h"

#define FIRST_HANDLE                                                                           \
    0x6773000000000000ull /* nowhere near the driver's own, which are pointers */

static struct gs_tree handles;
static uint64_t next_handle = FIRST_HANDLE;

static struct gs_range *range_of(CUmemGenericAllocationHandle handle)
{
    struct gs_tree_node *node = gs_tree_find(&handles, handle);

    return node == NULL
               ? NULL
               : ((struct gs_virtual *)((char *)node - offsetof(struct gs_virtual, by_handle)))
                     ->range;
}

/* Under the lock. Also a handle that is no more: the driver would take it for a pointer of its
 * own. */
static bool is_ours(CUmemGenericAllocationHandle handle)
{
    return handle >= FIRST_HANDLE && handle < next_handle;
}

/* under the lock: the range behind a handle that the program still may use */
static struct gs_range *usable(CUmemGenericAllocationHandle handle)
{
    struct gs_range *range = range_of(handle);

    return range != NULL && range->own->references > 0 ? range : NULL;
}

struct gs_device *gs_virtual_device(const CUmemAllocationProp *prop)
{
    struct gs_device *device;

    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->allocFlags.usage != 0 ||
        gs_runtime.config.disabled)
        return NULL;
    device = gs_device_get(prop->location.id);
    return device != NULL && device->movable ? device : NULL;
}

/* Physical memory for chunks that never had any. Nobody else works on the range. */
static CUresult give_memory(struct gs_range *range)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++) {
        struct gs_chunk *chunk = &range->chunks[i];
        const uint64_t bytes = gs_range_chunk_bytes(range, i);

        if (chunk->state == GS_CHUNK_HOST)
            return CUDA_ERROR_NOT_SUPPORTED; /* unmapped while it was out: it has no address to
                                                be copied to */
        if (chunk->state == GS_CHUNK_RESIDENT)
            continue;
        result = gs_driver.cuMemCreate(&chunk->handle, bytes, &range->own->prop, 0);
        if (result == CUDA_SUCCESS && range->own->mapped)
            result = gs_vmm_map(range, i);
        if (result != CUDA_SUCCESS)
            break;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        chunk->state = GS_CHUNK_RESIDENT;
        range->device->resident += bytes;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
    return result;
}

/* What the driver thinks of these properties: it is asked at once, with a piece of the smallest
 * size, because programs try kinds of handles and go by the answer (PyTorch and fabric
 * handles). The last good answer is remembered. */
static CUresult ask_driver(const struct gs_device *device, const CUmemAllocationProp *prop)
{
    static CUmemAllocationProp good;
    static bool any;
    CUmemGenericAllocationHandle handle;
    CUresult result;
    bool known;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    known = any && memcmp(&good, prop, sizeof good) == 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (known)
        return CUDA_SUCCESS;
    result = gs_driver.cuMemCreate(&handle, device->granule, prop, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return CUDA_SUCCESS; /* a full card says nothing about the properties */
    if (result != CUDA_SUCCESS)
        return result;
    gs_driver.cuMemRelease(handle);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    good = *prop;
    any = true;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return CUDA_SUCCESS;
}

CUresult gs_virtual_create(struct gs_device *device, uint64_t bytes,
                           const CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle *handle)
{
    /* what may be exported must be one piece of memory */
    const bool whole = prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    struct gs_virtual *own;
    struct gs_range *range;
    CUresult asked;
    bool released;

    if (bytes == 0 || bytes % device->granule != 0)
        return CUDA_ERROR_INVALID_VALUE;
    asked = ask_driver(device, prop);
    if (asked != CUDA_SUCCESS)
        return asked;
    gs_client_await_target(device);
    if (!gs_range_account(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    own = calloc(1, sizeof *own);
    range = gs_range_new(device, bytes, whole ? bytes : GS_CHUNK_BYTES);
    if (own == NULL || range == NULL) {
        free(own);
        free(range);
        gs_range_unaccount(device, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    own->prop = *prop;
    own->references = 1;
    own->range = range;
    own->by_handle.size = 1;
    range->own = own;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    own->by_handle.base = *handle = next_handle;
    next_handle += 16;
    gs_tree_insert(&handles, &own->by_handle);
    gs_range_link(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (gs_client_is_alone()) { /* nobody will make room later: what is there is there now */
        const CUresult result = give_memory(range);

        if (result != CUDA_SUCCESS) {
            gs_virtual_release(*handle, &released);
            return result;
        }
    }
    gs_client_wake();
    return CUDA_SUCCESS;
}

/* Under the lock: nobody can reach it any more. True: the caller disposes of it. */
static bool ends(struct gs_range *range)
{
    if (range->own->references > 0 || range->own->mapped || range->life != GS_RANGE_LIVE)
        return false;
    gs_tree_remove(&handles, range->own->by_handle.base);
    gs_range_end_life(range, GS_RANGE_DISPOSING);
    return true;
}

CUresult gs_virtual_release(CUmemGenericAllocationHandle handle, bool *ours)
{
    struct gs_range *range;
    bool last = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = usable(handle);
    *ours = is_ours(handle);
    if (range != NULL) {
        range->own->references--;
        last = ends(range);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (last) {
        gs_range_dispose(range);
        gs_client_wake();
    }
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gs_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *handle,
                           bool *ours)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE; /* of cuMemAlloc's memory there is none */
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    *ours = range != NULL;
    if (range != NULL && range->own != NULL) {
        range->own->references++;
        *handle = range->own->by_handle.base;
        result = CUDA_SUCCESS;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return result;
}

CUresult gs_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop,
                               bool *ours)
{
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = usable(handle);
    *ours = is_ours(handle);
    if (range != NULL)
        *prop = range->own->prop;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- address space that the program has reserved --- */

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

bool gs_reserved_remove(CUdeviceptr address)
{
    struct gs_tree_node *node;
    bool mapped;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    node = gs_tree_find(&reservations, address);
    mapped = node != NULL && gs_range_overlaps(node->base, node->size);
    if (node != NULL && !mapped)
        gs_tree_remove(&reservations, node->base);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!mapped)
        free(node);
    return !mapped;
}

/* under the lock */
static bool is_reserved(CUdeviceptr address, uint64_t bytes)
{
    const struct gs_tree_node *node = gs_tree_find(&reservations, address);

    return node != NULL && bytes <= node->base + node->size - address;
}

void gs_virtual_after_fork(void)
{
    handles.root = NULL;
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
    range = usable(handle);
    *ours = is_ours(handle);
    if (range != NULL) {
        alias = range->own->mapped;
        if (offset == 0 && bytes == range->reserved && address % range->device->granule == 0 &&
            is_reserved(address, bytes) && !gs_range_overlaps(address, bytes))
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
    last = ends(range);
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
    CUresult result;

    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    result = note_access(range->own, access, count);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++)
        if (range->chunks[i].state == GS_CHUNK_RESIDENT)
            result = gs_driver.cuMemSetAccess(gs_range_chunk_address(range, i),
                                              gs_range_chunk_bytes(range, i), access, count);
    gs_gate_leave(pass);
    return result;
}

CUresult gs_virtual_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count, bool *ours)
{
    const CUdeviceptr end = address + bytes;
    CUresult result = CUDA_SUCCESS;
    int mappings;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    *ours = gs_range_at(address) != NULL;
    mappings = mappings_in(address, bytes);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!*ours || mappings <= 0 || access == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
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

CUresult gs_virtual_pin(CUmemGenericAllocationHandle handle, CUmemGenericAllocationHandle *real,
                        bool *ours)
{
    struct gs_range *range;
    CUresult result;
    unsigned pass;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = usable(handle);
    *ours = is_ours(handle);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pass = gs_gate_enter(); /* what is needed is in place inside */
    if (pass == GS_PASS_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = give_memory(range);
    if (result == CUDA_SUCCESS) {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        gs_range_pin(range);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        *real = range->chunks[0].handle;
        gs_log("%llu bytes of the program's own are shared: pinned",
               (unsigned long long)range->reserved);
    }
    gs_gate_leave(pass);
    gs_client_wake();
    return result;
}
