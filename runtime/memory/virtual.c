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
#include "runtime/memory/virtual.h"
#include "runtime/gate/gate.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/room.h"
#include "runtime/range/vmm.h"
#include "runtime/swap/swap.h"
#include "runtime/range/over.h"

#define FIRST_HANDLE                                                                           \
    0x6773000000000000ull /* nowhere near the driver's own, which are pointers */

#define PAUSE_NS 50000 /* while another thread works on a range */

static struct gs_range_tree handles GS_ZERO_IN_CHILD;
static uint64_t next_handle = FIRST_HANDLE;

bool gs_virtual_is_ours(CUmemGenericAllocationHandle handle)
{
    return handle >= FIRST_HANDLE && handle < next_handle;
}

/* The range of a handle that the program may still use; NULL: none. */
static struct gs_range *find_usable(CUmemGenericAllocationHandle handle)
{
    struct gs_range_tree_node *node = gs_range_tree_find(&handles, handle);
    const struct gs_virtual *own =
        node == NULL ? NULL : (void *)((char *)node - offsetof(struct gs_virtual, by_handle));

    return own != NULL && own->references > 0 ? own->range : NULL;
}

struct gs_device *gs_virtual_device(const CUmemAllocationProp *prop)
{
    struct gs_device *device;

    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop->allocFlags.usage != 0 ||
        gs_runtime.config.disabled)
        return NULL;
    device = gs_device_get(prop->location.id);
    return device != NULL && gs_device_is_movable(device) ? device : NULL;
}

void gs_virtual_begin(struct gs_range *range)
{
    GS_KEEP_ERRNO;

    while (!GS_WITH_MEMORY(!range->own->worked_on && (range->own->worked_on = true)))
        gs_pause(PAUSE_NS);
}

void gs_virtual_end(struct gs_range *range)
{
    GS_WITH_MEMORY(range->own->worked_on = false);
}

/* Makes physical memory for chunks that never had any. No other thread works on the range. */
static CUresult give_memory(struct gs_range *range)
{
    CUresult result = CUDA_SUCCESS;

    gs_range_begin_work(range->device);
    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++) {
        struct gs_chunk *chunk = &range->chunks[i];
        const uint64_t bytes = gs_range_chunk_bytes(range, i);

        if (gs_chunk_is_there(chunk))
            continue;
        if (chunk->state == GS_CHUNK_HOST) { /* unmapped while it was out: it has no address to
                                                be copied to */
            result = CUDA_ERROR_NOT_SUPPORTED;
            break;
        }
        result = gs_driver.cuMemCreate(&chunk->handle, bytes, &range->own->prop, 0);
        if (result == CUDA_SUCCESS && range->own->mapped)
            result = gs_vmm_map(range, i);
        if (result != CUDA_SUCCESS)
            break;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        chunk->state = GS_CHUNK_RESIDENT;
        range->device->accounts.resident += bytes;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
    gs_range_end_work(range->device);
    return result;
}

/* Asks the driver whether it accepts these properties, at once, with a piece of the smallest
 * size: programs try kinds of handles and rely on the answer (PyTorch and fabric handles). The
 * last good answer is remembered. */
