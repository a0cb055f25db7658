/* SPDX-License-Identifier: Apache-2.0
 *
 * bad_input_vmm.c: the cases of bad_input.c about cuMemCreate, cuMemMap and their relatives.
 */
#include "tests/gpu/bad_input.h"

#define GRANULE (2 * MIB)

typedef CUmemGenericAllocationHandle handle_type;

static const CUmemAllocationProp plain = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc open_here = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUresult create_handle(handle_type *handle, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags)
{
    return CALL(cuMemCreate, cuMemCreate_v10020)(handle, bytes, prop, flags);
}

static CUresult drop_handle(handle_type handle)
{
    return CALL(cuMemRelease, cuMemRelease_v10020)(handle);
}

static CUresult reserve_addresses(CUdeviceptr *p, size_t bytes, size_t alignment,
                                  CUdeviceptr where)
{
    return CALL(cuMemAddressReserve, cuMemAddressReserve_v10020)(p, bytes, alignment, where, 0);
}

static CUresult free_addresses(CUdeviceptr p, size_t bytes)
{
    return CALL(cuMemAddressFree, cuMemAddressFree_v10020)(p, bytes);
}

static CUresult map_handle(CUdeviceptr p, size_t bytes, size_t offset, handle_type handle)
{
    return CALL(cuMemMap, cuMemMap_v10020)(p, bytes, offset, handle, 0);
}

static CUresult unmap_addresses(CUdeviceptr p, size_t bytes)
{
    return CALL(cuMemUnmap, cuMemUnmap_v10020)(p, bytes);
}

static CUresult open_to(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    return CALL(cuMemSetAccess, cuMemSetAccess_v10020)(p, bytes, access, count);
}

static void create_sizes(void)
{
    static const size_t sizes[] = {0,
                                   1,
                                   GRANULE - 1,
                                   GRANULE + 1,
                                   SIZE_MAX,
                                   SIZE_MAX - GRANULE + 1,
                                   (size_t)1 << 50,
                                   SIZE_MAX / 2 + 1};
    CUmemAllocationProp wrong = plain;
    handle_type handle = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        show("size", create_handle(&handle, sizes[i], &plain, 0));
    show("flags", create_handle(&handle, GRANULE, &plain, 1));
    show("NULL", create_handle(NULL, GRANULE, &plain, 0));
    show("no properties", create_handle(&handle, GRANULE, NULL, 0));
    wrong.location.id = 99;
    show("device 99", create_handle(&handle, GRANULE, &wrong, 0));
    wrong = plain;
    wrong.location.id = -1;
    show("device -1", create_handle(&handle, GRANULE, &wrong, 0));
    wrong = plain;
    wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    show("type 0", create_handle(&handle, GRANULE, &wrong, 0));
    wrong = plain;
    wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    show("place 0", create_handle(&handle, GRANULE, &wrong, 0));
}

static void reserve_sizes(void)
{
    static const size_t sizes[] = {
        0, 1, GRANULE + 1, SIZE_MAX, SIZE_MAX - GRANULE + 1, SIZE_MAX / 2 + 1};
    CUdeviceptr p = 0, q = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        show("size", reserve_addresses(&p, sizes[i], 0, 0));
    show("NULL", reserve_addresses(NULL, GRANULE, 0, 0));
    show("alignment 3", reserve_addresses(&p, GRANULE, 3, 0));
    show("flags", CALL(cuMemAddressReserve, cuMemAddressReserve_v10020)(&p, GRANULE, 0, 0, 1));
    show("right", reserve_addresses(&p, 4 * GRANULE, 0, 0));
    show("where that is", reserve_addresses(&q, GRANULE, 0, p)); /* it is a hint */
    show_true("somewhere else", q != p);
    show("free that", free_addresses(q, GRANULE));
    show("free too little", free_addresses(p, GRANULE));
    show("free too much", free_addresses(p, 8 * GRANULE));
    show("free inside", free_addresses(p + GRANULE, GRANULE));
    show("free 0 bytes", free_addresses(p, 0));
    show("free", free_addresses(p, 4 * GRANULE));
    show("free again", free_addresses(p, 4 * GRANULE));
    show("free 0", free_addresses(0, GRANULE));
    show("free a number", free_addresses(0x1234, GRANULE));
    show("free cuMemAlloc's", free_addresses(kept, KEPT));
}

