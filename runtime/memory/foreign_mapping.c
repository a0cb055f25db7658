/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign_mapping.c: owns the list of the driver's own mappings in the program's reservations
 * (foreign_mapping.h).
 *
 * State: their tree, under gs_memory_lock. Invariant: a range has as many `aliases` as there are
 * mappings of it here, plus mappings about to be made. Any thread.
 */
#include "runtime/memory/foreign_mapping.h"
#include "runtime/memory/virtual.h"

static struct gs_range_tree tree GS_ZERO_IN_CHILD;

struct gs_foreign *gs_foreign_at(CUdeviceptr address)
{
    return (struct gs_foreign *)gs_range_tree_find(&tree, address);
}

const struct gs_range_tree_node *gs_foreign_first(CUdeviceptr address, uint64_t bytes)
{
    return gs_range_tree_first(&tree, address, bytes);
}

static struct gs_foreign *new_foreign(CUdeviceptr address, uint64_t bytes, struct gs_range *of)
{
    struct gs_foreign *foreign = calloc(1, sizeof *foreign);

    if (foreign == NULL)
        return NULL;
    foreign->node.base = address;
    foreign->node.size = bytes;
    foreign->of = of;
    return foreign;
}

CUresult gs_foreign_map(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct gs_foreign *foreign;
    CUresult result;
    bool taken;

    if (bytes == 0)
        return gs_driver.cuMemMap(address, bytes, offset, handle, flags);
    taken = GS_WITH_MEMORY(gs_range_overlaps(address, bytes));
    if (taken)
        return CUDA_ERROR_INVALID_VALUE;
    foreign = new_foreign(address, bytes, NULL);
    if (foreign == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = gs_driver.cuMemMap(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        GS_WITH_MEMORY(gs_range_tree_insert(&tree, &foreign->node));
    else
        free(foreign);
    return result;
}

/* all chunks or nothing */
static CUresult map_chunks(CUdeviceptr address, const struct gs_range *range)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t done = 0;

    for (uint32_t i = 0; i < range->chunk_count && result == CUDA_SUCCESS; i++) {
        result = gs_driver.cuMemMap(address + done, gs_range_chunk_bytes(range, i), 0,
                                    range->chunks[i].handle, 0);
        done += result == CUDA_SUCCESS ? gs_range_chunk_bytes(range, i) : 0;
    }
    if (result != CUDA_SUCCESS && done != 0)
        gs_driver.cuMemUnmap(address, done);
    return result;
}

CUresult gs_foreign_map_ours(CUdeviceptr address, struct gs_range *range)
{
    struct gs_foreign *foreign = new_foreign(address, range->reserved, range);
    CUresult result = foreign != NULL ? gs_virtual_pin(range) : CUDA_ERROR_OUT_OF_MEMORY;

    if (result == CUDA_SUCCESS)
        result = map_chunks(address, range);
    if (result == CUDA_SUCCESS) {
        GS_WITH_MEMORY(gs_range_tree_insert(&tree, &foreign->node));
        return result;
    }
    free(foreign);
    gs_virtual_drop(range);
    return result;
}

static bool first_foreign(CUdeviceptr address, CUdeviceptr end,
                          struct gs_range_tree_node *found)
{
    GS_HOLD_MEMORY;
    const struct gs_range_tree_node *node = gs_foreign_first(address, end - address);

    if (node != NULL)
        *found = *node;
    return node != NULL;
}

CUresult gs_foreign_unmap(CUdeviceptr address, uint64_t bytes)
{
    const CUdeviceptr end = address + bytes;
    struct gs_range_tree_node found;
    struct gs_foreign *foreign;
    CUresult result = CUDA_SUCCESS;

    while (result == CUDA_SUCCESS && first_foreign(address, end, &found)) {
        result = gs_driver.cuMemUnmap(found.base, found.size);
        if (result != CUDA_SUCCESS)
            break;
        foreign = GS_WITH_MEMORY((struct gs_foreign *)gs_range_tree_remove(&tree, found.base));
        if (foreign != NULL && foreign->of != NULL)
            gs_virtual_drop(foreign->of);
        free(foreign);
    }
    return result;
}

/* The driver made the mapping, and knows what all devices may do there. */
static void note_access(CUdeviceptr address)
{
    CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long flags = 0;
    struct gs_foreign *foreign;

    for (; flags == 0 && gs_device_get(device.id) != NULL; device.id++)
        if (gs_driver.cuMemGetAccess(&flags, &device, address) != CUDA_SUCCESS)
            flags = 0;
    GS_HOLD_MEMORY;
    foreign = (struct gs_foreign *)gs_range_tree_find(&tree, address);
    if (foreign != NULL)
        foreign->accessible = flags != 0;
}

CUresult gs_foreign_set_access(CUdeviceptr address, uint64_t bytes,
                               const CUmemAccessDesc *access, size_t count)
{
    const CUdeviceptr end = address + bytes;
    struct gs_range_tree_node found;
    CUresult result = CUDA_SUCCESS;

    for (; result == CUDA_SUCCESS && first_foreign(address, end, &found);
         address = found.base + found.size) {
        result = gs_driver.cuMemSetAccess(found.base, found.size, access, count);
        if (result == CUDA_SUCCESS)
            note_access(found.base);
    }
    return result;
}

bool gs_foreign_any(void)
{
    return tree.root != NULL;
}

/* under the lock: the range mapped at the address, by us or, if *foreign is set, beside us */
static struct gs_range *find_mapped(CUdeviceptr address, const struct gs_foreign **foreign,
                                    bool *ours)
{
    struct gs_range *range;

    *foreign = gs_foreign_at(address);
    range = *foreign != NULL ? (*foreign)->of : gs_range_at(address);
    *ours = range != NULL || gs_range_is_near(address);
    return range != NULL && range->own != NULL ? range : NULL;
}

CUresult gs_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *handle,
                           bool *ours)
{
    const struct gs_foreign *foreign;
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = find_mapped(address, &foreign, ours);
    if (range != NULL) {
        range->own->references++;
        *handle = range->own->by_handle.base;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* cuMemAlloc's has none */
}

struct gs_range *gs_virtual_hold_at(CUdeviceptr address, uint64_t *offset, uint64_t *left,
                                    bool *ours)
{
    GS_HOLD_MEMORY;
    const struct gs_foreign *foreign;
    struct gs_range *range = find_mapped(address, &foreign, ours);

    if (range != NULL) {
        const struct gs_range_tree_node *node = foreign != NULL ? &foreign->node : &range->node;

        *offset = address - node->base;
        *left = node->base + node->size - address;
        range->own->aliases++;
    }
    return range;
}
