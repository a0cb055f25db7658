/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stream.c: order and asynchrony: streams, the legacy stream, events, launches, faults of
 * device addresses.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include "tests/simcuda/testkit.h"

#define WRONG_ORDER_US 50000 /* what does not wait, as it should, runs meanwhile */

static uint64_t pause_ns = 100000000;
static void *pause_parameters[] = {&pause_ns};

static void old_data_unsynchronised(void)
{
    CUdeviceptr device = 0;
    CUstream stream = NULL;
    uint32_t *pinned = NULL, value = 0x11111111;
    uint64_t count = 256;

    kit_context();
    CUfunction fill = kit_kernel("fill");
    OK(cuMemAlloc(&device, 1024));
    OK(cuMemAllocHost((void **)&pinned, 1024));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset(pinned, 0xAA, 1024);
    kit_hold(stream);
    kit_launch(fill, stream, (void *[]){&device, &value, &count});
    value = 0x22222222; /* parameters were copied at launch */
    OK(cuMemcpyDtoHAsync(pinned, device, 1024, stream));
    CHECK(pinned[0] == 0xAAAAAAAA); /* nobody has waited */
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    kit_release();
    OK(cuStreamSynchronize(stream));
    CHECK(pinned[0] == 0x11111111 && pinned[255] == 0x11111111);
    OK(cuStreamQuery(stream));
}

static void pageable_and_pinned_sources(void)
{
    CUdeviceptr device = 0;
    CUstream stream = NULL;
    uint32_t *pinned = NULL, pageable[16], back[16];

    kit_context();
    OK(cuMemAlloc(&device, 4096));
    OK(cuMemAllocHost((void **)&pinned, sizeof back));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memset(pageable, 1, sizeof pageable);
    memset(pinned, 1, sizeof back);
    kit_hold(stream);
    OK(cuMemcpyHtoDAsync(device, pageable, sizeof pageable, stream));
    OK(cuMemcpyHtoDAsync(device + 1024, pinned, sizeof back, stream));
    memset(pageable, 2, sizeof pageable); /* staged: too late */
    memset(pinned, 2, sizeof back);       /* read when the stream gets there */
    kit_release();
    OK(cuMemcpyDtoHAsync(back, device, sizeof back, stream)); /* to pageable memory: waits */
    CHECK(back[0] == 0x01010101);
    OK(cuMemcpyDtoHAsync(back, device + 1024, sizeof back, stream));
    CHECK(back[0] == 0x02020202);
}

static void legacy_stream_order(void)
{
    CUdeviceptr device = 0;
    CUstream blocking = NULL, free_running = NULL;
    uint32_t one = 1, two = 2, back = 0;
    uint64_t count = 1;

    kit_context();
    CUfunction fill = kit_kernel("fill");
    OK(cuMemAlloc(&device, 1024));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
    kit_hold(blocking);
    kit_launch(fill, blocking, (void *[]){&device, &one, &count});
    kit_launch(fill, NULL, (void *[]){&device, &two, &count}); /* behind the blocking stream */
    usleep(WRONG_ORDER_US);
    kit_release();
    OK(cuStreamSynchronize(NULL));
    OK(cuMemcpyDtoH(&back, device, 4));
    CHECK(back == 2);
    kit_hold(NULL);
    kit_launch(fill, NULL, (void *[]){&device, &one, &count});
    kit_launch(fill, blocking,
               (void *[]){&device, &two, &count}); /* behind the legacy stream */
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    OK(cuStreamQuery(free_running)); /* this one does not care */
    usleep(WRONG_ORDER_US);
    kit_release();
    OK(cuStreamSynchronize(blocking));
    OK(cuMemcpyDtoH(&back, device, 4));
    CHECK(back == 2);
    kit_hold(free_running);
    OK(cuStreamSynchronize(NULL)); /* does not wait for it */
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(free_running));
    kit_release();
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(free_running));
}

static void *other_thread(void *context)
{
    CUstream stream = CU_STREAM_PER_THREAD;
    unsigned long long id = 0;

    OK(cuCtxSetCurrent(context));
    kit_hold(stream);
    OK(cuStreamGetId(stream, &id));
    OK(cuStreamSynchronize(stream));
    return (void *)(uintptr_t)id;
}

static void per_thread_streams(void)
{
    CUcontext context = kit_context();
    unsigned long long id = 0;
    pthread_t thread;
    void *result = NULL;

    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    CHECK(pthread_create(&thread, NULL, other_thread, context) == 0);
    kit_await_held();
    OK(cuStreamQuery(CU_STREAM_PER_THREAD)); /* ours has nothing to do */
    kit_release();
    CHECK(pthread_join(thread, &result) == 0);
    CHECK((unsigned long long)(uintptr_t)result != id);
    OK(cuCtxSynchronize());
}

static void event_order(void)
{
    CUevent start = NULL, end = NULL, untimed = NULL;
    CUstream first = NULL, second = NULL;
    float milliseconds = 0;

    kit_context();
    CUfunction pause = kit_kernel("sleep");
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventQuery(end)); /* never recorded: done */
    const double before = kit_seconds();
    OK(cuEventRecord(start, first));
    kit_hold(first);
    kit_launch(pause, first, pause_parameters);
    OK(cuEventRecord(end, first));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(end));
    OK(cuStreamWaitEvent(second, end, 0));
    OK(cuEventRecord(untimed, second));
    GIVES(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, start, end));
    kit_release();
    OK(cuStreamSynchronize(second)); /* waits for the first through the event */
    OK(cuEventQuery(end));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds > 99 && milliseconds <= 1 + 1000 * (kit_seconds() - before));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
    OK(cuEventDestroy(end));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(end));
    OK(cuStreamDestroy(first));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(first));
}

