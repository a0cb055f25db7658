/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual.c: the operations of differ.c on the program's own virtual memory.
 */
#include "tests/gpu/differ/differ.h"

#define GRANULE (2 * MIB)
#define PAGE    ((size_t)4096)

static CUmemAllocationProp properties_of(int device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

static void reserve(void)
{
    static const size_t alignments[] = {0, 0, 0, GRANULE, 4096, 3, 8 * GRANULE};
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const size_t bytes = one_in(15) ? pick(5000) : GRANULES * GRANULE,
                 alignment = alignments[pick(LENGTH(alignments))];
    CUdeviceptr start = 0;

    tell(" r%u %zu alignment %zu", (unsigned)(r - world.reservation), bytes, alignment);
    if (r->start != 0)
        return;
    if (answer(CALL(cuMemAddressReserve, cuMemAddressReserve_v10020)(
            &start, bytes, alignment, 0, one_in(20))) != CUDA_SUCCESS)
        return;
    if (bytes == GRANULES * GRANULE)
        *r = (struct reservation){.start = start};
    else
        answer(CALL(cuMemAddressFree, cuMemAddressFree_v10020)(start, bytes));
}

static void unreserve(void)
{
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const bool wrong = one_in(8);

    tell(" r%u%s", (unsigned)(r - world.reservation), wrong ? " wrong" : "");
    if (r->start == 0)
        return;
    for (unsigned i = 0; i < GRANULES; i++)
        if (r->mapped[i] != 0)
            return; /* undefined */
    if (answer(CALL(cuMemAddressFree, cuMemAddressFree_v10020)(
            r->start + (wrong ? GRANULE : 0), GRANULES * GRANULE)) == CUDA_SUCCESS)
        *r = (struct reservation){0};
}

static void create(void)
{
    const unsigned slot = pick(HANDLES);
    const size_t bytes = one_in(15) ? pick(5000) : (1 + pick(2)) * GRANULE;
    CUmemAllocationProp properties = properties_of(one_in(30) ? 99 : 0);

    if (one_in(8))
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (one_in(20))
        properties.type = (CUmemAllocationType)(2 + pick(3));
    tell(" a%u %zu type %d export %d device %d", slot, bytes, (int)properties.type,
         (int)properties.requestedHandleTypes, properties.location.id);
    if (world.handle[slot] != 0)
        return;
    if (answer(CALL(cuMemCreate, cuMemCreate_v10020)(&world.handle[slot], bytes, &properties,
                                                     one_in(20))) != CUDA_SUCCESS)
        world.handle[slot] = 0;
}

static void release(void)
{
    const unsigned slot = pick(HANDLES);

    tell(" a%u", slot);
    if (world.handle[slot] == 0)
        return;
    answer(CALL(cuMemRelease, cuMemRelease_v10020)(world.handle[slot]));
    world.handle[slot] = 0;
}

static void map(void)
{
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const unsigned slot = pick(HANDLES), at = pick(GRANULES);
    const size_t offset = one_in(15) ? GRANULE : 0, bytes = one_in(20) ? 4096 : GRANULE;
    const unsigned flags = one_in(15);

    tell(" r%u granule %u a%u offset %zu bytes %zu flags %u", (unsigned)(r - world.reservation),
         at, slot, offset, bytes, flags);
    if (r->start == 0 || world.handle[slot] == 0)
        return;
    if (answer(CALL(cuMemMap, cuMemMap_v10020)(r->start + at * GRANULE, bytes, offset,
                                               world.handle[slot], flags)) == CUDA_SUCCESS)
        r->mapped[at] = 1 + (int)slot;
}

static void unmap(void)
{
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const unsigned at = pick(GRANULES);

    tell(" r%u granule %u", (unsigned)(r - world.reservation), at);
    if (r->start == 0)
        return;
    if (answer(CALL(cuMemUnmap, cuMemUnmap_v10020)(r->start + at * GRANULE, GRANULE)) ==
        CUDA_SUCCESS)
        r->mapped[at] = 0;
}

static void set_access(void)
{
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const unsigned at = pick(GRANULES), granules = 1 + pick(GRANULES - at);
    CUmemAccessDesc access = {.flags = one_in(3) ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                 : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = one_in(15) ? 99 : 0;
    if (one_in(15))
        access.flags = (CUmemAccess_flags)pick(5);
    tell(" r%u granules %u+%u flags %d device %d", (unsigned)(r - world.reservation), at,
         granules, (int)access.flags, access.location.id);
    if (r->start != 0)
        answer(CALL(cuMemSetAccess, cuMemSetAccess_v10020)(r->start + at * GRANULE,
                                                           granules * GRANULE, &access, 1));
}

static void get_access(void)
{
    struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = one_in(5) ? 99 : 0};
    unsigned long long flags = 77;
    unsigned at, page;

    if (one_in(8))
        location.type = one_in(2) ? CU_MEM_LOCATION_TYPE_HOST : (CUmemLocationType)77;
    tell(" r%u location %d,%d", (unsigned)(r - world.reservation), (int)location.type,
         location.id);
    if (r->start == 0)
        return;
    page = pick(2);
    at = pick(GRANULES);
    tell(" granule %u+%u", at, page);
    if (answer(CALL(cuMemGetAccess, cuMemGetAccess_v10020)(
            &flags, &location, r->start + at * GRANULE + page * PAGE)) == CUDA_SUCCESS)
        tell(" %llu", flags);
}

static void retain(void)
{
    const struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const unsigned at = pick(GRANULES);
    CUmemGenericAllocationHandle handle = 0;

    tell(" r%u granule %u", (unsigned)(r - world.reservation), at);
    if (r->start == 0)
        return;
    if (answer(CALL(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle_v11000)(
            &handle, (void *)(uintptr_t)(r->start + at * GRANULE + pick(2) * PAGE))) !=
        CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < HANDLES; i++)
        if (handle == world.handle[i] && r->mapped[at] == 1 + (int)i)
            tell(" a%u", i);
    answer(CALL(cuMemRelease, cuMemRelease_v10020)(handle));
}

static void properties(void)
{
    const unsigned slot = pick(HANDLES);
    CUmemAllocationProp had = {0};
    const CUmemAllocationProp wanted = properties_of(one_in(10) ? 99 : 0);
    size_t granularity = 0;

    tell(" a%u", slot);
    if (world.handle[slot] != 0 && answer(CALL(cuMemGetAllocationPropertiesFromHandle,
                                               cuMemGetAllocationPropertiesFromHandle_v10020)(
                                       &had, world.handle[slot])) == CUDA_SUCCESS)
        tell(" type %d export %d location %d,%d", (int)had.type, (int)had.requestedHandleTypes,
             (int)had.location.type, had.location.id);
    if (answer(CALL(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity_v10020)(
            &granularity, &wanted, (CUmemAllocationGranularity_flags)pick(3))) == CUDA_SUCCESS)
        tell(" %zu", granularity);
}

static void touch(void)
{
    const struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    const unsigned at = pick(GRANULES);
    const size_t offset = pick(3) * PAGE, bytes = 4 + pick(4096);
    const CUdeviceptr address = r->start + at * GRANULE + offset;
    CUresult result;

    tell(" r%u granule %u+%zu", (unsigned)(r - world.reservation), at, offset);
    if (r->start == 0 || (r->mapped[at] == 0 && !world.faults))
        return;
    result = answer(CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(address, (unsigned char)at, bytes));
    if (result == CUDA_SUCCESS && world.capturing == 0 &&
        answer(CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(host_target, address, bytes)) ==
            CUDA_SUCCESS)
        tell_sum(host_target, bytes);
}

static void attribute(void)
{
    const struct reservation *r = &world.reservation[pick(RESERVATIONS)];
    static const CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                                CU_POINTER_ATTRIBUTE_MAPPED,
                                                CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                                CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
    const CUpointer_attribute one = which[pick(LENGTH(which))];
    uint64_t value[4] = {0};
    CUdeviceptr base = 0;
    size_t bytes = 0, at = pick(GRANULES) * GRANULE + pick(2) * PAGE;

    tell(" r%u+%zu attribute %d", (unsigned)(r - world.reservation), at, (int)one);
    if (r->start == 0)
        return;
    if (answer(CALL(cuPointerGetAttribute,
                    cuPointerGetAttribute_v4000)(value, one, r->start + at)) == CUDA_SUCCESS)
        tell(" %llu", (unsigned long long)value[0]);
    if (answer(CALL(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020)(
            &base, &bytes, r->start + at)) == CUDA_SUCCESS) {
        tell_address(base);
        tell(" %zu", bytes);
    }
}

const struct operation virtual_operations[] = {
    {"cuMemAddressReserve", 2, reserve},
    {"cuMemAddressFree", 1, unreserve},
    {"cuMemCreate", 3, create},
    {"cuMemRelease", 2, release},
    {"cuMemMap", 5, map},
    {"cuMemUnmap", 2, unmap},
    {"cuMemSetAccess", 5, set_access},
    {"cuMemGetAccess", 3, get_access},
    {"cuMemRetainAllocationHandle", 2, retain},
    {"cuMemGetAllocationPropertiesFromHandle", 2, properties},
    {"touch", 4, touch},
    {"attributes of the program's own", 4, attribute},
    {0},
};
