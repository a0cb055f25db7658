/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings.c: single cases of the program's own VMM memory (and, in files of their own, of
 * multicast objects and of calls on memory that was freed), on the simulated card, one an
 * invocation: mappings CASE (test_calls.py runs them, with and without gpushare: the answers
 * are the same). One thread.
 */
#include "tests/runtime/mappings.h"

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

const CUmemAccessDesc mappings_opened = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

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
    GIVES(cuMemSetAccess(address, GRANULE, &mappings_opened, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemGetAccess(&flags, &here, address), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemRetainAllocationHandle(&handle, as_pointer(address)), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(address, GRANULE), CUDA_ERROR_INVALID_VALUE);
    handle = create_memory(GRANULE, false);
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

    begin_context();
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
static void map_ring(size_t bytes)
{
    const CUdeviceptr address = reserve_addresses(2 * bytes);
    const handle_type handle = create_memory(bytes, false);
    handle_type again = 0;
    CUdeviceptr base;
    size_t size;

    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(cuMemMap(address + bytes, bytes, 0, handle, 0));
    OK(cuMemSetAccess(address, 2 * bytes, &mappings_opened, 1));
    OK(cuMemsetD8(address, 1, bytes));
    OK(cuMemsetD8(address + bytes - 100, 2, 200));
    expect_bytes(address, 100, 2);
    expect_bytes(address + bytes, 100, 2);
    expect_bytes(address + 2 * bytes - 100, 100, 2);
    expect_bytes(address + 100, bytes - 200, 1);
    OK(cuMemRetainAllocationHandle(&again, as_pointer(address + bytes + 5)));
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
    begin_context();
    map_ring(2 * GRANULE);
    map_ring(33 * GRANULE); /* more than one chunk */
}

/* another handle where a second mapping is: refused, not accepted for later */
static void case_occupied(void)
{
    CUdeviceptr address;
    handle_type handle, other;

    begin_context();
    address = reserve_addresses(2 * GRANULE);
    handle = create_memory(GRANULE, false);
    other = create_memory(GRANULE, false);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    GIVES(cuMemMap(address + GRANULE, GRANULE, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 2 * GRANULE));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, other, 0));
    OK(cuMemSetAccess(address + GRANULE, GRANULE, &mappings_opened, 1));
    OK(cuMemsetD8(address + GRANULE, 3, GRANULE));
    expect_bytes(address + GRANULE, GRANULE, 3);
}

/* memory that came from another process (here: from ourselves) beside memory of our own */
static void case_mixed(void)
{
    CUdeviceptr address, whole;
    handle_type own, made, came;
    int fd = -1;

    begin_context();
    address = reserve_addresses(3 * GRANULE);
    own = create_memory(GRANULE, false);
    made = create_memory(GRANULE, true);
    GIVES(cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          CUDA_ERROR_INVALID_VALUE); /* it was not made for that */
    OK(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&came, as_pointer((CUdeviceptr)fd),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemMap(address, GRANULE, 0, came, 0));
    GIVES(cuMemMap(address, GRANULE, 0, own, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address + GRANULE, GRANULE, 0, own, 0));
    GIVES(cuMemMap(address + GRANULE, GRANULE, 0, came, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address + 2 * GRANULE, GRANULE, 0, made, 0));
    OK(cuMemSetAccess(address, 3 * GRANULE, &mappings_opened, 1));
    OK(cuMemsetD8(address, 1, GRANULE));
    OK(cuMemsetD8(address + GRANULE, 2, GRANULE));
    expect_bytes(address + 2 * GRANULE, GRANULE, 1); /* the same memory */
    expect_bytes(address + GRANULE, GRANULE, 2);
    OK(cuMemUnmap(address, 3 * GRANULE));
    OK(cuMemAlloc(&whole, 3 * GRANULE));
    GIVES(cuMemMap(whole, GRANULE, 0, came, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8(whole, 9, 3 * GRANULE));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, own, 0));
    OK(cuMemSetAccess(address + GRANULE, GRANULE, &mappings_opened, 1));
    expect_bytes(address + GRANULE, GRANULE, 2);
    expect_bytes(whole, 3 * GRANULE, 9);
}

