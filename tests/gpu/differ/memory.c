/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: the operations of differ.c on memory: allocation, copies, fills, attributes, host and
 * managed memory.
 */
#include "tests/gpu/differ/differ.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROWS_BYTES ((size_t)128 * 40)
#define BOX_BYTES  ((size_t)64 * 8 * 3)
#define PAGE       ((size_t)4096)

static unsigned allocations;

/* The new allocation's slot, or NULL if all are taken. */
struct memory *memory_free_slot(void)
{
    for (unsigned i = 0; i < MEMORIES; i++)
        if (world.memory[i].start == 0)
            return &world.memory[i];
    tell(" no slot");
    return NULL;
}

void memory_keep(struct memory *slot, CUdeviceptr start, size_t bytes, enum memory_kind kind)
{
    *slot = (struct memory){start, bytes, kind, false, ++allocations};
    tell(" m%u%s", (unsigned)(slot - world.memory), start % 256 == 0 ? "" : " unaligned");
    if (world.capturing != 0)
        return;
    slot->known =
        answer(CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(start, 0x5b, bytes)) == CUDA_SUCCESS;
}

void memory_forget(struct memory *slot)
{
    memset(slot, 0, sizeof *slot);
}

/* --- allocation --- */

static void allocate(void)
{
    struct memory *slot = memory_free_slot();
    const size_t bytes = one_in(40) ? 0 : one_in(40) ? (size_t)1 << 50 : pick_size();
    CUdeviceptr start = 0;

    if (slot == NULL)
        return;
    tell(" %zu", bytes);
    if (answer(CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&start, bytes)) == CUDA_SUCCESS)
        memory_keep(slot, start, bytes, PLAIN);
}

static void allocate_pitch(void)
{
    static const unsigned elements[] = {4, 8, 16, 0, 1, 3, 32};
    struct memory *slot = memory_free_slot();
    const size_t width = pick(9000), height = pick(200);
    const unsigned element = elements[one_in(5) ? pick(LENGTH(elements)) : pick(3)];
    CUdeviceptr start = 0;
    size_t pitch = 0;

    if (slot == NULL)
        return;
    tell(" %zux%zu of %u", width, height, element);
    if (answer(CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(&start, &pitch, width, height,
                                                               element)) == CUDA_SUCCESS) {
        tell(" pitch %zu", pitch);
        memory_keep(slot, start, pitch * height, PLAIN);
    }
}

static void allocate_managed(void)
{
    struct memory *slot = memory_free_slot();
    const size_t bytes = pick_size() / 2;
    const unsigned flags = one_in(10) ? pick(8) : 1 + pick(2);
    CUdeviceptr start = 0;

    if (slot == NULL)
        return;
    tell(" %zu flags %u", bytes, flags);
    if (answer(CALL(cuMemAllocManaged, cuMemAllocManaged_v6000)(&start, bytes, flags)) ==
        CUDA_SUCCESS)
        memory_keep(slot, start, bytes, MANAGED);
}

static void release(void)
{
    struct memory *slot = pick_memory();
    const unsigned how = pick(20);
    CUdeviceptr start;

    if (slot == NULL)
        return;
    start = slot->start;
    if (how == 0)
        start += slot->bytes < 2 ? 1 : 1 + pick((unsigned)slot->bytes - 1); /* not the end */
    else if (how == 2)
        start = 0;
    tell(how == 0 ? " inside" : how == 1 ? " twice" : how == 2 ? " null" : "");
    if (answer(CALL(cuMemFree_v2, cuMemFree_v3020)(start)) != CUDA_SUCCESS ||
        start != slot->start)
        return;
    world.ordered_freed |= slot->kind == ORDERED;
    memory_forget(slot);
    if (how == 1) /* at once: where the next allocation lies is the driver's affair */
        answer(CALL(cuMemFree_v2, cuMemFree_v3020)(start));
}

