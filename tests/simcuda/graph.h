/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h: captures (capture.c), graphs, their nodes and what runs them (graph.c, graph_node.c,
 * graph_exec.c, graph_memory.c).
 */
#pragma once

#include "tests/simcuda/sim.h"

struct sim_node {
    struct sim_graph *graph;
    struct sim_op *op; /* NULL: empty node */
    CUgraphNodeType type;
    struct sim_nodes needs;
    struct sim_node *clone_of;
    struct sim_graph *child;
    uint64_t mark; /* scratch of walks, by walk number */
};
struct sim_graph {
    struct sim_nodes nodes;
    bool captured_into;
};
struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    struct sim_graph *graph;
    struct sim_stream *origin;
    const void *thread;
    CUstreamCaptureMode mode;
    bool invalid, own_graph;
};

/* An unsafe call by this thread is not allowed now; the captures that forbid it are
 * invalidated. */
bool sim_capture_forbids(void);
void sim_capture_invalidate(struct sim_capture *capture);
CUresult sim_capture_add(struct sim_stream *stream, struct sim_op *op);
CUresult sim_capture_wait_event(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_record_event(struct sim_stream *stream, struct sim_event *event);
struct sim_capture *sim_capture_by_id(uint64_t id);
/* An operation is about to go to stream: is that legal beside the captures under way? */
CUresult sim_capture_check_submit(struct sim_stream *stream);
CUresult sim_capture_check_sync(struct sim_context *context);

int sim_nodes_add(struct sim_nodes *nodes, struct sim_node *node); /* once; 0 or -ENOMEM */
void sim_nodes_clear(struct sim_nodes *nodes);
struct sim_graph *sim_graph_new(void);
struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_op *op, CUgraphNodeType type,
                               const struct sim_nodes *needs);
void sim_graph_free(struct sim_graph *graph);
CUresult sim_graph_add_child(struct sim_node *node, CUgraph child); /* a clone of child */
/* What is allocated and freed in stream order while the stream is captured (graph_memory.c). */
CUresult sim_graph_memory_alloc(struct sim_stream *stream, size_t size, CUdeviceptr *out);
CUresult sim_graph_memory_free(struct sim_stream *stream, CUdeviceptr address);
/* A launch of these is about to be queued: there is memory behind every address, or no change.
 */
CUresult sim_graph_memory_ready(struct sim_op *const *op, size_t count);
CUresult sim_exec_replace(CUgraphExec exec, CUgraphNode node, struct sim_op *op);

/* What a handle stands for; NULL: nothing that lives. */
static inline struct sim_graph *sim_graph_of(CUgraph handle)
{
    return sim_handle_is(handle, SIM_KIND_GRAPH) ? (struct sim_graph *)handle : NULL;
}

static inline struct sim_node *sim_node_of(CUgraphNode handle)
{
    return sim_handle_is(handle, SIM_KIND_NODE) ? (struct sim_node *)handle : NULL;
}
