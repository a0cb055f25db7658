/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings.c: single cases of the program's own VMM memory, and of calls on memory that was
 * freed, on the simulated card, one an invocation: mappings CASE (test_calls.py runs them, with and
 * without gpushare: the answers are the same). One thread.
 */
#include "tests/runtime/check.h"

#define GRANULE (2 * MIB)

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

typedef CUmemGenericAllocationHandle handle_type;

static const CUmemAccessDesc opened = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static handle_type create(size_t bytes, bool exportable)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                     : CU_MEM_HANDLE_TYPE_NONE,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    handle_type handle = 0;

    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr address = 0;

    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static void *pointer(CUdeviceptr address)
{
    return (void *)address; /* NOLINT(performance-no-int-to-ptr): it is one */
}

/* The mapping that an address is in, and the reservation. */
static void expect_extent(CUdeviceptr address, CUdeviceptr mapped, size_t bytes,
                          CUdeviceptr reserved, size_t all)
{
    CUdeviceptr base = 0;
    size_t size = 0;

    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address));
    CHECK(base == mapped && size == bytes);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    CHECK(base == reserved && size == all);
}

/* What lies beside cuMemAlloc's memory is nobody's to the program, also where something is
 * mapped for kernels that read there: no memory of the first allocation is below it, or above
 * it before there is a second one. */