static void free_and_total(void)
{
    size_t left = 0, total = 0;

    if (answer(CALL(cuMemGetInfo_v2, cuMemGetInfo_v3020)(&left, &total)) == CUDA_SUCCESS)
        tell(" %s", left <= total ? "less free than there is" : "more free than there is");
}

/* --- what an address is --- */

static void address_range(void)
{
    CUdeviceptr base = 0;
    size_t left, bytes = 0;
    const CUdeviceptr at = pick_address(&left);

    if (answer(CALL(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020)(
            one_in(10) ? NULL : &base, one_in(10) ? NULL : &bytes, at)) == CUDA_SUCCESS) {
        tell_address(base);
        tell(" %zu", bytes);
    }
}

static void tell_attribute(CUpointer_attribute which, CUresult result, const uint64_t *value)
{
    if (result != CUDA_SUCCESS)
        return;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        tell(value[0] == 0                                    ? " none"
             : value[0] == (uint64_t)(uintptr_t)world.primary ? " primary"
                                                              : " other");
        return;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        tell_address(value[0]);
        return;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        tell(value[0] != 0 ? " some" : " 0");
        return;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        for (unsigned i = 0; i < POOLS; i++)
            if (value[0] == (uint64_t)(uintptr_t)world.pool[i] && value[0] != 0)
                tell(" p%u", i);
        if (value[0] == 0)
            tell(" none");
        return;
    default:
        tell(" %llu", (unsigned long long)value[0]);
    }
}

static void attribute(void)
{
    size_t left;
    const CUdeviceptr at =
        one_in(8) ? (CUdeviceptr)(uintptr_t)(host_source + pick(4000)) : pick_address(&left);
    const CUpointer_attribute which = (CUpointer_attribute)(1 + pick(22));
    uint64_t value[8] = {0};

    tell(" attribute %d", (int)which);
    tell_attribute(
        which,
        answer(CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(value, which, at)),
        value);
}

static void attributes(void)
{
    CUpointer_attribute which[3] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    uint64_t value[3] = {77, 77, 0};
    void *into[3] = {&value[0], &value[1], &value[2]};
    size_t left;
    const CUdeviceptr at = pick_address(&left);

    if (answer(CALL(cuPointerGetAttributes,
                    cuPointerGetAttributes_v7000)(3, which, into, at)) == CUDA_SUCCESS) {
        tell(" %u %llu", (unsigned)value[0], (unsigned long long)value[1]);
        tell_address(value[2]);
    }
}

static void set_attribute(void)
{
    size_t left;
    unsigned on = pick(2);
    const CUdeviceptr at = pick_address(&left);
    const CUpointer_attribute which =
        one_in(6) ? (CUpointer_attribute)(1 + pick(22)) : CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;

    tell(" %d", (int)which);
    answer(CALL(cuPointerSetAttribute, cuPointerSetAttribute_v6000)(&on, which, at));
}

/* --- fills and copies --- */

static size_t pick_count(size_t left)
{
    static const size_t counts[] = {1, 4, 100, 512, 4096, 5000, 65536};
    const size_t count = counts[pick(LENGTH(counts))];

    return one_in(15) ? count : count < left ? count : left;
}

/* Of an access that a driver could let pass: the contents behind it are anybody's. */
static size_t pick_inside(size_t left)
{
    const size_t count = pick_count(left);

    return count < left ? count : left;
}

static void fill(void)
{
    size_t left;
    const CUdeviceptr at = pick_address(&left);
    const size_t count = pick_inside(left);
    const unsigned width = pick(3), value = pick(1 << 30);
    const bool async = one_in(2);
    const CUstream stream = async ? pick_stream() : NULL;
    CUresult result;

    note_use(world.picked);
    tell(" %zu elements of %u bits", count >> width, 8U << width);
    if (width == 0)
        result = async ? CALL(cuMemsetD8Async, cuMemsetD8Async_v3020)(at, (unsigned char)value,
                                                                      count, stream)
                       : CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(at, (unsigned char)value, count);
    else if (width == 1)
        result = async ? CALL(cuMemsetD16Async, cuMemsetD16Async_v3020)(
                             at, (unsigned short)value, count >> 1, stream)
                       : CALL(cuMemsetD16_v2, cuMemsetD16_v3020)(at, (unsigned short)value,
                                                                 count >> 1);
    else
        result = async ? CALL(cuMemsetD32Async, cuMemsetD32Async_v3020)(at, value, count >> 2,
                                                                        stream)
                       : CALL(cuMemsetD32_v2, cuMemsetD32_v3020)(at, value, count >> 2);
    answer(result);
}