static void illegal_address_sticky(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUcontext context = NULL;
    uint32_t value = 1;
    uint64_t count = 1;
    int sum = 0;

    kit_context();
    CUfunction fill = kit_kernel("fill");
    CUdeviceptr gone = kit_vmm(2 * MIB, &handle), device = 0;
    OK(cuMemUnmap(gone, 2 * MIB));
    OK(cuMemAlloc(&device, 1024));
    kit_launch(fill, NULL, (void *[]){&gone, &value, &count});
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuCtxPopCurrent(&context));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(device));
    OK(cuCtxPushCurrent(context));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&device, 1024));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL,
                                                     (void *[]){&gone, &value, &count}, NULL));
    OK(cuDeviceGetCount(&sum)); /* needs no context */
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&device, 1024)); /* a new context starts afresh */
    fill = kit_kernel("fill");
    kit_launch(fill, NULL, (void *[]){&device, &value, &count});
    OK(cuCtxSynchronize());
}

static void no_access_and_low_address_fault(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr reserved = 0, low = 8192; /* as an index added to NULL gives */
    uint32_t value = 1;
    uint64_t count = 1;

    kit_context();
    OK(cuMemAddressReserve(&reserved, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &kit_prop, 0));
    OK(cuMemMap(reserved, 2 * MIB, 0, handle, 0)); /* mapped, but no access was set */
    kit_launch(kit_kernel("fill"), NULL, (void *[]){&reserved, &value, &count});
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    OK(cuDevicePrimaryCtxReset(0));
    kit_context();
    kit_launch(kit_kernel("fill"), NULL, (void *[]){&low, &value, &count});
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

static void CUDA_CB count_up(void *data)
{
    __atomic_fetch_add((int *)data, 1, __ATOMIC_SEQ_CST);
}

static void CUDA_CB called_back(CUstream stream, CUresult status, void *data)
{
    if (stream && status == CUDA_SUCCESS)
        count_up(data);
}

static void host_functions(void)
{
    CUstream stream = NULL;
    int calls = 0;

    kit_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    kit_hold(stream);
    OK(cuLaunchHostFunc(stream, count_up, &calls));
    OK(cuStreamAddCallback(stream, called_back, &calls, 0));
    CHECK(__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == 0);
    kit_release();
    OK(cuStreamSynchronize(stream));
    CHECK(__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == 2);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, NULL, NULL));
}

static void values_in_memory(void)
{
    CUdeviceptr device = 0;
    CUstream first = NULL, second = NULL;
    uint32_t back = 0;

    kit_context();
    OK(cuMemAlloc(&device, 64));
    OK(cuMemsetD8(device, 0, 64));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(first, device, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue64(first, device + 8, 77, 0));
    usleep(30000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(first));
    OK(cuStreamWriteValue32(second, device, 4, 0));
    OK(cuStreamSynchronize(first));
    OK(cuMemcpyDtoH(&back, device + 8, 4));
    CHECK(back == 77);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(first, device + 1, 3, 0));
    OK(cuStreamWaitValue32(first, device, 100, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuDevicePrimaryCtxReset(0)); /* does not wait for ever */
}

static void throttled_bus(void)
{
    CUdeviceptr device = 0;
    void *pinned = NULL;

    kit_context();
    OK(cuMemAlloc(&device, 20 * MIB));
    OK(cuMemAllocHost(&pinned, 20 * MIB));
    const double before = kit_seconds();
    OK(cuMemcpyHtoD(device, pinned, 20 * MIB));
    CHECK(kit_seconds() - before > 0.19); /* 20 MiB at 0.1 GB/s: 0.21 s */
}

static void kernel_duration(void)
{
    kit_context();
    CUfunction nothing = kit_kernel("nothing");
    kit_hold(NULL);
    const double before = kit_seconds();
    for (int i = 0; i < 10; i++)
        kit_launch(nothing, NULL, NULL); /* returns before the kernels run */
    kit_release();
    OK(cuCtxSynchronize());
    CHECK(kit_seconds() - before >= 0.1);
}

TEST(old_data_unsynchronised, NULL)
TEST(pageable_and_pinned_sources, NULL)
TEST(legacy_stream_order, NULL)
TEST(per_thread_streams, NULL)
TEST(event_order, NULL)
TEST(illegal_address_sticky, NULL)
TEST(no_access_and_low_address_fault, NULL)
TEST(host_functions, NULL)
TEST(values_in_memory, NULL)
TEST(throttled_bus, "SIMCUDA_PCIE_GBPS=0.1", NULL)
TEST(kernel_duration, "SIMCUDA_KERNEL_NS=10000000", NULL)

int kit_run_stream(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_data_unsynchronised),
        cmocka_unit_test(test_pageable_and_pinned_sources),
        cmocka_unit_test(test_legacy_stream_order),
        cmocka_unit_test(test_per_thread_streams),
        cmocka_unit_test(test_event_order),
        cmocka_unit_test(test_illegal_address_sticky),
        cmocka_unit_test(test_no_access_and_low_address_fault),
        cmocka_unit_test(test_host_functions),
        cmocka_unit_test(test_values_in_memory),
        cmocka_unit_test(test_throttled_bus),
        cmocka_unit_test(test_kernel_duration),
    };

    return cmocka_run_group_tests_name("simcuda streams", tests, NULL, NULL);
}
