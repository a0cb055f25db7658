/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: owns graphs and their nodes. Invariant: a node is needed only by nodes of its own graph.
 * Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

/* -- graphs -- */

struct sim_graph *sim_graph_new(void)
{
    struct sim_graph *graph = calloc(1, sizeof *graph);

    if (graph && sim_handle_add(graph, SIM_KIND_GRAPH)) {
        free(graph);
        return NULL;
    }
    return graph;
}

static void node_free(struct sim_node *node)
{
    sim_handle_remove(node);
    sim_op_put(node->op);
    if (node->child)
        sim_graph_free(node->child);
    sim_nodes_clear(&node->needs);
    free(node);
}

void sim_graph_free(struct sim_graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        node_free(graph->nodes.item[i]);
    sim_nodes_clear(&graph->nodes);
    sim_handle_remove(graph);
    free(graph);
}

/* Consumes op. NULL when out of memory. */
struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_op *op, CUgraphNodeType type,
                               const struct sim_nodes *needs)
{
    struct sim_node *node = calloc(1, sizeof *node);
    int rc = node ? sim_handle_add(node, SIM_KIND_NODE) : -1;

    if (!node) {
        sim_op_put(op);
        return NULL;
    }
    node->graph = graph;
    node->op = op;
    node->type = type;
    for (size_t i = 0; needs && i < needs->count && !rc; i++)
        rc = sim_nodes_add(&node->needs, needs->item[i]);
    rc = rc ? rc : sim_nodes_add(&graph->nodes, node);
    if (!rc)
        return node;
    node_free(node);
    return NULL;
}

/* Clones node by node; a node's clone is found by its place in the list. */
static struct sim_graph *graph_clone(const struct sim_graph *graph)
{
    struct sim_graph *clone = sim_graph_new();
    int rc = clone ? 0 : -1;

    for (size_t i = 0; i < graph->nodes.count && !rc; i++) {
        struct sim_node *node = graph->nodes.item[i];
        if (node->op)
            node->op->refs++;
        struct sim_node *copy = sim_graph_add(clone, node->op, node->type, NULL);
        rc = copy ? 0 : -1;
        if (copy) {
            copy->clone_of = node;
            copy->child = node->child ? graph_clone(node->child) : NULL;
            rc = node->child && !copy->child ? -1 : 0;
        }
    }
    for (size_t i = 0; i < graph->nodes.count && !rc; i++)
        for (size_t k = 0; k < graph->nodes.item[i]->needs.count && !rc; k++)
            for (size_t n = 0; n < graph->nodes.count && !rc; n++)
                if (graph->nodes.item[n] == graph->nodes.item[i]->needs.item[k])
                    rc = sim_nodes_add(&clone->nodes.item[i]->needs, clone->nodes.item[n]);
    if (rc && clone)
        sim_graph_free(clone);
    return rc ? NULL : clone;
}

static CUresult graph_create(CUgraph *out, unsigned flags)
{
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraph)sim_graph_new();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult graph_destroy(CUgraph handle)
{
    struct sim_graph *graph = sim_graph_of(handle);

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct sim_capture *capture = sim.captures; capture; capture = capture->next)
        if (capture->graph == graph)
            return CUDA_ERROR_INVALID_VALUE;
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

static CUresult clone_out(CUgraph *out, CUgraph handle)
{
    const struct sim_graph *graph = sim_graph_of(handle);

    if (!out || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraph)graph_clone(graph);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult find_in_clone(CUgraphNode *out, CUgraphNode original, CUgraph handle)
{
    const struct sim_graph *graph = sim_graph_of(handle);

    if (!out || !graph || !sim_node_of(original))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.item[i]->clone_of == (struct sim_node *)original) {
            *out = (CUgraphNode)graph->nodes.item[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* -- nodes that carry graphs -- */

CUresult sim_graph_add_child(struct sim_node *node, CUgraph child)
{
    const struct sim_graph *graph = sim_graph_of(child);

    node->child = graph ? graph_clone(graph) : NULL;
    return node->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuGraphCreate, (CUgraph * out, unsigned int flags), SIM_INIT, graph_create(out, flags))
SIM_API(cuGraphDestroy, (CUgraph graph), SIM_INIT, graph_destroy(graph))
SIM_API(cuGraphClone, (CUgraph * out, CUgraph graph), SIM_INIT, clone_out(out, graph))
SIM_API(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode original, CUgraph clone),
        SIM_INIT, find_in_clone(out, original, clone))