/* wrong calls between the right ones: these must go on working */
static void map_wrong(void)
{
    CUmemAccessDesc wrong = open_here;
    handle_type handle = 0, second = 0, third = 0;
    CUdeviceptr p = 0;

    show("reserve", reserve_addresses(&p, 4 * GRANULE, 0, 0));
    show("create", create_handle(&handle, 2 * GRANULE, &plain, 0));
    show("create", create_handle(&second, GRANULE, &plain, 0));
    show("free too little", free_addresses(p, GRANULE));
    show("free inside", free_addresses(p + GRANULE, GRANULE));
    show("map 0 bytes", map_handle(p, 0, 0, handle));
    show("map too much", map_handle(p, 4 * GRANULE, 0, handle));
    show("map at an odd place", map_handle(p + 512, 2 * GRANULE, 0, handle));
    show("map over the end", map_handle(p + 3 * GRANULE, 2 * GRANULE, 0, handle));
    unmap_addresses(p + 3 * GRANULE,
                    2 * GRANULE); /* a driver that accepts it goes on as others */
    show("map at an odd offset", map_handle(p, GRANULE, 512, handle));
    show("map where nothing is", map_handle(0x1000, 2 * GRANULE, 0, handle));
    show("map on cuMemAlloc's", map_handle(kept, GRANULE, 0, second));
    show("map handle 0", map_handle(p, GRANULE, 0, 0));
    show("open before", open_to(p, 2 * GRANULE, &open_here, 1));
    show("unmap before", unmap_addresses(p, 2 * GRANULE));
    show("map", map_handle(p, 2 * GRANULE, 0, handle));
    show("map on it", map_handle(p, GRANULE, 0, second));
    show("map on its half", map_handle(p + GRANULE, GRANULE, 0, second));
    show("unreserve", free_addresses(p, 4 * GRANULE));
    show("open for device 99", (wrong.location.id = 99, open_to(p, 2 * GRANULE, &wrong, 1)));
    show("open to nobody", open_to(p, 2 * GRANULE, NULL, 1));
    show("open 0", open_to(p, 2 * GRANULE, &open_here, 0));
    show("open over the end", open_to(p, 4 * GRANULE, &open_here, 1));
    show("open", open_to(p, 2 * GRANULE, &open_here, 1));
    show("use", set(p, 2 * GRANULE));
    show("unmap a part", unmap_addresses(p, GRANULE));
    show("unmap inside", unmap_addresses(p + GRANULE, GRANULE));
    show("unmap too much", unmap_addresses(p, 4 * GRANULE));
    show("unmap 0 bytes", unmap_addresses(p, 0));
    show("unmap cuMemAlloc's", unmap_addresses(kept, KEPT));
    show("use still", set(p, 2 * GRANULE));
    show("cuMemFree", CALL(cuMemFree_v2, cuMemFree_v3020)(p));
    show("retain of cuMemAlloc's",
         CALL(cuMemRetainAllocationHandle,
              cuMemRetainAllocationHandle_v11000)(&third, (void *)(uintptr_t)kept));
    show("retain of nothing", CALL(cuMemRetainAllocationHandle,
                                   cuMemRetainAllocationHandle_v11000)(&third, (void *)0x1000));
    show("release", drop_handle(handle));
    show("use still", set(p, 2 * GRANULE));
    show("unmap", unmap_addresses(p, 2 * GRANULE));
    show("unmap again", unmap_addresses(p, 2 * GRANULE));
    show("open behind", open_to(p, 2 * GRANULE, &open_here, 1));
    show("map the other", map_handle(p, GRANULE, 0, second));
    show("unmap", unmap_addresses(p, GRANULE));
    show("release", drop_handle(second));
    show("unreserve at last", free_addresses(p, 4 * GRANULE));
}

/* --- what may crash a driver, or break a context: a case each --- */

static CUdeviceptr map_anew(handle_type *handle)
{
    CUdeviceptr p = 0;

    show("reserve", reserve_addresses(&p, GRANULE, 0, 0));
    show("create", create_handle(handle, GRANULE, &plain, 0));
    show("map", map_handle(p, GRANULE, 0, *handle));
    return p;
}

static void use_closed(void)
{
    handle_type handle;
    const CUdeviceptr p = map_anew(&handle);

    show("use", set(p, 100));
}

static void use_unmapped(void)
{
    handle_type handle;
    const CUdeviceptr p = map_anew(&handle);

    show("open", open_to(p, GRANULE, &open_here, 1));
    show("use", set(p, 100));
    show("unmap", unmap_addresses(p, GRANULE));
    show("use", set(p, 100));
    show("release", drop_handle(handle));
    show("unreserve", free_addresses(p, GRANULE));
}

static void release_twice(void)
{
    handle_type handle = 0;

    show("create", create_handle(&handle, GRANULE, &plain, 0));
    show("release", drop_handle(handle));
    show("again", drop_handle(handle));
}

static void release_nothing(void)
{
    show("release 0", drop_handle(0));
}

static void map_released(void)
{
    handle_type handle = 0;
    CUdeviceptr p = 0;

    show("reserve", reserve_addresses(&p, GRANULE, 0, 0));
    show("create", create_handle(&handle, GRANULE, &plain, 0));
    show("release", drop_handle(handle));
    show("map", map_handle(p, GRANULE, 0, handle));
}

static void properties_released(void)
{
    CUmemAllocationProp prop;
    handle_type handle = 0;

    show("create", create_handle(&handle, GRANULE, &plain, 0));
    show("release", drop_handle(handle));
    show("properties", CALL(cuMemGetAllocationPropertiesFromHandle,
                            cuMemGetAllocationPropertiesFromHandle_v10020)(&prop, handle));
}

const struct bad_case vmm_cases[] = {{"create_sizes", create_sizes},
                                     {"reserve_sizes", reserve_sizes},
                                     {"map_wrong", map_wrong},
                                     {"use_closed", use_closed},
                                     {"use_unmapped", use_unmapped},
                                     {"release_twice", release_twice},
                                     {"release_nothing", release_nothing},
                                     {"map_released", map_released},
                                     {"properties_released", properties_released},
                                     {NULL, NULL}};