static CUresult ask_driver(const struct gs_device *device, const CUmemAllocationProp *prop)
{
    static CUmemAllocationProp good;
    static bool any;
    CUmemGenericAllocationHandle handle;
    CUresult result;
    bool known = GS_WITH_MEMORY(any && memcmp(&good, prop, sizeof good) == 0);

    if (known)
        return CUDA_SUCCESS;
    result = gs_driver.cuMemCreate(&handle, device->granule, prop, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return CUDA_SUCCESS; /* a full card says nothing about the properties */
    if (result != CUDA_SUCCESS)
        return result;
    gs_driver.cuMemRelease(handle);
    GS_WITH_MEMORY(good = *prop; any = true);
    return CUDA_SUCCESS;
}

CUresult gs_virtual_create(struct gs_device *device, uint64_t bytes,
                           const CUmemAllocationProp *prop,
                           CUmemGenericAllocationHandle *handle)
{
    /* exportable memory must be one piece */
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
    gs_daemon_await_target(device);
    if (bytes > device->total + gs_over_limit(device)) /* also bounds the bookkeeping */
        return CUDA_ERROR_OUT_OF_MEMORY;
    own = calloc(1, sizeof *own);
    range = gs_range_new(device, bytes,
                         whole ? bytes : gs_over_chunk_bytes(device, GS_CHUNK_BYTES));
    if (own != NULL && range != NULL) {
        own->prop = *prop;
        own->references = 1;
        own->range = range;
        own->by_handle.size = 1;
        range->own = own;
    }
    if (own == NULL || range == NULL || !gs_memory_admit(range)) {
        free(own);
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    own->by_handle.base = *handle = next_handle;
    next_handle += 16;
    gs_range_tree_insert(&handles, &own->by_handle);
    gs_range_link(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (gs_daemon_is_absent()) { /* there is no daemon that could make room later */
        const CUresult result = give_memory(range);

        if (result != CUDA_SUCCESS) {
            gs_virtual_release(*handle, &released);
            return result;
        }
    }
    gs_worker_wake();
    return CUDA_SUCCESS;
}

bool gs_virtual_ends(struct gs_range *range)
{
    if (range->own->references > 0 || range->own->mapped || range->own->aliases > 0 ||
        range->life != GS_RANGE_LIVE)
        return false;
    gs_range_tree_remove(&handles, range->own->by_handle.base);
    gs_range_end_life(range, GS_RANGE_DISPOSING);
    return true;
}

CUresult gs_virtual_release(CUmemGenericAllocationHandle handle, bool *ours)
{
    struct gs_range *range;
    bool last = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = find_usable(handle);
    *ours = gs_virtual_is_ours(handle);
    if (range != NULL) {
        range->own->references--;
        last = gs_virtual_ends(range);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (last) {
        gs_swap_dispose(range);
        gs_worker_wake();
    }
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult gs_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop,
                               bool *ours)
{
    GS_HOLD_MEMORY;
    struct gs_range *range = find_usable(handle);

    *ours = gs_virtual_is_ours(handle);
    if (range != NULL)
        *prop = range->own->prop;
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct gs_range *gs_virtual_hold(CUmemGenericAllocationHandle handle, bool *ours)
{
    GS_HOLD_MEMORY;
    struct gs_range *range = find_usable(handle);

    *ours = gs_virtual_is_ours(handle);
    if (range != NULL)
        range->own->aliases++;
    return range;
}

bool gs_virtual_is_behind(const CUarrayMapInfo *mappings, unsigned count)
{
    bool ours = false;

    GS_HOLD_MEMORY;
    for (unsigned i = 0; mappings != NULL && i < count; i++)
        ours |= gs_virtual_is_ours(mappings[i].memHandle.memHandle);
    return ours;
}

void gs_virtual_drop(struct gs_range *range)
{
    bool last;

    GS_WITH_MEMORY(range->own->aliases--; last = gs_virtual_ends(range));
    if (!last)
        return;
    gs_swap_dispose(range);
    gs_worker_wake();
}

/* inside the gate */
static CUresult pin_range(struct gs_range *range)
{
    CUresult result;

    gs_virtual_begin(range);
    result = give_memory(range);
    if (result == CUDA_SUCCESS) {
        GS_WITH_MEMORY(gs_range_pin(range));
        gs_log("the program shares %llu bytes of its own memory: pinned",
               (unsigned long long)range->reserved);
    }
    gs_virtual_end(range);
    return result;
}

CUresult gs_virtual_pin(struct gs_range *range)
{
    CUresult result;
    unsigned attempt = 0, pass;

    do {
        pass = gs_gate_enter(); /* inside the gate, everything that is needed is in place */
        if (pass == GS_PASS_REFUSED)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = pin_range(range);
        gs_gate_leave(pass);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && (pass & GS_PASS_NESTED) == 0 &&
             gs_room_make(range->device, attempt++));
    gs_worker_wake();
    return result;
}
