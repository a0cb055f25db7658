/* SPDX-License-Identifier: Apache-2.0
 *
 * test_capture.c: stream capture, what is illegal during one, and graphs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "tests/simcuda/testkit.h"

static uint32_t read_word(CUdeviceptr device)
{
    uint32_t word = 0;

    OK(cuMemcpyDtoH(&word, device, 4));
    return word;
}

static void capture_and_replay(void)
{
    CUdeviceptr device = 0;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint32_t step = 5;
    size_t nodes = 0;

    kit_context();
    CUfunction add = kit_kernel("add");
    OK(cuMemAlloc(&device, 64));
    OK(cuMemsetD8(device, 0, 64));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSynchronize());
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    kit_launch(add, stream, (void *[]){&device, &step});
    OK(cuMemcpyDtoDAsync(device + 4, device, 4, stream));
    OK(cuMemsetD32Async(device + 8, 9, 1, stream));
    OK(cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(read_word(device) == 0); /* recorded, not run */
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); /* the executable graph stands alone */
    for (int i = 0; i < 3; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_word(device) == 15 && read_word(device + 4) == 15 && read_word(device + 8) == 9);
    OK(cuGraphExecDestroy(exec));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
}

static void fork_and_join(void)
{
    CUdeviceptr device = 0;
    CUstream first = NULL, second = NULL;
    CUevent event = NULL, back = NULL;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    uint32_t step = 1;

    kit_context();
    CUfunction add = kit_kernel("add");
    OK(cuMemAlloc(&device, 64));
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    for (int joined = 0; joined < 2; joined++) {
        OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
        kit_launch(add, first, (void *[]){&device, &step});
        OK(cuEventRecord(event, first));
        OK(cuStreamWaitEvent(second, event, 0));
        OK(cuStreamIsCapturing(second, &status));
        CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
        kit_launch(add, second, (void *[]){&device, &step});
        OK(cuEventRecord(back, second));
        if (joined)
            OK(cuStreamWaitEvent(first, back, 0));
        kit_launch(add, first, (void *[]){&device, &step});
        GIVES(joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
              cuStreamEndCapture(first, &graph));
        CHECK(joined ? graph != NULL : graph == NULL);
        OK(cuStreamIsCapturing(second, &status));
        CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    }
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(back));
}

/* Begins a capture, makes an illegal call, and checks that the capture is lost. */
static void check_lost(CUstream stream, CUresult wanted, CUresult got)
{
    CUgraph graph = (CUgraph)&graph;
    CUstreamCaptureStatus status;

    CHECK(got == wanted);
    OK(cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          cuLaunchHostFunc(stream, (CUhostFn)(void *)check_lost, NULL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    CHECK(graph == NULL);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* for the next */
}

static void illegal_while_capturing(void)
{
    CUdeviceptr device = 0, other = 0;
    CUstream stream = NULL, blocking = NULL;
    CUevent outside = NULL, inside = NULL;
    CUgraph graph = NULL;
    char host[16];
    const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;

    kit_context();
    OK(cuMemAlloc(&device, 64));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(outside, blocking));
    GIVES(refused, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_lost(stream, refused, cuMemAlloc(&other, 64));
    check_lost(stream, refused, cuMemFree(device));
    check_lost(stream, refused, cuCtxSynchronize());
    check_lost(stream, refused, cuStreamSynchronize(stream));
    check_lost(stream, refused, cuStreamQuery(stream));
    check_lost(stream, refused, cuStreamSynchronize(blocking));
    check_lost(stream, refused, cuEventSynchronize(outside));
    check_lost(stream, refused, cuMemAllocAsync(&other, 64, blocking));
    check_lost(stream, refused, cuMemFreeAsync(device, blocking));
    check_lost(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
               cuStreamWaitEvent(stream, outside, 0));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuEventRecord(inside, stream));
    check_lost(stream, CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(inside));
    OK(cuMemcpyDtoH(host, device,
                    16)); /* a non-blocking capture does not concern the legacy stream */
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          cuStreamIsCapturing(NULL, &status)); /* asks only */
    OK(cuStreamIsCapturing(blocking, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    check_lost(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyDtoH(host, device, 16));
    check_lost(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamSynchronize(NULL));
}

static void *allocate_elsewhere(void *argument)
{
    CUdeviceptr device = 0;
    const CUresult *wanted = argument;
    CUcontext context = NULL;

    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    GIVES(*wanted, cuMemAlloc(&device, 64));
    return NULL;
}

static void check_elsewhere(CUresult wanted)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, allocate_elsewhere, &wanted) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void capture_modes(void)
{
    CUdeviceptr device = 0;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    kit_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&device, 64));
    check_elsewhere(CUDA_SUCCESS);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    check_elsewhere(CUDA_SUCCESS); /* only this thread is bound */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc(&device, 64)); /* relaxed: on its own responsibility */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&device, 64));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_elsewhere(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* every thread is bound */
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
}

