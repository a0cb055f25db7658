/* SPDX-License-Identifier: Apache-2.0
 *
 * edge.c: owns the addresses that cuMemAlloc's ranges have from the driver, with an edge on
 * either side, and the memory that all edges of a device share.
 *
 * Invariants, under gs_memory_lock: the tree holds the addresses of every range from
 * gs_edge_reserve() to gs_edge_give_back(). device->edge.handle is memory of ours while
 * edge.present, from the device's first context to its last; meanwhile it is counted in `pinned`.
 */
#include "runtime/range/edge.h"
#include "runtime/range/vmm.h"

#define ATTEMPTS 10 /* at making room, one a second */

static struct gs_range_tree tree GS_ZERO_IN_CHILD;

static void edge_addresses(const struct gs_range *range, CUdeviceptr edges[2])
{
    edges[0] = range->space.node.base;
    edges[1] = range->node.base + range->reserved;
}

static uint64_t whole_bytes(const struct gs_range *range)
{
    return range->reserved + 2 * range->device->granule;
}

CUresult gs_edge_reserve(struct gs_range *range)
{
    const uint64_t edge = range->device->granule;
    CUdeviceptr address = 0;
    const CUresult result =
        gs_driver.cuMemAddressReserve(&address, whole_bytes(range), edge, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    range->node.base = address + edge;
    range->space.node.base = address;
    range->space.node.size = whole_bytes(range);
    GS_HOLD_MEMORY;
    gs_range_tree_insert(&tree, &range->space.node);
    return result;
}

static CUresult create_edge(const struct gs_device *device, CUmemGenericAllocationHandle *edge)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};

    return gs_driver.cuMemCreate(edge, device->granule, &prop, 0);
}

/* The first edge that a thread has made becomes the device's. */
static void keep_edge(struct gs_device *device, CUmemGenericAllocationHandle edge)
{
    bool kept;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    kept = !device->edge.present;
    if (kept) {
        device->edge.present = true;
        device->edge.handle = edge;
        device->accounts.pinned += device->granule;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!kept)
        gs_vmm_release(edge);
}

static bool make_edge(struct gs_device *device,
                      bool (*make_room)(struct gs_device *, unsigned attempt))
{
    CUmemGenericAllocationHandle edge;
    CUresult result;

    if (GS_WITH_MEMORY(device->edge.present))
        return true;
    result = create_edge(device, &edge);
    for (unsigned i = 0;
         result == CUDA_ERROR_OUT_OF_MEMORY && make_room != NULL && i < ATTEMPTS; i++)
        if (make_room(device, i))
            result = create_edge(device, &edge);
        else
            break;
    if (result == CUDA_SUCCESS)
        keep_edge(device, edge);
    return result == CUDA_SUCCESS;
}

void gs_edge_begin(CUdevice ordinal, bool (*make_room)(struct gs_device *, unsigned attempt))
{
    struct gs_device *device = gs_runtime.config.disabled ? NULL : gs_device_get(ordinal);

    if (device == NULL || !device->movable || device->managed)
        return;
    if (make_room != NULL &&
        atomic_exchange_explicit(&device->edge.sought, true, memory_order_relaxed))
        make_room = NULL;
    make_edge(device, make_room);
}

void gs_edges_context_ended(void)
{
    gs_each_device (device) {
        CUmemGenericAllocationHandle edge;
        bool had;

        if (gs_context_for(device) != NULL)
            continue;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        edge = device->edge.handle;
        had = device->edge.present;
        if (had)
            device->accounts.pinned -= device->granule;
        device->edge.present = false;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (had)
            gs_vmm_release(edge);
    }
}

/* If a driver has no read-only access, the edge can be written, too; it holds nothing of
 * anybody's. On error nothing is left behind. */
static CUresult map_edge(const struct gs_device *device, CUdeviceptr address)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUresult result = gs_driver.cuMemMap(address, device->granule, 0, device->edge.handle, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = gs_driver.cuMemSetAccess(address, device->granule, &access, 1);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (result != CUDA_SUCCESS)
        result = gs_driver.cuMemSetAccess(address, device->granule, &access, 1);
    if (result != CUDA_SUCCESS)
        gs_vmm_unmap_at(address, device->granule);
    return result;
}

void gs_edge_map(struct gs_range *range)
{
    const struct gs_device *device = range->device;
    CUdeviceptr edges[2];

    if (range->space.edged || !make_edge(range->device, NULL))
        return;
    edge_addresses(range, edges);
    if (map_edge(device, edges[0]) == CUDA_SUCCESS) {
        range->space.edged = map_edge(device, edges[1]) == CUDA_SUCCESS;
        if (!range->space.edged)
            gs_vmm_unmap_at(edges[0], device->granule);
    }
}

void gs_edge_give_back(struct gs_range *range)
{
    CUdeviceptr edges[2];

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    /* before the driver gives it to another thread */
    gs_range_tree_remove(&tree, range->space.node.base);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range->space.edged) {
        edge_addresses(range, edges);
        for (unsigned i = 0; i < 2; i++)
            gs_vmm_unmap_at(edges[i], range->device->granule);
    }
    gs_driver.cuMemAddressFree(range->space.node.base, range->space.node.size);
}

bool gs_edge_reserved(CUdeviceptr address, uint64_t bytes)
{
    return gs_range_tree_overlap(&tree, address, bytes) != NULL;
}