/* access over a gap: the mappings before it get the rights, as on an H200 */
static void case_gap(void)
{
    const CUmemAccessDesc reading = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READ};
    unsigned long long flags = 9;
    CUdeviceptr address;
    handle_type handle;

    begin_context();
    address = reserve_addresses(4 * GRANULE);
    handle = create_memory(GRANULE, false);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    OK(cuMemMap(address + 3 * GRANULE, GRANULE, 0, create_memory(GRANULE, false), 0));
    GIVES(cuMemSetAccess(address, 3 * GRANULE, &mappings_opened, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(address + GRANULE, 3 * GRANULE, &mappings_opened, 1),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(address + GRANULE, GRANULE, &mappings_opened, 1),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(address, 4 * GRANULE, &mappings_opened, 1));
    OK(cuMemGetAccess(&flags, &mappings_opened.location, address + 3 * GRANULE));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemSetAccess(address + 3 * GRANULE, GRANULE, &mappings_opened, 1));
    OK(cuMemsetD8(address, 1, GRANULE));
    OK(cuMemsetD8(address + 3 * GRANULE, 2, GRANULE));
    expect_bytes(address, GRANULE, 1);
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0)); /* the driver's mapping of ours */
    OK(cuMemSetAccess(address, 4 * GRANULE, &reading, 1));
    OK(cuMemGetAccess(&flags, &mappings_opened.location, address + GRANULE));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemGetAccess(&flags, &mappings_opened.location, address + 3 * GRANULE));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    expect_bytes(address + GRANULE, GRANULE, 1);
    expect_bytes(address + 3 * GRANULE, GRANULE, 2);
    OK(cuMemUnmap(address, 4 * GRANULE)); /* all that is there */
    for (unsigned i = 0; i < 4; i++)
        GIVES(cuMemGetAccess(&flags, &mappings_opened.location, address + i * GRANULE),
              CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 4 * GRANULE));
    OK(cuMemMap(address + GRANULE, GRANULE, 0, handle, 0));
    GIVES(cuMemUnmap(address, 4 * GRANULE - 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(address + 1, 3 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(address, 4 * GRANULE));
    OK(cuMemAddressFree(address, 4 * GRANULE));
}

/* a part of what a handle stands for, which the driver (580) does not map, wherever */
static void case_part(void)
{
    CUdeviceptr address;
    handle_type handle;

    begin_context();
    address = reserve_addresses(4 * GRANULE);
    handle = create_memory(2 * GRANULE, false);
    GIVES(cuMemMap(address, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(address, GRANULE, GRANULE, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(address, 3 * GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(address + 3 * GRANULE, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(address + 4096, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemMap(address, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 2 * GRANULE, 0, handle, 0));
    GIVES(cuMemMap(address, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuMemMap(address, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
}

static void refuse_as_vmm(CUdeviceptr address, size_t bytes)
{
    const CUmemAccessDesc closed = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    handle_type handle = 0;

    GIVES(cuMemRetainAllocationHandle(&handle, as_pointer(address)), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemSetAccess(address, bytes, &closed, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemUnmap(address, bytes), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAddressFree(address, bytes), CUDA_ERROR_INVALID_VALUE);
}

/* What cuMemAlloc gave, and what was freed, is no mapping of the program's, in whatever way it
 * is there; the next allocation is none the worse. */
static void case_strangers(void)
{
    CUdeviceptr address, again;

    begin_context();
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

/* one at a time is refused as a list of them is, and what has no answer gets the documented
 * nothing */
static void case_attributes(void)
{
    CUdeviceptr address;

    begin_context();
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

/* a mapping without access, in the middle of a reservation */
static void case_without_access(void)
{
    const CUmemAccessDesc closed = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                          closed_beside = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
    CUdeviceptr all, address, base;
    handle_type handle;
    uint64_t flags = 0;
    size_t size;
    int devices;

    begin_context();
    all = reserve_addresses(4 * GRANULE);
    address = all + GRANULE;
    handle = create_memory(GRANULE, false);
    GIVES(cuMemMap(address, 4096, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    expect_extent(address + 5, address, GRANULE, all, 4 * GRANULE);
    GIVES(cuMemGetAddressRange(&base, &size, address), CUDA_ERROR_NOT_FOUND);
    OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    CHECK(flags == 0);
    OK(cuMemSetAccess(address, GRANULE, &mappings_opened, 1));
    expect_extent(address + 5, address, GRANULE, all, 4 * GRANULE);
    OK(cuMemGetAddressRange(&base, &size, address + 5));
    CHECK(base == address && size == GRANULE);
    OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemSetAccess(address, GRANULE, &closed, 1));
    GIVES(cuMemGetAddressRange(&base, &size, address + 5), CUDA_ERROR_NOT_FOUND);
    CHECK(base == 0 && size == 0);
    address = all + 2 * GRANULE; /* the same memory once more */
    OK(cuMemMap(address, GRANULE, 0, handle, 0));
    GIVES(cuMemGetAddressRange(&base, &size, address), CUDA_ERROR_NOT_FOUND);
    OK(cuMemSetAccess(address, GRANULE, &mappings_opened, 1));
    OK(cuMemGetAddressRange(&base, &size, address + 5));
    CHECK(base == address && size == GRANULE);
    OK(cuDeviceGetCount(&devices));
    if (devices > 1) /* what another device has not is no matter */
        OK(cuMemSetAccess(address, GRANULE, &closed_beside, 1));
    OK(cuMemGetAddressRange(&base, &size, address + 5));
    OK(cuMemSetAccess(address, GRANULE, &closed, 1));
    GIVES(cuMemGetAddressRange(&base, &size, address + 5), CUDA_ERROR_NOT_FOUND);
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {
        {"beside", case_beside},
        {"ring", case_ring},
        {"occupied", case_occupied},
        {"mixed", case_mixed},
        {"part", case_part},
        {"gap", case_gap},
        {"strangers", case_strangers},
        {"freed", mappings_case_freed},
        {"attributes", case_attributes},
        {"without_access", case_without_access},
        {"tiles", mappings_case_tiles},
        {"multicast", mappings_case_multicast},
        {"multicast_address", mappings_case_multicast_address},
        {"newer_calls", mappings_case_newer_calls},
        {"multicast_newer", mappings_case_multicast_newer},
        {"endpoint", mappings_case_endpoint},
        {NULL, NULL}};

    return run_case(argc, argv, cases);
}
