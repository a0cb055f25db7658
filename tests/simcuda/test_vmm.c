/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vmm.c: the simulated driver's virtual memory management: its rules, what moves, what is shared.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/simcuda/testkit.h"

static void vmm_rules(void)
{
    CUmemGenericAllocationHandle handle = 0, other = 0;
    CUdeviceptr address = 0, aligned = 0, again = 0;
    size_t granularity = 0;

    kit_context();
    OK(cuMemGetAllocationGranularity(&granularity, &kit_prop,
                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(granularity == 2 * MIB);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&address, 3 * MIB, 0, 0, 0));
    OK(cuMemAddressReserve(&address, 8 * MIB, 0, 0, 0));
    OK(cuMemAddressReserve(&aligned, 2 * MIB, 64 * MIB, 0, 0));
    CHECK(address % (2 * MIB) == 0 && aligned % (64 * MIB) == 0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, MIB, &kit_prop, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 128 * MIB, &kit_prop, 0));
    const size_t before = kit_memory_left();
    OK(cuMemCreate(&handle, 4 * MIB, &kit_prop, 0));
    CHECK(kit_memory_left() == before - 4 * MIB);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + MIB, 4 * MIB, 0, handle, 0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 6 * MIB, 0, handle, 0));
    /* behind the reservation; the other one may begin right there */
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemMap(address + (aligned == address + 8 * MIB ? 10 : 8) * MIB, 4 * MIB, 0, handle,
                   0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(address, 4 * MIB, 2 * MIB, handle, 0));
    OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(address + 2 * MIB, 4 * MIB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 4)); /* no access so far */
    OK(cuMemSetAccess(address, 4 * MIB, &kit_access, 1));
    CHECK(kit_all_bytes(address, 4 * MIB, 0xD5));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 4 * MIB + 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(address, 2 * MIB)); /* part of a mapping */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 8 * MIB));
    OK(cuMemRetainAllocationHandle(&other, (void *)(address + 3 * MIB)));
    CHECK(other == handle);
    OK(cuMemRelease(other));
    OK(cuMemRelease(handle));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    CHECK(kit_memory_left() == before - 4 * MIB); /* mapped still */
    OK(cuMemsetD8(address, 7, 4 * MIB));
    CHECK(kit_all_bytes(address, 4 * MIB, 7));
    OK(cuMemUnmap(address, 4 * MIB));
    CHECK(kit_memory_left() == before);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(address, 4 * MIB));
    OK(cuMemAddressFree(address, 8 * MIB));
    OK(cuMemAddressReserve(&again, 8 * MIB, 0, address, 0));
    CHECK(again == address); /* the address asked for */
}

static void vmm_moves(void)
{
    CUmemGenericAllocationHandle first = 0, second = 0;
    CUdeviceptr address = 0, alias = 0;
    CUmemAccessDesc read_only = kit_access;
    unsigned long long flags = 7;
    CUmemAllocationProp prop;

    kit_context();
    address = kit_vmm(4 * MIB, &first);
    OK(cuMemsetD32(address, 0x01020304, MIB));
    OK(cuMemAddressReserve(&alias, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(alias, 4 * MIB, 0, first, 0)); /* the same memory twice */
    OK(cuMemSetAccess(alias, 4 * MIB, &kit_access, 1));
    OK(cuMemsetD8(alias, 9, 4 * MIB));
    CHECK(kit_all_bytes(address, 4 * MIB, 9));
    read_only.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemSetAccess(alias, 4 * MIB, &read_only, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(alias, 1, 1));
    CHECK(kit_all_bytes(alias, 4 * MIB, 9));
    OK(cuMemGetAccess(&flags, &kit_access.location, alias));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemGetAllocationPropertiesFromHandle(&prop, first));
    CHECK(prop.type == CU_MEM_ALLOCATION_TYPE_PINNED && prop.location.id == 0);
    OK(cuMemUnmap(address, 4 * MIB));
    OK(cuMemCreate(&second, 4 * MIB, &kit_prop, 0));
    OK(cuMemMap(address, 4 * MIB, 0, second, 0)); /* other memory at the same address */
    OK(cuMemSetAccess(address, 4 * MIB, &kit_access, 1));
    CHECK(kit_all_bytes(address, 4 * MIB, 0xD5));
}