static void fill_rows(void)
{
    const struct memory *memory = pick_memory();
    const size_t width = 1 + pick(64), height = 1 + pick(20), pitch = width + pick(40);

    if (memory == NULL || pitch * height > memory->bytes)
        return;
    note_use(memory);
    tell(" %zux%zu pitch %zu", width, height, pitch);
    answer(CALL(cuMemsetD2D8_v2, cuMemsetD2D8_v3020)(memory->start, pitch, 3, width, height));
}

static void copy_in(void)
{
    size_t left;
    const CUdeviceptr at = pick_address(&left);
    const size_t count = pick_inside(left), from = pick(4096);
    const bool async = one_in(2);

    note_use(world.picked);
    tell(" %zu", count);
    if (count + from > HOST_BYTES)
        return;
    if (async)
        answer(CALL(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v3020)(at, host_source + from,
                                                                   count, pick_stream()));
    else
        answer(CALL(cuMemcpyHtoD_v2, cuMemcpyHtoD_v3020)(at, host_source + from, count));
}

static void copy_out(void)
{
    size_t left;
    const CUdeviceptr at = pick_address(&left);
    const size_t count = pick_count(left);
    const struct memory *memory = world.picked;
    const unsigned how = pick(3);
    CUresult result;

    note_use(memory);
    tell(" %zu", count);
    if (how == 0)
        result = CALL(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v3020)(host_target, at, count,
                                                                     pick_stream());
    else if (how == 1)
        result = CALL(cuMemcpy, cuMemcpy_v4000)((CUdeviceptr)(uintptr_t)host_target, at, count);
    else
        result = CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(host_target, at, count);
    answer(result);
    if (result == CUDA_SUCCESS && world.capturing == 0 && memory != NULL && memory->known &&
        count <= memory->bytes - (size_t)(at - memory->start) && (how != 0 || settle()))
        tell_sum(host_target, count);
}

/* Picks two places in different allocations, notes their use, and gives the bytes behind both. */
static bool pick_pair(CUdeviceptr *to, CUdeviceptr *from, size_t *left)
{
    size_t left_to, left_from;
    struct memory *target;

    *to = pick_address(&left_to);
    target = world.picked;
    *from = pick_address(&left_from);
    if (target == NULL || target == world.picked)
        return false; /* copies onto themselves are undefined */
    *left = left_to < left_from ? left_to : left_from;
    note_use(target);
    note_use(world.picked);
    if (world.picked == NULL || !world.picked->known || world.capturing != 0)
        target->known = false; /* a graph copies what is there when it is launched */
    return true;
}

static void copy_over(void)
{
    CUdeviceptr to, from;
    size_t left, count;

    if (!pick_pair(&to, &from, &left))
        return;
    count = pick_inside(left);
    tell(" %zu", count);
    if (one_in(2))
        answer(CALL(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v3020)(to, from, count,
                                                                   pick_stream()));
    else
        answer(CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(to, from, count));
}

