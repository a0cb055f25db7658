/* SPDX-License-Identifier: Apache-2.0
 *
 * pools.c: memory in stream order, and pools.
 */
#include "tests/gpu/differ/differ.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned pick_pool(void)
{
    unsigned slot = pick(POOLS);

    while (slot != 0 && world.pool[slot] == NULL)
        slot--;
    tell(" p%u", slot);
    return slot;
}

static void allocate_ordered(void)
{
    struct memory *slot = memory_free_slot();
    const size_t bytes = one_in(40) ? 0 : pick_size();
    const CUstream stream = pick_stream();
    CUdeviceptr start = 0;
    CUresult result;

    if (slot == NULL || world.capturing != 0) /* memory of a graph: differ/graphs.c */
        return;
    tell(" %zu", bytes);
    if (one_in(2))
        result = CALL(cuMemAllocAsync, cuMemAllocAsync_v11020)(&start, bytes, stream);
    else
        result = CALL(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_v11020)(
            &start, bytes, world.pool[pick_pool()], stream);
    if (answer(result) == CUDA_SUCCESS)
        settle();
    if (result == CUDA_SUCCESS)
        memory_keep(slot, start, bytes, ORDERED);
}

static void free_ordered(void)
{
    struct memory *slot = pick_memory();
    const CUstream stream = pick_stream();
    CUdeviceptr start;
    const unsigned how = pick(20);

    if (slot == NULL || world.capturing != 0)
        return;
    start = slot->start + (how == 0 ? slot->bytes / 2 : 0);
    tell(how == 0 ? " inside" : slot->kind == ORDERED ? "" : " not ordered");
    if (answer(CALL(cuMemFreeAsync, cuMemFreeAsync_v11020)(start, stream)) == CUDA_SUCCESS &&
        (how != 0 || start == slot->start))
        memory_forget(slot);
}

static void pool_create(void)
{
    static const size_t most[] = {0, 0, 0, 1, MIB, 32 * MIB, 33 * MIB};
    const unsigned slot = 1 + pick(POOLS - 1);
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = one_in(30) ? 99 : 0;
    properties.handleTypes = one_in(6) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
    properties.maxSize = most[pick(LENGTH(most))];
    tell(" p%u at most %zu type %d device %d", slot, properties.maxSize,
         (int)properties.handleTypes, properties.location.id);
    if (world.pool[slot] != NULL)
        return;
    if (answer(CALL(cuMemPoolCreate, cuMemPoolCreate_v11020)(&world.pool[slot], &properties)) !=
        CUDA_SUCCESS)
        world.pool[slot] = NULL;
}

static void pool_destroy(void)
{
    const unsigned slot = pick(POOLS);

    tell(" p%u", slot);
    if (world.pool[slot] == NULL || slot == 0)
        return;
    for (unsigned i = 0; i < MEMORIES; i++)
        if (world.memory[i].start != 0 && world.memory[i].kind == ORDERED)
            return; /* which may be this pool's */
    answer(CALL(cuMemPoolDestroy, cuMemPoolDestroy_v11020)(world.pool[slot]));
    world.pool[slot] = NULL;
}

static void pool_attribute(void)
{
    const CUmemoryPool pool = world.pool[pick_pool()];
    const CUmemPool_attribute which = (CUmemPool_attribute)(1 + pick(9));
    uint64_t value = 0;

    tell(" attribute %d", (int)which);
    if (one_in(3)) {
        value = pick(3) * MIB;
        if (which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
            value = pick(2);
        tell(" := %llu", (unsigned long long)value);
        answer(CALL(cuMemPoolSetAttribute, cuMemPoolSetAttribute_v11020)(pool, which, &value));
        return;
    }
    if (answer(CALL(cuMemPoolGetAttribute,
                    cuMemPoolGetAttribute_v11020)(pool, which, &value)) != CUDA_SUCCESS)
        return;
    if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        tell(value % (2 * MIB) == 0 ? " granules" : " no granules");
    else if (which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        tell(" %u", (unsigned)value);
    else if (!world.ordered_freed || which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        tell(" %llu", (unsigned long long)value);
}

static void pool_trim(void)
{
    const CUmemoryPool pool = world.pool[pick_pool()];

    answer(CALL(cuMemPoolTrimTo, cuMemPoolTrimTo_v11020)(pool, pick(4) * MIB));
}

static void pool_access(void)
{
    const CUmemoryPool pool = world.pool[pick_pool()];
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = one_in(6) ? 99 : 0};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    access.location = location;
    tell(" device %d", location.id);
    if (one_in(4))
        answer(CALL(cuMemPoolSetAccess, cuMemPoolSetAccess_v11020)(pool, &access, 1));
    if (answer(CALL(cuMemPoolGetAccess, cuMemPoolGetAccess_v11020)(&flags, pool, &location)) ==
        CUDA_SUCCESS)
        tell(" %d", (int)flags);
}

static void pool_of_device(void)
{
    CUmemoryPool pool = NULL;

    if (one_in(3)) {
        const unsigned slot = pick_pool();

        answer(CALL(cuDeviceSetMemPool, cuDeviceSetMemPool_v11020)(0, world.pool[slot]));
    }
    if (answer(CALL(cuDeviceGetMemPool, cuDeviceGetMemPool_v11020)(&pool, 0)) != CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < POOLS; i++)
        if (pool != NULL && pool == world.pool[i])
            tell(" p%u", i);
}

const struct operation ordered_operations[] = {
    {"cuMemAllocAsync", 9, allocate_ordered},
    {"cuMemFreeAsync", 7, free_ordered},
    {"cuMemPoolCreate", 2, pool_create},
    {"cuMemPoolDestroy", 1, pool_destroy},
    {"cuMemPoolGetAttribute", 3, pool_attribute},
    {"cuMemPoolTrimTo", 1, pool_trim},
    {"cuMemPoolGetAccess", 2, pool_access},
    {"cuDeviceGetMemPool", 2, pool_of_device},
    {0},
};
