/* SPDX-License-Identifier: Apache-2.0
 *
 * graphs.c: the operations of differ.c on stream captures and graphs. A graph is launched only
 * while the allocations that it uses exist.
 */
#include "tests/gpu/differ/differ.h"

#include <string.h>

static bool are_there(const struct graph_uses *uses)
{
    for (unsigned i = 0; i < MEMORIES; i++)
        if (uses->number[i] != 0 && uses->number[i] != world.memory[i].number)
            return false;
    return true;
}

bool nodes_of(CUgraph graph, CUgraphNode nodes[NODES], size_t *count)
{
    size_t all = 0;

    *count = NODES;
    return CALL(cuGraphGetNodes, cuGraphGetNodes_v10000)(graph, NULL, &all) == CUDA_SUCCESS &&
           all <= NODES &&
           CALL(cuGraphGetNodes, cuGraphGetNodes_v10000)(graph, nodes, count) == CUDA_SUCCESS;
}

static int free_graph(void)
{
    for (unsigned i = 0; i < GRAPHS; i++)
        if (world.graph[i] == NULL)
            return (int)i;
    return -1;
}

static void begin(void)
{
    const CUstream stream = pick_stream();
    const CUstreamCaptureMode mode = (CUstreamCaptureMode)(one_in(20) ? 7 : pick(3));

    tell(" mode %d", (int)mode);
    if (world.capturing != 0)
        return;
    if (answer(CALL(cuStreamBeginCapture_v2, cuStreamBeginCapture_v10010)(stream, mode)) ==
        CUDA_SUCCESS) {
        world.capturing = 1;
        memset(&world.capture_uses, 0, sizeof world.capture_uses);
    }
}

static void end(void)
{
    int kept = free_graph();
    CUgraph graph = NULL;

    if (world.capturing == 0)
        return;
    for (unsigned i = 0; i < STREAMS && world.capturing != 0; i++) { /* whichever it is */
        const CUstream stream = i == 0   ? CU_STREAM_LEGACY
                                : i == 1 ? CU_STREAM_PER_THREAD
                                         : world.stream[i];
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        size_t nodes = 0;

        if (stream == NULL || i == 0 ||
            CALL(cuStreamIsCapturing, cuStreamIsCapturing_v10000)(stream, &status) !=
                CUDA_SUCCESS ||
            status == CU_STREAM_CAPTURE_STATUS_NONE)
            continue;
        tell(" s%u status %d", i, (int)status);
        answer(CALL(cuStreamEndCapture, cuStreamEndCapture_v10000)(stream, &graph));
        if (CALL(cuStreamIsCapturing, cuStreamIsCapturing_v10000)(stream, &status) ==
                CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_NONE) /* else another thread has to end it */
            world.capturing = 0;
        if (graph == NULL)
            continue;
        if (CALL(cuGraphGetNodes, cuGraphGetNodes_v10000)(graph, NULL, &nodes) == CUDA_SUCCESS)
            tell(" %zu nodes", nodes);
        if (kept < 0) {
            CALL(cuGraphDestroy, cuGraphDestroy_v10000)(graph);
            continue;
        }
        tell(" g%d", kept);
        world.graph[kept] = graph;
        world.graph_uses[kept] = world.capture_uses;
    }
}

static void capture_info(void)
{
    const CUstream stream = pick_stream();
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;

    if (answer(CALL(cuStreamIsCapturing, cuStreamIsCapturing_v10000)(stream, &status)) ==
        CUDA_SUCCESS)
        tell(" %d", (int)status);
}

static void exchange_mode(void)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)pick(3);

    tell(" %d", (int)mode);
    if (answer(CALL(cuThreadExchangeStreamCaptureMode,
                    cuThreadExchangeStreamCaptureMode_v10010)(&mode)) == CUDA_SUCCESS)
        tell(" was %d", (int)mode);
}