static void copy_rows(void)
{
    const struct memory *memory = pick_memory();
    CUDA_MEMCPY2D copy = {0};
    CUresult result;

    if (memory == NULL)
        return;
    note_use(memory);
    copy.srcMemoryType = one_in(20) ? (CUmemorytype)0 : CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory->start;
    copy.srcXInBytes = pick(9);
    copy.srcY = pick(3);
    copy.srcPitch = one_in(8) ? 0 : 64 + pick(100);
    copy.dstMemoryType = one_in(20) ? (CUmemorytype)0 : CU_MEMORYTYPE_HOST;
    copy.dstHost = host_target;
    copy.dstPitch = 128;
    copy.WidthInBytes = pick(64);
    copy.Height = pick(40);
    tell(" %zux%zu pitch %zu from %zu,%zu type %d to %d", copy.WidthInBytes, copy.Height,
         copy.srcPitch, copy.srcXInBytes, copy.srcY, (int)copy.srcMemoryType,
         (int)copy.dstMemoryType);
    if ((copy.srcY + copy.Height) * copy.srcPitch + 200 > memory->bytes && !world.faults)
        return;
    memset(host_target, 0, ROWS_BYTES);
    result = answer(CALL(cuMemcpy2D_v2, cuMemcpy2D_v3020)(&copy));
    if (result == CUDA_SUCCESS && memory->known && world.capturing == 0)
        tell_sum(host_target, ROWS_BYTES);
}

static void copy_box(void)
{
    const struct memory *memory = pick_memory();
    CUDA_MEMCPY3D copy = {0};

    if (memory == NULL || memory->bytes < BOX_BYTES)
        return;
    note_use(memory);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory->start;
    copy.srcPitch = 64;
    copy.srcHeight = 8;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host_target;
    copy.dstPitch = 64;
    copy.dstHeight = 8;
    copy.WidthInBytes = pick(65);
    copy.Height = pick(9);
    copy.Depth = pick(3);
    tell(" %zux%zux%zu", copy.WidthInBytes, copy.Height, copy.Depth);
    memset(host_target, 0, BOX_BYTES);
    if (answer(CALL(cuMemcpy3D_v2, cuMemcpy3D_v3020)(&copy)) == CUDA_SUCCESS && memory->known &&
        world.capturing == 0)
        tell_sum(host_target, BOX_BYTES);
}

static void copy_peer(void)
{
    CUdeviceptr to, from;
    size_t left;

    if (pick_pair(&to, &from, &left))
        answer(CALL(cuMemcpyPeer, cuMemcpyPeer_v4000)(to, world.primary, from, world.primary,
                                                      pick_inside(left)));
}

/* --- host memory --- */

static void host_allocate(void)
{
    const unsigned slot = pick(HOSTS), flags = one_in(12) ? pick(32) : pick(4) * 2;
    const size_t bytes = one_in(20) ? 0 : pick_size();

    tell(" h%u %zu flags %u", slot, bytes, flags);
    if (world.host[slot].start != NULL)
        return;
    if (answer(CALL(cuMemHostAlloc, cuMemHostAlloc_v2020)(&world.host[slot].start, bytes,
                                                          flags)) == CUDA_SUCCESS)
        world.host[slot].bytes = bytes;
    else
        world.host[slot].start = NULL;
}

static void host_register(void)
{
    const unsigned slot = pick(HOSTS), flags = one_in(12) ? pick(32) : pick(4);
    const size_t bytes = PAGE * (1 + pick(600));
    void *start;

    tell(" h%u %zu flags %u", slot, bytes, flags);
    if (world.host[slot].start != NULL)
        return;
    start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return;
    if (answer(CALL(cuMemHostRegister_v2, cuMemHostRegister_v6050)(start, bytes, flags)) !=
        CUDA_SUCCESS) {
        munmap(start, bytes);
        return;
    }
    world.host[slot].start = start;
    world.host[slot].bytes = bytes;
    world.host[slot].registered = true;
}

