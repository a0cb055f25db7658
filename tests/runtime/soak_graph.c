/* SPDX-License-Identifier: Apache-2.0
 *
 * soak_graph.c: a graph of each thread for soak.c: captured once, replayed at any later time, with
 * swaps between.
 */
#include <string.h>

#include "tests/runtime/soak.h"

#define GRAPH_MEMORY ((size_t)2 << 20) /* of a graph, beside what a program may have */

void soak_graph_drop(struct soak_thread *thread)
{
    if (thread->graph.exec == NULL)
        return;
    soak_wait_dry(thread, thread->stream);
    soak_ok(thread, cuGraphExecDestroy(thread->graph.exec), "cuGraphExecDestroy");
    thread->graph.exec = NULL;
}

static bool record_set(struct soak_thread *thread, CUdeviceptr address)
{
    return soak_ok(
        thread,
        cuMemsetD8Async(address, thread->graph.value, thread->graph.bytes, thread->stream),
        "cuMemsetD8Async while capturing");
}

/* memory of the graph: allocated and freed by nodes of it */
static bool record_through_own_memory(struct soak_thread *thread,
                                      const struct soak_block *block)
{
    CUdeviceptr inside;

    if (thread->graph.bytes > GRAPH_MEMORY)
        thread->graph.bytes = GRAPH_MEMORY;
    return soak_ok(thread, cuMemAllocAsync(&inside, thread->graph.bytes, thread->stream),
                   "cuMemAllocAsync while capturing") &&
           record_set(thread, inside) &&
           soak_ok(
               thread,
               cuMemcpyDtoDAsync(block->device, inside, thread->graph.bytes, thread->stream),
               "cuMemcpyDtoDAsync while capturing") &&
           soak_ok(thread, cuMemFreeAsync(inside, thread->stream),
                   "cuMemFreeAsync while capturing");
}

static void capture_graph(struct soak_thread *thread)
{
    struct soak_block *block = soak_pick(thread);
    CUgraph graph = NULL;

    if (block == NULL ||
        !soak_ok(thread,
                 cuStreamBeginCapture(thread->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                 "cuStreamBeginCapture"))
        return;
    thread->graph = (struct soak_graph){.block = (unsigned)(block - thread->blocks),
                                        .bytes = 1 + soak_below(thread, block->bytes),
                                        .value = (uint8_t)soak_below(thread, 256)};
    const bool recorded = soak_below(thread, 2) == 0 && thread->config->threads <= 2
                              ? record_through_own_memory(thread, block)
                              : record_set(thread, block->device);
    if (!soak_ok(thread, cuStreamEndCapture(thread->stream, &graph), "cuStreamEndCapture") ||
        graph == NULL)
        return;
    if (recorded && !soak_ok(thread, cuGraphInstantiate(&thread->graph.exec, graph, 0),
                             "cuGraphInstantiate"))
        thread->graph.exec = NULL;
    soak_ok(thread, cuGraphDestroy(graph), "cuGraphDestroy");
}

void soak_graph_step(struct soak_thread *thread)
{
    struct soak_graph *graph = &thread->graph;

    if (graph->exec == NULL) {
        capture_graph(thread);
    } else if (soak_below(thread, 10) == 0) {
        soak_graph_drop(thread);
    } else if (soak_ok(thread, cuGraphLaunch(graph->exec, thread->stream), "cuGraphLaunch")) {
        memset(thread->blocks[graph->block].shadow, graph->value, graph->bytes);
    }
}
