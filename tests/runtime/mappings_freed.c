/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings_freed.c: the case of `mappings` about calls on memory that was freed. One thread.
 */
#include "tests/runtime/mappings.h"

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
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, NULL));
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context));
    OK(cuGraphDestroy(graph));
}

/* memory of a pool has no context that a fill could take; asked on an H200 */
static void fill_nodes_of_pool(CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS set = {.value = 7, .elementSize = 1, .width = 16, .height = 1};
    CUgraphNodeParams fill = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.value = 7, .elementSize = 1, .width = 16, .height = 1}};
    CUgraphNode node;
    CUgraph graph;

    OK(cuMemAllocAsync(&set.dst, GRANULE, NULL));
    fill.memset.dst = set.dst;
    OK(cuGraphCreate(&graph, 0));
    GIVES(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, NULL), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddNode(&node, graph, NULL, NULL, 0, &fill), CUDA_ERROR_INVALID_VALUE);
    fill.memset.ctx = context;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &fill));
    OK(cuGraphDestroy(graph));
    OK(cuMemFreeAsync(set.dst, NULL));
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes,
                                   CUstream stream);

/* The legacy stream disturbs a capture before the driver looks at the memory. per_thread: it is
 * named in a call whose own default is the thread's stream. */
static void refuse_beside_capture(CUdeviceptr freed, bool per_thread)
{
    static uint8_t bytes[16];
    CUstreamCaptureStatus status;
    CUstream captured, other;
    CUgraph graph = NULL;

    OK(cuStreamCreate(&captured, 0));
    OK(cuStreamCreate(&other, 0));
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(cuMemcpyHtoDAsync(freed, bytes, sizeof bytes, other), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamIsCapturing(captured, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    if (per_thread) {
        GIVES(cuMemcpyHtoDAsync_v2_ptsz(freed, bytes, sizeof bytes, NULL),
              CUDA_ERROR_INVALID_VALUE);
        GIVES(cuMemcpyHtoDAsync_v2_ptsz(freed, bytes, sizeof bytes, CU_STREAM_LEGACY),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    } else {
        GIVES(cuMemcpyHtoD(freed, bytes, sizeof bytes), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    OK(cuStreamIsCapturing(captured, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(cuMemcpyHtoDAsync(freed, bytes, sizeof bytes, captured),
          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(cuMemsetD8Async(freed, 1, sizeof bytes, captured),
          CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamDestroy(captured));
    OK(cuStreamDestroy(other));
}

/* A stream of the program's own needs no current context (an H200, driver 580). */
static void copy_without_context(CUdeviceptr freed, CUdeviceptr good, CUcontext context)
{
    static uint8_t bytes[16];
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(NULL));
    OK(cuMemcpyHtoDAsync(good, bytes, sizeof bytes, stream));
    OK(cuMemsetD8Async(good, 0, sizeof bytes, stream));
    GIVES(cuMemcpyHtoDAsync(freed, bytes, sizeof bytes, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemsetD8Async(freed, 0, sizeof bytes, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyHtoD(freed, bytes, sizeof bytes), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(context));
    OK(cuStreamDestroy(stream));
}

/* fills by parameters of any kind, whose context is NULL: the driver takes the memory's */
static void fill_nodes_of_any_kind(CUdeviceptr freed, CUdeviceptr good)
{
    CUgraphNodeParams fill = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.dst = freed, .value = 7, .elementSize = 1, .width = 16, .height = 1}};
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    GIVES(cuGraphAddNode(&node, graph, NULL, NULL, 0, &fill), CUDA_ERROR_INVALID_VALUE);
    fill.memset.dst = good;
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &fill));
    CHECK(fill.memset.ctx == NULL);
    OK(cuGraphNodeSetParams(node, &fill));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, NULL));
    expect_bytes(good, 16, 7);
    fill.memset.value = 9;
    OK(cuGraphExecNodeSetParams(exec, node, &fill));
    OK(cuGraphLaunch(exec, NULL));
    expect_bytes(good, 16, 9);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* A fill that is captured is recorded wherever it is; its graph cannot be used (asked on an H200). */
static void capture_fill(CUdeviceptr address, size_t bytes)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraph graph = NULL, around;
    CUgraphExec exec;
    CUgraphNode node;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(address, 1, bytes, stream));
    OK(cuStreamEndCapture(stream, &graph));
    GIVES(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_ERROR);
    OK(cuGraphCreate(&around, 0));
    OK(cuGraphAddChildGraphNode(&node, around, NULL, 0, graph));
    GIVES(cuGraphInstantiate(&exec, around, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(around));
    OK(cuStreamDestroy(stream));
}

/* memory that is freed after the node was added, and before the graph is made ready */
static void free_below_node(size_t bytes, CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS set = {.elementSize = 1, .width = 16, .height = 1};
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;

    OK(cuMemAlloc(&set.dst, bytes));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFree(set.dst));
    GIVES(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
}

/* rows beyond the pitch, which the driver lets pass in mapped memory and in pools, and types that
 * there are not, which it lets pass in mapped memory only (asked on an H200) */
static void copy_beyond_pitch(CUdeviceptr good)
{
    char host[256];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = good,
                          .srcXInBytes = 6,
                          .srcPitch = 67,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = host,
                          .dstPitch = 128,
                          .WidthInBytes = 63,
                          .Height = 2};

    GIVES(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcXInBytes = 4;
    OK(cuMemcpy2D(&copy));
    copy.srcMemoryType = (CUmemorytype)0;
    GIVES(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = (CUmemorytype)5;
    GIVES(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.WidthInBytes = 0;
    OK(cuMemcpy2D(&copy));
    copy.WidthInBytes = 63;
    copy.srcXInBytes = 6;
    OK(cuMemAllocAsync(&copy.srcDevice, GRANULE, NULL));
    GIVES(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    OK(cuMemcpy2D(&copy));
    OK(cuMemFreeAsync(copy.srcDevice, NULL));
}

/* copies with a shape, lists of copies, and nodes */
void mappings_case_freed(void)
{
    const CUcontext context = begin_context();
    CUdeviceptr freed, good;

    OK(cuMemAlloc(&good, 3 * GRANULE));
    for (size_t bytes = 1000; bytes <= 5 * GRANULE; bytes *= 10) {
        OK(cuMemAlloc(&freed, bytes));
        OK(cuMemsetD8(freed, 1, bytes));
        OK(cuMemFree(freed));
        copy_freed_boxes(freed, good);
        copy_freed_lists(freed, good);
        nodes_of_freed(freed, good, context);
        fill_nodes_of_any_kind(freed, good);
        refuse_beside_capture(freed, false);
        refuse_beside_capture(freed, true);
        copy_without_context(freed, good, context);
        capture_fill(freed, 16);
        free_below_node(bytes, context);
        OK(cuMemAlloc(&freed, bytes));
        capture_fill(freed, bytes + 8);
        OK(cuMemFree(freed));
    }
    copy_beyond_pitch(good);
    fill_nodes_of_pool(context);
    OK(cuCtxSynchronize());
}