static void host_free(void)
{
    const unsigned slot = pick(HOSTS);
    void *start = world.host[slot].start;
    const bool wrong = one_in(12);

    tell(" h%u%s", slot, wrong ? " wrong" : "");
    if (start == NULL)
        return;
    if (wrong) { /* of the other kind, or inside */
        if (world.host[slot].registered)
            answer(CALL(cuMemFreeHost, cuMemFreeHost_v2000)(start));
        else
            answer(CALL(cuMemHostUnregister, cuMemHostUnregister_v4000)(start));
        return;
    }
    if (!world.host[slot].registered) {
        if (answer(CALL(cuMemFreeHost, cuMemFreeHost_v2000)(start)) != CUDA_SUCCESS)
            return;
    } else {
        if (answer(CALL(cuMemHostUnregister, cuMemHostUnregister_v4000)(start)) != CUDA_SUCCESS)
            return;
        munmap(start, world.host[slot].bytes);
    }
    memset(&world.host[slot], 0, sizeof world.host[slot]);
}

static void host_pointer(void)
{
    const unsigned slot = pick(HOSTS), flags = one_in(10);
    char *start = world.host[slot].start;
    CUdeviceptr device = 0;
    unsigned had = 77;

    tell(" h%u flags %u", slot, flags);
    if (start == NULL)
        start = (char *)host_source;
    if (answer(CALL(cuMemHostGetDevicePointer_v2,
                    cuMemHostGetDevicePointer_v3020)(&device, start, flags)) == CUDA_SUCCESS)
        tell_address(device);
    if (answer(CALL(cuMemHostGetFlags, cuMemHostGetFlags_v2030)(&had, start)) == CUDA_SUCCESS)
        tell(" %u", had);
}

/* --- managed memory --- */

static void prefetch(void)
{
    const struct memory *memory = pick_memory();
    const CUdevice where = one_in(3) ? CU_DEVICE_CPU : one_in(20) ? 99 : 0;

    if (memory == NULL)
        return;
    note_use(memory);
    tell(" to %d", where);
    answer(CALL(cuMemPrefetchAsync, cuMemPrefetchAsync_v8000)(memory->start, memory->bytes,
                                                              where, pick_stream()));
}

static void advise(void)
{
    const struct memory *memory = pick_memory();
    const CUmem_advise advice = (CUmem_advise)(one_in(20) ? 99 : 1 + pick(6));
    int value = 77;

    if (memory == NULL)
        return;
    tell(" %d", (int)advice);
    answer(CALL(cuMemAdvise, cuMemAdvise_v8000)(memory->start, memory->bytes, advice, 0));
    if (answer(CALL(cuMemRangeGetAttribute, cuMemRangeGetAttribute_v8000)(
            &value, sizeof value, (CUmem_range_attribute)(1 + pick(2)), memory->start,
            memory->bytes)) == CUDA_SUCCESS)
        tell(" %d", value);
}

const struct operation memory_operations[] = {
    {"cuMemAlloc", 14, allocate},
    {"cuMemAllocPitch", 3, allocate_pitch},
    {"cuMemAllocManaged", 2, allocate_managed},
    {"cuMemFree", 9, release},
    {"cuMemGetInfo", 1, free_and_total},
    {"cuMemGetAddressRange", 4, address_range},
    {"cuPointerGetAttribute", 10, attribute},
    {"cuPointerGetAttributes", 3, attributes},
    {"cuPointerSetAttribute", 3, set_attribute},
    {"cuMemset", 8, fill},
    {"cuMemsetD2D8", 2, fill_rows},
    {"cuMemcpyHtoD", 6, copy_in},
    {"cuMemcpyDtoH", 10, copy_out},
    {"cuMemcpyDtoD", 6, copy_over},
    {"cuMemcpy2D", 4, copy_rows},
    {"cuMemcpy3D", 3, copy_box},
    {"cuMemcpyPeer", 2, copy_peer},
    {"cuMemHostAlloc", 2, host_allocate},
    {"cuMemHostRegister", 2, host_register},
    {"cuMemFreeHost", 3, host_free},
    {"cuMemHostGetDevicePointer", 2, host_pointer},
    {"cuMemPrefetchAsync", 2, prefetch},
    {"cuMemAdvise", 2, advise},
    {0},
};