static void create(void)
{
    const int slot = free_graph();

    if (slot < 0)
        return;
    tell(" g%d", slot);
    if (answer(CALL(cuGraphCreate, cuGraphCreate_v10000)(&world.graph[slot], one_in(20))) !=
        CUDA_SUCCESS)
        world.graph[slot] = NULL;
    memset(&world.graph_uses[slot], 0, sizeof world.graph_uses[slot]);
}

static void destroy(void)
{
    const unsigned slot = pick(GRAPHS);

    tell(" g%u", slot);
    if (world.graph[slot] == NULL)
        return;
    answer(CALL(cuGraphDestroy, cuGraphDestroy_v10000)(world.graph[slot]));
    world.graph[slot] = NULL;
}

static void add_node(void)
{
    const unsigned slot = pick(GRAPHS), kind = pick(5);
    const struct memory *memory = pick_memory();
    CUgraph graph = world.graph[slot];
    CUgraphNode node = NULL, before[NODES];
    CUresult result = CUDA_SUCCESS;
    CUcontext current = NULL;
    size_t count;

    tell(" g%u kind %u", slot, kind);
    if (graph == NULL || memory == NULL || memory->bytes < 64 ||
        !nodes_of(graph, before, &count))
        return;
    if (kind == 0) {
        CUDA_MEMSET_NODE_PARAMS fill = {
            .dst = memory->start, .value = 9, .elementSize = 1, .width = 64, .height = 1};

        if (one_in(15))
            fill.elementSize = 3;
        result = CALL(cuGraphAddMemsetNode, cuGraphAddMemsetNode_v10000)(
            &node, graph, before, count, &fill, world.primary);
    } else if (kind == 1) {
        unsigned words = 4, value = 5;
        CUdeviceptr at = memory->start;
        void *params[] = {&at, &words, &value};
        CUDA_KERNEL_NODE_PARAMS_v1 launch = {.func = world.add,
                                             .gridDimX = 1,
                                             .gridDimY = 1,
                                             .gridDimZ = 1,
                                             .blockDimX = 1,
                                             .blockDimY = 1,
                                             .blockDimZ = 1,
                                             .kernelParams = params};

        if (CALL(cuCtxGetCurrent, cuCtxGetCurrent_v4000)(&current) != CUDA_SUCCESS ||
            current == NULL)
            return; /* the driver crashes */
        result = CALL(cuGraphAddKernelNode, cuGraphAddKernelNode_v10000)(&node, graph, before,
                                                                         count, &launch);
    } else if (kind == 2) {
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = memory->start,
                              .dstMemoryType = CU_MEMORYTYPE_HOST,
                              .dstHost = host_target,
                              .WidthInBytes = 64,
                              .Height = 1,
                              .Depth = 1};

        result = CALL(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode_v10000)(
            &node, graph, before, count, &copy, world.primary);
    } else if (kind == 3) {
        result =
            CALL(cuGraphAddEmptyNode, cuGraphAddEmptyNode_v10000)(&node, graph, before, count);
    } else {
        CUgraphNodeParams params = {.type = one_in(4) ? (CUgraphNodeType)77
                                                      : CU_GRAPH_NODE_TYPE_MEMSET};

        params.memset.dst = memory->start;
        params.memset.value = 3;
        params.memset.elementSize = 1;
        params.memset.width = 32;
        params.memset.height = 1;
        params.memset.ctx = one_in(2) ? world.primary : NULL;
        result =
            CALL(cuGraphAddNode, cuGraphAddNode_v12020)(&node, graph, before, count, &params);
    }
    if (answer(result) == CUDA_SUCCESS)
        note_graph_use(&world.graph_uses[slot], memory);
}