static void refuse_all(CUdeviceptr address)
{
    static uint8_t bytes[256];
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long flags;
    handle_type handle = 0;
    CUdeviceptr base;
    unsigned type;
    size_t size;

    GIVES(cuMemGetAddressRange(&base, &size, address), CUDA_ERROR_NOT_FOUND);
    GIVES(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyDtoH(bytes, address, sizeof bytes), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyHtoD(address, bytes, sizeof bytes), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemsetD32(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(address, GRANULE), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(address, GRANULE, &opened, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemGetAccess(&flags, &here, address), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemRetainAllocationHandle(&handle, pointer(address)), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(address, GRANULE), CUDA_ERROR_INVALID_VALUE);
    handle = create(GRANULE, false);
    GIVES(cuMemMap(address, GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
}

/* copies and sets that begin in the block and lead out of it */
static void refuse_over_end(CUdeviceptr block, size_t bytes, CUdeviceptr other)
{
    const CUdeviceptr last = block + bytes - 64;
    static uint8_t host[4096];
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = block,
                                .srcPitch = 512,
                                .srcY = bytes / 512 - 7,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = host,
                                .dstPitch = 512,
                                .WidthInBytes = 512,
                                .Height = 8};
    const CUDA_MEMCPY3D layers = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                  .srcHost = host,
                                  .srcPitch = 512,
                                  .srcHeight = 4,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = block,
                                  .dstPitch = 512,
                                  .dstHeight = 4,
                                  .dstZ = bytes / 2048 - 1,
                                  .WidthInBytes = 512,
                                  .Height = 4,
                                  .Depth = 2};
    CUDA_MEMCPY2D whole = rows;

    OK(cuMemcpyDtoH(host, last, 64));
    GIVES(cuMemcpyDtoH(host, last, 65), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyHtoD(last, host, 65), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyDtoD(last, other, 65), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyDtoD(other, last, 65), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyDtoHAsync(host, last, 65, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8(last, 1, 64));
    GIVES(cuMemsetD8(last, 1, 65), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD16(last, 1, 32));
    GIVES(cuMemsetD16(last, 1, 33), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD32(last, 1, 16));
    GIVES(cuMemsetD32(last, 1, 17), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD2D32(block + bytes - 1024, 512, 1, 128, 2));
    GIVES(cuMemsetD2D32(block + bytes - 1024, 512, 1, 128, 3), CUDA_ERROR_INVALID_VALUE);
    whole.srcY -= 1;
    OK(cuMemcpy2D(&whole));
    GIVES(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpy3D(&layers), CUDA_ERROR_INVALID_VALUE);
}

static void case_beside(void)
{
    CUdeviceptr first, block, other;

    begin();
    OK(cuMemAlloc(&first, 3 * GRANULE));
    refuse_all(first + 3 * GRANULE);
    OK(cuMemAlloc(&other, GRANULE));
    OK(cuMemFree(first)); /* nothing is between the blocks, or below the last one */
    OK(cuMemAlloc(&block, 64 * GRANULE));
    refuse_all(block + 64 * GRANULE);
    refuse_over_end(block, 64 * GRANULE, other);
    OK(cuMemsetD8(block, 5, 64 * GRANULE));
    expect_bytes(block, 64 * GRANULE, 5);
    OK(cuMemFree(block));
    OK(cuMemFree(other));
}

/* the same memory twice, side by side, opened and unmapped as one: what wraps around needs no
 * second copy */
static void ring(size_t bytes)
{
    const CUdeviceptr address = reserve(2 * bytes);
    const handle_type handle = create(bytes, false);
    handle_type again = 0;
    CUdeviceptr base;
    size_t size;

    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemMap(address + bytes, bytes, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * bytes, &opened, 1));
    OK(cuMemsetD8(address, 1, bytes));
    OK(cuMemsetD8(address + bytes - 100, 2, 200));
    expect_bytes(address, 100, 2);
    expect_bytes(address + bytes, 100, 2);
    expect_bytes(address + 2 * bytes - 100, 100, 2);
    expect_bytes(address + 100, bytes - 200, 1);
    OK(cuMemRetainAllocationHandle(&again, pointer(address + bytes + 5)));
    CHECK(again == handle);
    OK(cuMemRelease(again));
    OK(cuMemGetAddressRange(&base, &size, address + 2 * bytes - 1));
    CHECK(base == address + bytes && size == bytes);
    OK(cuMemGetAddressRange(&base, &size, address + bytes - 1));
    CHECK(base == address && size == bytes);
    expect_extent(address + bytes - 1, address, bytes, address, 2 * bytes);
    expect_extent(address + bytes, address + bytes, bytes, address, 2 * bytes);
    GIVES(cuMemMap(address, bytes, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(address + bytes, bytes, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(address, 2 * bytes - GRANULE), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(address, 2 * bytes), CUDA_ERROR_INVALID_VALUE);
    expect_bytes(address + bytes, 100, 2);
    OK(cuMemUnmap(address, bytes)); /* the second one stays */
    OK(cuMemRelease(handle));
    expect_bytes(address + bytes, 100, 2);
    OK(cuMemUnmap(address + bytes, bytes));
    OK(cuMemAddressFree(address, 2 * bytes));
}

static void case_ring(void)
{
    begin();
    ring(2 * GRANULE);
    ring(33 * GRANULE); /* more than one chunk */
}

/* another handle where a second mapping is: refused, not accepted for later */
static void case_occupied(void)
{
    CUdeviceptr address;
    handle_type handle, other;

    begin();
    address = reserve(2 * GRANULE);
    handle = create(GRANULE, false);
    other = create(GRANULE, false);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    GIVES(cuMemMap(address + GRANULE, GRANULE, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 2 * GRANULE));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, other, 0));
    OK(cuMemSetAccess(address + GRANULE, GRANULE, &opened, 1));
    OK(cuMemsetD8(address + GRANULE, 3, GRANULE));
    expect_bytes(address + GRANULE, GRANULE, 3);
}

/* memory that came from another process (here: from ourselves) beside memory of our own */
static void case_mixed(void)
{
    CUdeviceptr address, whole;
    handle_type own, made, came;
    int fd = -1;

    begin();
    address = reserve(3 * GRANULE);
    own = create(GRANULE, false);
    made = create(GRANULE, true);
    OK(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&came, pointer((CUdeviceptr)fd),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemMap(address, GRANULE, 0, came, 0));
    GIVES(cuMemMap(address, GRANULE, 0, own, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address + GRANULE, GRANULE, 0, own, 0));
    GIVES(cuMemMap(address + GRANULE, GRANULE, 0, came, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address + 2 * GRANULE, GRANULE, 0, made, 0));
    OK(cuMemSetAccess(address, 3 * GRANULE, &opened, 1));
    OK(cuMemsetD8(address, 1, GRANULE));
    OK(cuMemsetD8(address + GRANULE, 2, GRANULE));
    expect_bytes(address + 2 * GRANULE, GRANULE, 1); /* the same memory */
    expect_bytes(address + GRANULE, GRANULE, 2);
    OK(cuMemUnmap(address, 3 * GRANULE));
    OK(cuMemAlloc(&whole, 3 * GRANULE));
    GIVES(cuMemMap(whole, GRANULE, 0, came, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8(whole, 9, 3 * GRANULE));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, own, 0));
    OK(cuMemSetAccess(address + GRANULE, GRANULE, &opened, 1));
    expect_bytes(address + GRANULE, GRANULE, 2);
    expect_bytes(whole, 3 * GRANULE, 9);
}

/* a part of what a handle stands for */
static void case_part(void)
{
    CUdeviceptr address;
    handle_type handle;

    begin();
    address = reserve(40 * GRANULE);
    handle = create(40 * GRANULE, false);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, 3 * GRANULE, 31 * GRANULE, handle, 0));
    OK(cuMemSetAccess(address, 4 * GRANULE, &opened, 1));
    OK(cuMemsetD8(address, 1, GRANULE));
    OK(cuMemsetD8(address + GRANULE, 2, 3 * GRANULE));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(address, 4 * GRANULE));
    OK(cuMemMap(address, 40 * GRANULE, 0, handle, 0));
    OK(cuMemSetAccess(address, 40 * GRANULE, &opened, 1));
    expect_bytes(address, GRANULE, 1);
    expect_bytes(address + 31 * GRANULE, 3 * GRANULE, 2);
    OK(cuMemRelease(handle));
    OK(cuMemUnmap(address, 40 * GRANULE));
    OK(cuMemAddressFree(address, 40 * GRANULE));
}