static void shared_by_descriptor(void)
{
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0, import = 0;
    CUdeviceptr address = 0, other = 0;
    int fd = -1;

    kit_context();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&import, (void *)(uintptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    OK(cuMemAddressReserve(&other, 2 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    OK(cuMemMap(other, 2 * MIB, 0, import, 0));
    OK(cuMemSetAccess(address, 2 * MIB, &kit_access, 1));
    OK(cuMemSetAccess(other, 2 * MIB, &kit_access, 1));
    OK(cuMemsetD8(address, 3, 2 * MIB));
    CHECK(kit_all_bytes(other, 2 * MIB, 3));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&fd, import, CU_MEM_HANDLE_TYPE_FABRIC, 0));
}

/* Memory of the host's at a device address: of no card, slow, and exchanged for the card's. */
static void host_chunks(void)
{
    CUmemAllocationProp prop = kit_prop, found;
    CUmemGenericAllocationHandle host = 0, card = 0;
    CUdeviceptr address = 0, beside = 0;
    unsigned type = 0;
    uint64_t bus;
    int fd;

    kit_context();
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    prop.location.id = 1;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&host, 16 * MIB, &prop, 0));
    prop.location.id = 0;
    const size_t before = kit_memory_left();
    OK(cuMemCreate(&host, 128 * MIB, &prop, 0)); /* more than the card has */
    CHECK(kit_memory_left() == before);
    OK(cuMemRelease(host));
    OK(cuMemCreate(&host, 16 * MIB, &prop, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cuMemExportToShareableHandle(&fd, host, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemGetAllocationPropertiesFromHandle(&found, host));
    CHECK(found.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA);
    OK(cuMemAddressReserve(&address, 16 * MIB, 0, 0, 0));
    OK(cuMemMap(address, 16 * MIB, 0, host, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(address, 1, 4));
    OK(cuMemSetAccess(address, 16 * MIB, &kit_access, 1));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + MIB));
    CHECK(type == CU_MEMORYTYPE_HOST);
    const double began = kit_seconds();
    OK(cuMemsetD8(address, 7, 16 * MIB)); /* eight pages */
    OK(cuCtxSynchronize());
    CHECK(kit_seconds() - began >= 0.14);
    CHECK(kit_all_bytes(address, 16 * MIB, 7));
    beside = kit_vmm(16 * MIB, &card);
    OK(cuMemcpyDtoD(beside, address, 16 * MIB));
    OK(cuCtxSynchronize()); /* the call does not wait for that */
    OK(cuMemUnmap(address, 16 * MIB));
    OK(cuMemMap(address, 16 * MIB, 0, card, 0));
    OK(cuMemSetAccess(address, 16 * MIB, &kit_access, 1));
    bus = simcuda_memory_ns();
    OK(cuMemsetD8(address + MIB, 8, 15 * MIB));
    OK(cuCtxSynchronize());
    CHECK(simcuda_memory_ns() == bus);
    CHECK(kit_all_bytes(address, MIB, 7) && kit_all_bytes(address + MIB, 15 * MIB, 8));
    OK(cuMemRelease(host));
}

#define PAGES       44u
#define PAGE_BYTES  ((size_t)2 * MIB)
#define MIXED_BYTES (PAGES * PAGE_BYTES)

/* Memory of which every eleventh page is the host's, at the end of each part of so many pages. */
static CUdeviceptr make_mixed(unsigned part)
{
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;

    OK(cuMemAddressReserve(&address, MIXED_BYTES, 0, 0, 0));
    for (unsigned i = 0; i < PAGES; i++) {
        const bool host = i % part >= part - part / 11;

        prop.location.type =
            host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
        OK(cuMemCreate(&handle, PAGE_BYTES, &prop, 0));
        OK(cuMemMap(address + i * PAGE_BYTES, PAGE_BYTES, 0, handle, 0));
        OK(cuMemRelease(handle));
    }
    OK(cuMemSetAccess(address, MIXED_BYTES, &kit_access, 1));
    return address;
}

/* The time that setting all of it takes, in ns, which pass before the set has ended. */
static uint64_t set_ns(CUdeviceptr address)
{
    const uint64_t model = simcuda_memory_ns();
    const double began = kit_seconds();

    OK(cuMemsetD8(address, 7, MIXED_BYTES));
    OK(cuCtxSynchronize());
    const uint64_t taken = simcuda_memory_ns() - model;
    CHECK((kit_seconds() - began) * 1e9 >= (double)taken);
    return taken;
}

/* The card and the bus work at once only where an operation finds pages of both close together. The
 * card's 40 pages take 200 ms, the host's 4 pages as long. */
static void mixed_memory(void)
{
    kit_context();
    const CUdeviceptr apart = make_mixed(PAGES);
    CHECK(set_ns(apart) >= 300000000);
    OK(cuMemUnmap(apart, MIXED_BYTES));
    const uint64_t together = set_ns(make_mixed(11));
    CHECK(together >= 200000000 && together < 270000000);
}

/* Two streams touch the same page, which each operation closes at its begin; a write without the
 * right to it is a fault all the same. The thread that begins with the streams blocks all signals,
 * as libraries' own threads do. */
static void touched_at_once(void)
{
    CUmemAccessDesc reading = kit_access;
    CUmemGenericAllocationHandle handle = 0;
    CUstream streams[2] = {NULL, NULL};
    CUdeviceptr page;
    sigset_t all, before;
    uint32_t value = 3;
    uint64_t count = 4;

    kit_context();
    CUfunction fill = kit_kernel("fill");
    page = kit_vmm(PAGE_BYTES, &handle);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(cuMemsetD8Async(page + i * MIB, 5, MIB, streams[i]));
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned round = 0; round < 2000; round++)
        OK(cuMemsetD8Async(page + round % 2 * MIB, 5, MIB, streams[round % 2]));
    OK(cuCtxSynchronize());
    CHECK(kit_all_bytes(page, PAGE_BYTES, 5));
    reading.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemSetAccess(page, PAGE_BYTES, &reading, 1));
    CHECK(kit_all_bytes(page, PAGE_BYTES, 5));
    kit_launch(fill, streams[0], (void *[]){&page, &value, &count});
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

TEST(vmm_rules, NULL)
TEST(vmm_moves, NULL)
TEST(shared_by_descriptor, NULL)
TEST(host_chunks, "SIMCUDA_HOST_GBPS=0.1", NULL)
TEST(touched_at_once, "SIMCUDA_HOST_GBPS=1000", "SIMCUDA_CARD_GBPS=1000", "SIMCUDA_TIMESLICE=0",
     NULL)
TEST(mixed_memory, "SIMCUDA_MEMORY=128MiB", "SIMCUDA_HOST_GBPS=0.04", "SIMCUDA_CARD_GBPS=0.4",
     NULL)

int kit_run_vmm(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vmm_rules),
        cmocka_unit_test(test_vmm_moves),
        cmocka_unit_test(test_shared_by_descriptor),
        cmocka_unit_test(test_host_chunks),
        cmocka_unit_test(test_touched_at_once),
        cmocka_unit_test(test_mixed_memory),
    };

    return cmocka_run_group_tests_name("simcuda vmm", tests, NULL, NULL);
}
