/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil_graph.c: captured work on a block: several kernels, a fork to a second stream,
 * memory of the graph's own, calls of the host.
 *
 * Captures use streams of their own, non-blocking ones, since default streams are in use
 * meanwhile. Invariant: an executable graph is dropped before its block goes.
 */
#include <time.h>

#include "tests/runtime/turmoil.h"

static void CUDA_CB pause_host(void *unused)
{
    const struct timespec pause = {0, 200000};

    (void)unused;
    nanosleep(&pause, NULL);
}

void turmoil_graphs_drop(struct turmoil_thread *thread, const struct turmoil_block *block)
{
    for (unsigned i = 0; i < TURMOIL_REPLAYS; i++) {
        struct turmoil_replay *replay = &thread->replays[i];

        if (replay->exec == NULL || (block != NULL && replay->block != block))
            continue;
        TURMOIL_MUST(thread, cuGraphExecDestroy(replay->exec));
        replay->exec = NULL;
    }
}

/* Memory that only this graph has, written and checked in a branch of its own. */
static void capture_memory(struct turmoil_thread *thread, CUstream stream)
{
    struct turmoil_block own = {.bytes = (size_t)4096 << turmoil_below(thread, 8),
                                .base = turmoil_new_base(thread),
                                .step = 1};

    TURMOIL_MUST(thread, cuMemAllocAsync(&own.address, own.bytes, stream));
    turmoil_fill(thread, own.address, own.bytes, own.base, turmoil_kernel_ns(thread), stream);
    turmoil_check(thread, &own, 0, stream);
    TURMOIL_MUST(thread, cuMemFreeAsync(own.address, stream));
}

/* kind: 1: a second branch with memory of its own, 2: a call of the host. */
static CUgraph capture_graph(struct turmoil_thread *thread, const struct turmoil_replay *replay,
                             unsigned kind)
{
    const CUstreamCaptureMode mode = (CUstreamCaptureMode)turmoil_below(thread, 3);
    const CUstream stream = thread->capture[0], second = thread->capture[1];
    CUgraph graph = NULL;

    turmoil_note(thread, "capture on %#llx, mode %d",
                 (unsigned long long)replay->block->address, (int)mode);
    TURMOIL_MUST(thread, cuStreamBeginCapture(stream, mode));
    if ((kind & 1) != 0) {
        turmoil_behind(thread, stream, second);
        capture_memory(thread, second);
    }
    for (unsigned i = 0; i < replay->bumps; i++)
        turmoil_bump(thread, replay->block, turmoil_kernel_ns(thread), stream);
    if ((kind & 2) != 0)
        TURMOIL_MUST(thread, cuLaunchHostFunc(stream, pause_host, NULL));
    if ((kind & 1) != 0)
        turmoil_behind(thread, second, stream);
    TURMOIL_MUST(thread, cuStreamEndCapture(stream, &graph));
    return graph;
}

void turmoil_capture(struct turmoil_thread *thread)
{
    struct turmoil_block *block = turmoil_pick(thread);
    struct turmoil_replay *replay = &thread->replays[turmoil_below(thread, TURMOIL_REPLAYS)];
    CUgraph graph;

    if (block == NULL || !thread->shape->graphs)
        return;
    if (replay->exec != NULL)
        TURMOIL_MUST(thread, cuGraphExecDestroy(replay->exec));
    *replay = (struct turmoil_replay){.block = block,
                                      .bumps = 1 + (unsigned)turmoil_below(thread, 3)};
    graph = capture_graph(thread, replay, (unsigned)turmoil_below(thread, 4));
    TURMOIL_MUST(thread, cuGraphInstantiate(&replay->exec, graph, 0));
    TURMOIL_MUST(thread, cuGraphDestroy(graph));
    turmoil_replay(thread);
}

/* Launches of one graph follow each other on any streams. */
void turmoil_replay(struct turmoil_thread *thread)
{
    struct turmoil_replay *replay = &thread->replays[turmoil_below(thread, TURMOIL_REPLAYS)];

    if (replay->exec == NULL)
        return;
    for (uint64_t left = 1 + turmoil_below(thread, 3); left != 0; left--) {
        turmoil_bring(thread, replay->block, turmoil_stream(thread));
        turmoil_note(thread, "replay on %#llx", (unsigned long long)replay->block->address);
        TURMOIL_MUST(thread, cuGraphLaunch(replay->exec, replay->block->stream));
        replay->block->base += replay->bumps;
    }
    turmoil_check(thread, replay->block, 0, replay->block->stream);
}

/* The same work by a graph that was captured anew, also while the old launches are under way. */
void turmoil_update(struct turmoil_thread *thread)
{
    struct turmoil_replay *replay = &thread->replays[turmoil_below(thread, TURMOIL_REPLAYS)];
    CUgraphExecUpdateResultInfo info;
    struct turmoil_replay plain;
    CUgraph graph;

    if (replay->exec == NULL)
        return;
    plain = (struct turmoil_replay){.block = replay->block, .bumps = replay->bumps};
    graph = capture_graph(thread, &plain, 0);
    if (cuGraphExecUpdate(replay->exec, graph, &info) != CUDA_SUCCESS) { /* other shapes */
        TURMOIL_MUST(thread, cuGraphExecDestroy(replay->exec));
        TURMOIL_MUST(thread, cuGraphInstantiate(&replay->exec, graph, 0));
    }
    TURMOIL_MUST(thread, cuGraphDestroy(graph));
}