static void refuse_as_vmm(CUdeviceptr address, size_t bytes)
{
    const CUmemAccessDesc closed = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    handle_type handle = 0;

    GIVES(cuMemRetainAllocationHandle(&handle, pointer(address)), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(address, bytes, &closed, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(address, bytes), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(address, bytes), CUDA_ERROR_INVALID_VALUE);
}

/* What cuMemAlloc gave, and what was freed, is no mapping of the program's, in whatever way it
 * is there; the next allocation is none the worse. */
static void case_strangers(void)
{
    CUdeviceptr address, again;

    begin();
    OK(cuMemAlloc(&address, 3 * GRANULE));
    refuse_as_vmm(address, 3 * GRANULE);
    OK(cuMemsetD8(address, 4, 3 * GRANULE));
    expect_bytes(address, 3 * GRANULE, 4);
    OK(cuMemFree(address));
    refuse_as_vmm(address, 3 * GRANULE);
    OK(cuMemAlloc(&again, 3 * GRANULE));
    OK(cuMemsetD8(again, 5, 3 * GRANULE));
    expect_bytes(again, 3 * GRANULE, 5);
}

static void copy_freed_boxes(CUdeviceptr freed, CUdeviceptr good)
{
    char host[256] = {0};
    CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = freed,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .WidthInBytes = 16,
                          .Height = 2};
    CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = freed,
                          .WidthInBytes = 16,
                          .Height = 2,
                          .Depth = 2};
    CUDA_MEMCPY3D_PEER far = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = good,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = freed,
                              .WidthInBytes = 16,
                              .Height = 2,
                              .Depth = 1};

    GIVES(cuMemcpy2D(&flat), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpy2DAsync(&flat, NULL), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpy3D(&deep), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpy3DPeer(&far), CUDA_ERROR_INVALID_VALUE);
    flat.srcDevice = deep.dstDevice = good;
    OK(cuMemcpy2D(&flat));
    OK(cuMemcpy3D(&deep));
    deep.srcDevice = freed; /* not looked at: it comes from the host */
    OK(cuMemcpy3D(&deep));
}

static void copy_freed_lists(CUdeviceptr freed, CUdeviceptr good)
{
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr to[2] = {good, good + 64}, from[2] = {good + 128, freed};
    size_t sizes[2] = {16, 16}, first = 0;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GIVES(cuMemcpyBatchAsync(to, from, sizes, 2, &how, &first, 1, stream),
          CUDA_ERROR_INVALID_VALUE);
    from[1] = good + 192;
    OK(cuMemcpyBatchAsync(to, from, sizes, 2, &how, &first, 1, stream));
    OK(cuStreamSynchronize(stream));
}

