/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c: allocation, poison, out of memory, virtual memory management, host memory,
 * pools, address questions.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "tests/simcuda/testkit.h"

static void fresh_poison(void)
{
    CUdeviceptr small = 0, neighbour = 0, big = 0, again = 0;
    unsigned char byte = 0;

    kit_context();
    OK(cuMemAlloc(&small, 1000));
    OK(cuMemAlloc(&neighbour, 1000));
    OK(cuMemAlloc(&big, 3 * MIB));
    CHECK(small % 256 == 0 && big % 512 == 0);
    CHECK(kit_all_bytes(small, 1000, 0xD5) && kit_all_bytes(big, 3 * MIB, 0xD5));
    OK(cuMemsetD8(small, 1, 1000));
    OK(cuMemFree(small));
    OK(cuMemAlloc(&again, 1000));
    CHECK(again == small &&
          kit_all_bytes(again, 1000, 0xDE)); /* freed bytes are not what they were */
    OK(cuMemFree(big));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&byte, big, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(big));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(again + 1));
    OK(cuMemFree(0));
}

static void no_poison(void)
{
    CUdeviceptr big = 0;

    kit_context();
    OK(cuMemAlloc(&big, 3 * MIB));
    CHECK(kit_all_bytes(big, 3 * MIB, 0));
}

static void out_of_memory(void)
{
    CUdeviceptr pieces[40] = {0};
    size_t count = 0;

    kit_context();
    const size_t before = kit_memory_left();
    CHECK(before == 60 * MIB);
    while (count < 40 && cuMemAlloc(&pieces[count], 2 * MIB) == CUDA_SUCCESS)
        count++;
    CHECK(count == 30 && kit_memory_left() == 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pieces[count], 1));
    OK(cuMemFree(pieces[0]));
    OK(cuMemAlloc(&pieces[0], 1));
    while (count > 0)
        OK(cuMemFree(pieces[--count]));
    CHECK(kit_memory_left() == before);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&pieces[0], 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&pieces[0], SIZE_MAX));
}

static void address_range_and_pitch(void)
{
    CUdeviceptr pointer = 0, base = 0;
    size_t size = 0, pitch = 0;

    kit_context();
    OK(cuMemAllocPitch(&pointer, &pitch, 1000, 100, 4));
    CHECK(pitch >= 1000 && pitch % 512 == 0);
    OK(cuMemGetAddressRange(&base, &size, pointer + 5000));
    CHECK(base == pointer && size == pitch * 100);
    GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, pointer + 64 * MIB));
    OK(cuMemsetD8(pointer, 1, pitch * 100));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(pointer, 1, pitch * 100 + 1));
}

static void host_memory(void)
{
    unsigned *pinned = NULL, flags = 0;
    CUdeviceptr device = 0, same = 0;
    char *pages = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    kit_context();
    CHECK(pages != MAP_FAILED);
    OK(cuMemHostAlloc((void **)&pinned, MIB, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemHostGetFlags(&flags, pinned));
    CHECK(flags == CU_MEMHOSTALLOC_PORTABLE);
    OK(cuMemHostGetDevicePointer(&device, pinned, 0));
    OK(cuMemsetD32(device, 5, 100)); /* the device reaches it */
    OK(cuCtxSynchronize());
    CHECK(pinned[99] == 5);
    OK(cuMemHostRegister(pages, MIB, 0));
    GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(pages, 4096, 0));
    OK(cuMemHostGetDevicePointer(&same, pages, 0));
    OK(cuMemHostUnregister(pages));
    GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pages));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer(&same, pages, 0));
    munmap(pages, MIB);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister(pages, MIB, 0)); /* nothing there */
    OK(cuMemFreeHost(pinned));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
}

static void managed_memory(void)
{
    CUdeviceptr pointer = 0;
    unsigned managed = 0;

    kit_context();
    const size_t before = kit_memory_left();
    OK(cuMemAllocManaged(&pointer, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    CHECK(kit_memory_left() == before); /* nowhere yet */
    memset((void *)pointer, 0x42, 2 * MIB);
    CHECK(kit_memory_left() == before); /* on the host */
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    CHECK(managed && kit_all_bytes(pointer, 2 * MIB, 0x42));
    OK(cuMemFree(pointer));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&pointer, 2 * MIB, 9));
    CHECK(kit_memory_left() == before);
}