static void instantiate(void)
{
    const unsigned from = pick(GRAPHS), to = pick(EXECS);

    tell(" x%u of g%u", to, from);
    if (world.graph[from] == NULL || world.exec[to] != NULL ||
        !are_there(&world.graph_uses[from]))
        return;
    if (answer(CALL(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags_v11040)(
            &world.exec[to], world.graph[from], one_in(10) ? 1U << pick(8) : 0)) !=
        CUDA_SUCCESS)
        world.exec[to] = NULL;
    else
        world.exec_uses[to] = world.graph_uses[from];
}

static void update(void)
{
    const unsigned from = pick(GRAPHS), to = pick(EXECS);
    CUgraphExecUpdateResultInfo info = {0};

    tell(" x%u by g%u", to, from);
    if (world.graph[from] == NULL || world.exec[to] == NULL ||
        !are_there(&world.graph_uses[from]) || !are_there(&world.exec_uses[to]))
        return;
    if (answer(CALL(cuGraphExecUpdate_v2, cuGraphExecUpdate_v12000)(
            world.exec[to], world.graph[from], &info)) == CUDA_SUCCESS)
        world.exec_uses[to] = world.graph_uses[from];
    else
        tell(" result %d", (int)info.result);
}

static void launch(void)
{
    const unsigned slot = pick(EXECS);
    const CUstream stream = pick_stream();

    tell(" x%u", slot);
    if (world.exec[slot] == NULL || !are_there(&world.exec_uses[slot]) || world.capturing != 0)
        return;
    answer(one_in(5) ? CALL(cuGraphUpload, cuGraphUpload_v11010)(world.exec[slot], stream)
                     : CALL(cuGraphLaunch, cuGraphLaunch_v10000)(world.exec[slot], stream));
}

static void exec_destroy(void)
{
    const unsigned slot = pick(EXECS);

    tell(" x%u", slot);
    if (world.exec[slot] == NULL)
        return;
    answer(CALL(cuGraphExecDestroy, cuGraphExecDestroy_v10000)(world.exec[slot]));
    world.exec[slot] = NULL;
}

static void clone(void)
{
    const unsigned from = pick(GRAPHS);
    const int to = free_graph();
    size_t nodes = 0;

    tell(" g%u", from);
    if (world.graph[from] == NULL || to < 0)
        return;
    if (answer(CALL(cuGraphClone, cuGraphClone_v10000)(&world.graph[to], world.graph[from])) !=
        CUDA_SUCCESS) {
        world.graph[to] = NULL;
        return;
    }
    world.graph_uses[to] = world.graph_uses[from];
    if (CALL(cuGraphGetNodes, cuGraphGetNodes_v10000)(world.graph[to], NULL, &nodes) ==
        CUDA_SUCCESS)
        tell(" g%d %zu nodes", to, nodes);
}

static void graph_memory(void)
{
    CUdeviceptr at = 0;
    const CUstream stream = pick_stream();

    if (world.capturing == 0) {
        answer(CALL(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim_v11040)(0));
        return;
    }
    tell(" %zu", (size_t)(4 * KIB));
    if (answer(CALL(cuMemAllocAsync, cuMemAllocAsync_v11020)(&at, 4 * KIB, stream)) ==
        CUDA_SUCCESS)
        answer(CALL(cuMemFreeAsync, cuMemFreeAsync_v11020)(at, stream));
}

const struct operation graph_operations[] = {
    {"cuStreamBeginCapture", 3, begin},
    {"cuStreamEndCapture", 5, end},
    {"cuStreamIsCapturing", 2, capture_info},
    {"cuThreadExchangeStreamCaptureMode", 1, exchange_mode},
    {"cuGraphCreate", 1, create},
    {"cuGraphDestroy", 2, destroy},
    {"cuGraphAddNode", 4, add_node},
    {"cuGraphInstantiate", 3, instantiate},
    {"cuGraphExecUpdate", 2, update},
    {"cuGraphLaunch", 4, launch},
    {"cuGraphExecDestroy", 2, exec_destroy},
    {"cuGraphClone", 1, clone},
    {"memory of a graph", 2, graph_memory},
    {0},
};