/* Launches of one executable graph follow each other, whatever their streams. */
static void launches_follow_each_other(void)
{
    CUdeviceptr device = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUstream first = NULL, second = NULL;

    kit_context();
    OK(cuMemAlloc(&device, 1024));
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD8Async(device, 1, 1024, first));
    OK(cuStreamEndCapture(first, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    kit_hold(first);
    OK(cuGraphLaunch(exec, first));
    OK(cuGraphLaunch(exec, second));
    usleep(50000); /* if it does not wait, it runs meanwhile */
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    OK(cuGraphExecDestroy(exec));
    kit_release();
    OK(cuStreamSynchronize(second));
    OK(cuStreamQuery(first));
}

static void explicit_graph(void)
{
    CUdeviceptr device = 0;
    CUgraph graph = NULL, clone = NULL;
    CUgraphNode set = NULL, kernel = NULL, empty = NULL, copy = NULL, twin = NULL;
    CUgraphExec exec = NULL;
    CUgraphNodeType type;
    uint32_t step = 3, back = 0;
    size_t count = 0;
    CUcontext context = kit_context();

    OK(cuMemAlloc(&device, 64));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS zero = {
        .dst = device, .value = 4, .elementSize = 4, .width = 1, .height = 1};
    void *parameters[] = {&device, &step};
    CUDA_KERNEL_NODE_PARAMS launch = {.func = kit_kernel("add"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = device,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = &back,
                         .WidthInBytes = 4,
                         .Height = 1,
                         .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &box, context)); /* added first, runs last */
    OK(cuGraphAddKernelNode(&kernel, graph, NULL, 0, &launch));
    OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &zero, context));
    OK(cuGraphAddEmptyNode(&empty, graph, &set, 1));
    OK(cuGraphAddDependencies(graph, (CUgraphNode[]){empty, kernel},
                              (CUgraphNode[]){kernel, copy}, NULL, 2));
    OK(cuGraphNodeGetDependencies(kernel, NULL, NULL, &count));
    CHECK(count == 1);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    CHECK(count == 3);
    OK(cuGraphGetRootNodes(graph, &twin, (count = 1, &count)));
    CHECK(twin == set);
    OK(cuGraphNodeGetType(copy, &type));
    CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    CHECK(back == 7);
    step = 10; /* the node holds a copy */
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    CHECK(back == 7);
    OK(cuGraphExecKernelNodeSetParams(exec, kernel, &launch));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    CHECK(back == 14);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&twin, kernel, clone));
    CHECK(twin != kernel);
    OK(cuGraphAddDependencies(graph, &copy, &set, NULL, 1)); /* a cycle */
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
}

static uint64_t graph_amount(CUgraphMem_attribute attribute)
{
    uint64_t value = 77;

    OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void CUDA_CB wait_for_word(void *argument)
{
    _Atomic(int) *word = argument;

    atomic_store(word, 1);
    while (atomic_load(word) != 2)
        usleep(1000);
}

/* what is allocated while captured is the graph's, and there from the first launch on */
static void graph_memory(void)
{
    CUdeviceptr inside = 0, outside = 0, plain = 0;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    size_t before = 0, now = 0, total = 0;
    static _Atomic(int) between; /* the launches: 1 reached, 2 go on */

    kit_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&outside, 4 << 20));
    OK(cuMemAllocAsync(&plain, 4096, stream));
    OK(cuMemGetInfo(&before, &total));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&inside, 4 << 20, stream));
    OK(cuMemsetD8Async(inside, 6, 4 << 20, stream));
    OK(cuMemcpyDtoDAsync(outside, inside, 4 << 20, stream));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(plain, stream));
    OK(cuMemFreeAsync(inside, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    CHECK(graph_amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    for (int i = 0; i < 2; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(read_word(outside + 4096) == 0x06060606);
    CHECK(graph_amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 << 20);
    CHECK(graph_amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(graph_amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 4 << 20);
    OK(cuMemGetInfo(&now, &total));
    CHECK(now + (4 << 20) == before);
    OK(cuGraphLaunch(exec, stream));
    OK(cuLaunchHostFunc(stream, wait_for_word, &between));
    OK(cuGraphLaunch(exec, stream));
    while (atomic_load(&between) != 1)
        usleep(1000);
    OK(cuDeviceGraphMemTrim(0)); /* the second launch will need it */
    CHECK(graph_amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 << 20);
    atomic_store(&between, 2);
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    OK(cuMemGetInfo(&now, &total));
    CHECK(now == before);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuMemGetInfo(&now, &total));
    CHECK(now == before);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(inside));
}

static void graph_fault(void)
{
    CUdeviceptr device = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUstream stream = NULL;
    uint32_t step = 3;
    CUmemGenericAllocationHandle handle = 0;

    kit_context();
    device = kit_vmm(2 * MIB, &handle);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    kit_launch(kit_kernel("add"), stream, (void *[]){&device, &step});
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuMemUnmap(device, 2 * MIB));
    OK(cuGraphLaunch(exec, stream));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

TEST(capture_and_replay, NULL)
TEST(fork_and_join, NULL)
TEST(illegal_while_capturing, NULL)
TEST(capture_modes, NULL)
TEST(launches_follow_each_other, NULL)
TEST(explicit_graph, NULL)
TEST(graph_fault, NULL)
TEST(graph_memory, NULL)

int kit_run_capture(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capture_and_replay),
        cmocka_unit_test(test_fork_and_join),
        cmocka_unit_test(test_illegal_while_capturing),
        cmocka_unit_test(test_capture_modes),
        cmocka_unit_test(test_launches_follow_each_other),
        cmocka_unit_test(test_explicit_graph),
        cmocka_unit_test(test_graph_fault),
        cmocka_unit_test(test_graph_memory),
    };

    return cmocka_run_group_tests_name("simcuda capture", tests, NULL, NULL);
}