/* where the pages are: what counts on the card, what is brought there by a touch */
static void managed_pages(void)
{
    const CUdevice device = 0;
    CUdeviceptr pointer = 0;

    kit_context();
    const size_t before = kit_memory_left();
    OK(cuMemAllocManaged(&pointer, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8(pointer + 2 * MIB, 7, 4 * MIB));
    OK(cuCtxSynchronize());
    CHECK(kit_memory_left() == before - 4 * MIB); /* the two pages that were touched */
    OK(cuMemPrefetchAsync(pointer, 8 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0,
                          NULL));
    OK(cuCtxSynchronize());
    CHECK(kit_memory_left() == before);
    OK(cuMemPrefetchAsync(pointer, 4 * MIB,
                          (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device}, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(kit_memory_left() == before - 4 * MIB);
    CHECK(kit_all_bytes(pointer + 2 * MIB, 4 * MIB,
                        7)); /* the second of these has come as well */
    OK(cuMemPrefetchAsync(pointer, 8 * MIB, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0,
                          NULL));
    OK(cuCtxSynchronize());
    for (size_t i = 2 * MIB; i < 6 * MIB; i += 4096) /* the program's own touch */
        CHECK(((volatile uint8_t *)pointer)[i] == 7);
    CHECK(kit_memory_left() == before);
    OK(cuMemFree(pointer));
    CHECK(kit_memory_left() == before);
}

/* more than the card has: as much as fits may be there, and no more is let in */
static void managed_on_a_full_card(void)
{
    CUdeviceptr pointer = 0;

    kit_context();
    const size_t before = kit_memory_left();
    OK(cuMemAllocManaged(&pointer, before + 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemPrefetchAsync(pointer, before + 8 * MIB,
                          (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, NULL));
    OK(cuCtxSynchronize());
    CHECK(kit_memory_left() < 2 * MIB);
    OK(cuMemsetD8(pointer, 1, 2 * MIB));
    OK(cuCtxSynchronize());
    OK(cuMemsetD8(pointer + before + 4 * MIB, 2, 2 * MIB)); /* used where it is */
    CHECK(kit_all_bytes(pointer, 2 * MIB, 1) &&
          kit_all_bytes(pointer + before + 4 * MIB, 2 * MIB, 2));
    CHECK(kit_memory_left() < 2 * MIB);
    OK(cuMemFree(pointer));
    CHECK(kit_memory_left() == before);
}

static void memory_pools(void)
{
    CUstream stream = NULL;
    CUmemoryPool pool = NULL;
    CUdeviceptr first = 0, second = 0;
    cuuint64_t used = 0;
    uint64_t time = 50000000;
    void *parameters[] = {&time};

    kit_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    const size_t before = kit_memory_left();
    OK(cuMemAllocAsync(&first, 40 * MIB, stream));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CHECK(used == 40 * MIB && kit_memory_left() == before - 40 * MIB);
    kit_hold(stream);
    kit_launch(kit_kernel("sleep"), stream, parameters);
    OK(cuMemFreeAsync(first, stream));
    CHECK(kit_memory_left() == before - 40 * MIB); /* the stream is not there yet */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(first, stream));
    kit_release();
    OK(cuMemAllocAsync(&second, 40 * MIB, stream)); /* waits for the free */
    OK(cuMemFreeAsync(second, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(kit_memory_left() == before);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
    CHECK(used == 40 * MIB);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(pool));
}

static void address_questions(void)
{
    CUdeviceptr pointer = 0, start = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUcontext context = NULL, own = kit_context();
    unsigned type = 0;
    int device = 5, unknown = 5;
    size_t size = 0;
    char pageable = 0;

    OK(cuMemAlloc(&pointer, 5000));
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&context, &type, &device, &start, &size};
    OK(cuPointerGetAttributes(5, names, values, pointer + 100));
    CHECK(context == own && type == CU_MEMORYTYPE_DEVICE && device == 0 && start == pointer &&
          size == 5000);
    GIVES(
        CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&pageable));
    OK(cuPointerGetAttributes(5, names, values, (CUdeviceptr)&pageable));
    CHECK(!context && type == 0 && device == -2);
    CUipcMemHandle ipc;
    OK(cuIpcGetMemHandle(&ipc, pointer));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&start, ipc, 1));
    pointer = kit_vmm(2 * MIB, &handle);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&ipc, pointer)); /* as on a card */
    OK(cuPointerGetAttribute(&unknown, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    CHECK(unknown == 0);
}

static void copies_2d_and_3d(void)
{
    CUdeviceptr device = 0;
    unsigned char from[64 * 8], to[64 * 8] = {0};

    kit_context();
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)i;
    OK(cuMemAlloc(&device, 4096));
    OK(cuMemsetD8(device, 0, 4096));
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = from,
                         .srcPitch = 64,
                         .srcXInBytes = 8,
                         .srcY = 1,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = device,
                         .dstPitch = 512,
                         .WidthInBytes = 16,
                         .Height = 4};
    OK(cuMemcpy2D(&box));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = device,
                          .srcPitch = 512,
                          .srcHeight = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = to,
                          .dstPitch = 64,
                          .dstHeight = 4,
                          .WidthInBytes = 16,
                          .Height = 2,
                          .Depth = 2};
    OK(cuMemcpy3D(&back));
    CHECK(memcmp(to, from + 64 + 8, 16) == 0 && memcmp(to + 64, from + 128 + 8, 16) == 0);
    CHECK(memcmp(to + 256, from + 192 + 8, 16) == 0); /* second slice */
    box.dstPitch = 8;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&box)); /* rows would overlap */
    box.dstPitch = SIZE_MAX / 2;
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&box));
    OK(cuMemsetD2D16(device, 512, 0x1234, 4, 2));
    OK(cuMemcpyDtoH(to, device + 512, 10));
    CHECK(to[0] == 0x34 && to[7] == 0x12 && to[8] == from[128 + 8 + 8]);
}

TEST(fresh_poison, NULL)
TEST(no_poison, "SIMCUDA_POISON=0", NULL)
TEST(out_of_memory, NULL)
TEST(address_range_and_pitch, NULL)
TEST(host_memory, NULL)
TEST(managed_memory, NULL)
TEST(managed_pages, NULL)
TEST(managed_on_a_full_card, NULL)
TEST(memory_pools, NULL)
TEST(address_questions, NULL)
TEST(copies_2d_and_3d, NULL)

int kit_run_memory(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_poison),     cmocka_unit_test(test_no_poison),
        cmocka_unit_test(test_out_of_memory),    cmocka_unit_test(test_address_range_and_pitch),
        cmocka_unit_test(test_host_memory),      cmocka_unit_test(test_managed_memory),
        cmocka_unit_test(test_managed_pages),    cmocka_unit_test(test_managed_on_a_full_card),
        cmocka_unit_test(test_memory_pools),     cmocka_unit_test(test_address_questions),
        cmocka_unit_test(test_copies_2d_and_3d),
    };

    return cmocka_run_group_tests_name("simcuda memory", tests, NULL, NULL);
}
