/* SPDX-License-Identifier: Apache-2.0
 *
 * shut.c: captures while the program has been told to stop and has shut its own gate.
 *
 * The test pauses the program at each "ready" and goes on with a line on standard input. A stop
 * waits for the end of a capture, so whatever a capture is made of must go through, or it
 * would never come.
 */
#include "tests/runtime/check.h"

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

#define MORE (40 * MIB)

static CUstream stream, second;
static CUevent event, joined;
static CUdeviceptr block, more;

static void pause_here(void)
{
    printf("ready\n");
    fflush(stdout);
    CHECK(getchar() != EOF);
}

/* To the other stream and back, which is not captured until it waits. */
static void fork_and_join(void)
{
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuMemsetD8Async(block, 1, MIB, second));
    OK(cuEventRecord(joined, second));
    OK(cuMemsetD8Async(block + MIB, 2, MIB, stream));
    OK(cuStreamWaitEvent(stream, joined, 0));
}

/* a graph that is built and made ready meanwhile */
static CUgraphExec build_graph(CUcontext context)
{
    const CUDA_MEMSET_NODE_PARAMS params = {
        .dst = block + 2 * MIB, .value = 3, .elementSize = 1, .width = MIB, .height = 1};
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    return exec;
}

int main(void)
{
    const CUcontext context = begin_context();
    CUgraphExec captured, built;
    CUgraph graph;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&block, 3 * MIB));
    OK(cuMemsetD8(block, 9, 3 * MIB));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    pause_here();
    OK(cuMemAlloc(&more, MORE)); /* more than it may have now: this shuts the gate */
    fork_and_join();
    built = build_graph(context);
    OK(cuStreamEndCapture(stream, &graph));
    printf("captured\n");
    pause_here();
    OK(cuGraphInstantiate(&captured, graph, 0));
    OK(cuGraphLaunch(captured, stream));
    OK(cuGraphLaunch(built, stream));
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++)
        expect_bytes(block + (CUdeviceptr)i * MIB, MIB, i + 1);
    OK(cuMemsetD8(more, 5, MORE));
    expect_bytes(more, MORE, 5);
    printf("ok\n");
    return 0;
}