static void nodes_of_freed(CUdeviceptr freed, CUdeviceptr good, CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = freed, .elementSize = 1, .width = 16, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = good,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = freed,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    CUgraphNode node;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    GIVES(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context),
          CUDA_ERROR_INVALID_VALUE);
    set.dst = copy.dstDevice = good + 64;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
    OK(cuGraphDestroy(graph));
}

/* copies with a shape, lists of copies, and nodes */
static void case_freed(void)
{
    const CUcontext context = begin();
    CUdeviceptr freed, good;

    OK(cuMemAlloc(&good, 3 * GRANULE));
    for (size_t bytes = 1000; bytes <= 5 * GRANULE; bytes *= 10) {
        OK(cuMemAlloc(&freed, bytes));
        OK(cuMemsetD8(freed, 1, bytes));
        OK(cuMemFree(freed));
        copy_freed_boxes(freed, good);
        copy_freed_lists(freed, good);
        nodes_of_freed(freed, good, context);
    }
    OK(cuCtxSynchronize());
}

/* one at a time is refused as a list of them is, and what has no answer gets the documented
 * nothing */
static void case_attributes(void)
{
    CUdeviceptr address;

    begin();
    OK(cuMemAlloc(&address, 3 * GRANULE));
    for (int which = CU_POINTER_ATTRIBUTE_P2P_TOKENS; which < 99; which += 94) {
        CUpointer_attribute attribute = (CUpointer_attribute)which;
        uint64_t value = 7;
        void *data = &value;

        GIVES(cuPointerGetAttributes(1, &attribute, &data, address), CUDA_ERROR_INVALID_VALUE);
    }
    for (int i = 0; i < 2; i++) {
        CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_HOST_POINTER;
        uint64_t value = 7;
        void *data = &value;

        GIVES(cuPointerGetAttribute(&value, attribute, address), CUDA_ERROR_INVALID_VALUE);
        OK(cuPointerGetAttributes(1, &attribute, &data, address));
        CHECK(value == 0);
    }
}

static handle_type multicast(size_t bytes)
{
    const CUmulticastObjectProp prop = {.numDevices = 1, .size = bytes};
    handle_type object = 0;

    OK(cuMulticastCreate(&object, &prop));
    OK(cuMulticastAddDevice(object, 0));
    return object;
}

/* What is written through the object is in the memory: bytes from offset on. */
static void expect_bound(handle_type object, handle_type memory, size_t total, size_t offset,
                         size_t bytes)
{
    const CUdeviceptr through = reserve(bytes), here = reserve(total);

    OK(cuMemMap(through, bytes, 0, object, 0));
    OK(cuMemSetAccess(through, bytes, &opened, 1));
    OK(cuMemMap(here, total, 0, memory, 0));
    OK(cuMemSetAccess(here, total, &opened, 1));
    OK(cuMemsetD8(here, 1, total));
    for (size_t done = 0; done < bytes; done += GRANULE)
        OK(cuMemsetD8(through + done, (unsigned char)(2 + done / GRANULE), GRANULE));
    OK(cuCtxSynchronize());
    expect_bytes(here, offset, 1);
    for (size_t done = 0; done < bytes; done += GRANULE)
        expect_bytes(here + offset + done, GRANULE, (unsigned char)(2 + done / GRANULE));
    expect_bytes(here + offset + bytes, total - offset - bytes, 1);
    OK(cuMemUnmap(through, bytes));
    OK(cuMemAddressFree(through, bytes));
    OK(cuMemUnmap(here, total));
    OK(cuMemAddressFree(here, total));
}

static void refuse_as_multicast(handle_type memory)
{
    GIVES(cuMulticastAddDevice(memory, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastUnbind(memory, 0, 0, GRANULE), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(memory, 0, memory, 0, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(memory, 0, 0, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Arrays want a tile pool, and a handle of ours is none of the driver's. */
static void case_tiles(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL}};
    CUarrayMapInfo info[2] = {{.memOperationType = CU_MEM_OPERATION_TYPE_MAP},
                              {.memOperationType = CU_MEM_OPERATION_TYPE_MAP}};
    handle_type pool;

    begin();
    OK(cuMemCreate(&pool, GRANULE, &prop, 0));
    info[0].memHandle.memHandle = info[1].memHandle.memHandle = pool;
    GIVES(cuMemMapArrayAsync(info, 2, NULL), CUDA_ERROR_NOT_SUPPORTED); /* nothing simulated */
    info[1].memHandle.memHandle = create(GRANULE, false);
    GIVES(cuMemMapArrayAsync(info, 2, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* memory of more than a chunk, bound by handle as a whole and in part, and unbound as bound */
static void case_multicast(void)
{
    const size_t total = 70 * GRANULE;
    handle_type object, memory, other;

    begin();
    object = multicast(total);
    memory = create(total, false);
    other = create(GRANULE, false);
    refuse_as_multicast(memory);
    OK(cuMulticastBindMem(object, 0, memory, 0, total, 0));
    GIVES(cuMulticastBindMem(object, 69 * GRANULE, other, 0, GRANULE, 0),
          CUDA_ERROR_INVALID_VALUE);
    expect_bound(object, memory, total, 0, total);
    GIVES(cuMulticastUnbind(object, 0, 0, GRANULE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(object, 0, 0, total));
    GIVES(cuMulticastUnbind(object, 0, 0, total), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, memory, GRANULE, total, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, 0, memory, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindMem(object, GRANULE, memory, 0, total, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem(object, 0, memory, 30 * GRANULE, 36 * GRANULE, 0));
    expect_bound(object, memory, total, 30 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    OK(cuMulticastBindMem(object, 36 * GRANULE, other, 0, GRANULE, 0));
    OK(cuMulticastBindMem(object, 0, memory, 30 * GRANULE, 36 * GRANULE, 0));
    OK(cuMemRelease(object));
    OK(cuMemRelease(memory));
    OK(cuMemRelease(other));
}

/* by address: of the program's own memory in one mapping, in a second one and without access,
 * and of a pool's */
static void case_multicast_address(void)
{
    const size_t total = 70 * GRANULE;
    handle_type object, memory;
    CUdeviceptr address, again, pooled, plain;
    CUstream stream;

    begin();
    object = multicast(total);
    memory = create(total, false);
    address = reserve(total);
    OK(cuMemMap(address, total, 0, memory, 0));
    OK(cuMulticastBindAddr(object, 0, address + 30 * GRANULE, 36 * GRANULE, 0));
    GIVES(
        cuMulticastBindAddr(object, 36 * GRANULE, address + 40 * GRANULE, 34 * GRANULE + 1, 0),
        CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, address + 60 * GRANULE, 11 * GRANULE, 0),
          CUDA_ERROR_INVALID_VALUE);
    expect_bound(object, memory, total, 30 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    again = reserve(40 * GRANULE);
    OK(cuMemMap(again, 40 * GRANULE, 28 * GRANULE, memory, 0));
    OK(cuMulticastBindAddr(object, 0, again + GRANULE, 36 * GRANULE, 0));
    expect_bound(object, memory, total, 29 * GRANULE, 36 * GRANULE);
    OK(cuMulticastUnbind(object, 0, 0, 36 * GRANULE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&pooled, total, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMulticastBindAddr(object, 0, pooled, total, 0));
    OK(cuMulticastUnbind(object, 0, 0, total));
    OK(cuMemAlloc(&plain, 2 * GRANULE));
    GIVES(cuMulticastBindAddr(object, 0, plain, GRANULE, 0), CUDA_ERROR_INVALID_VALUE);
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {{"beside", case_beside},
                                              {"ring", case_ring},
                                              {"occupied", case_occupied},
                                              {"mixed", case_mixed},
                                              {"part", case_part},
                                              {"strangers", case_strangers},
                                              {"freed", case_freed},
                                              {"attributes", case_attributes},
                                              {"tiles", case_tiles},
                                              {"multicast", case_multicast},
                                              {"multicast_address", case_multicast_address},
                                              {NULL, NULL}};

    return run_case(argc, argv, cases);
}
