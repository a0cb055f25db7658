/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: owns graphs and their nodes, and graphs made ready to run.
 *
 * An executable graph is the list of the nodes' operations in an order that respects the
 * dependencies; a launch runs them one after another as one operation of the stream (an order
 * that a card may choose too). Invariants: a node is needed only by nodes of its own graph; an
 * executable graph holds its own references to the operations, so that the graph may change or
 * go. Threads: any, under sim.lock; launches run on workers.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/sim.h"

struct exec_list { /* shared by the executable graph and its launches */
    unsigned refs;
    size_t count;
    struct sim_op **op;
    struct sim_node **node; /* identity only: which node of the graph the operation is from */
};

struct sim_exec {
    struct exec_list *list;
    unsigned long long flags;
};

struct exec_op {
    struct sim_op op;
    struct exec_list *list;
};

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

static struct sim_graph *graph_of(CUgraph handle)
{
    return sim_handle_is(handle, SIM_KIND_GRAPH) ? (struct sim_graph *)handle : NULL;
}

static struct sim_node *node_of(CUgraphNode handle)
{
    return sim_handle_is(handle, SIM_KIND_NODE) ? (struct sim_node *)handle : NULL;
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

/* -- executable graphs -- */

static void list_put(struct exec_list *list)
{
    if (!list || --list->refs > 0)
        return;
    for (size_t i = 0; i < list->count; i++)
        sim_op_put(list->op[i]);
    free(list->op);
    free(list->node);
    free(list);
}

static CUresult list_append(struct exec_list *list, struct sim_node *node)
{
    struct sim_op **op = realloc(list->op, (list->count + 1) * sizeof(struct sim_op *));
    list->op = op ? op : list->op;
    struct sim_node **from = realloc(list->node, (list->count + 1) * sizeof(struct sim_node *));
    list->node = from ? from : list->node;
    if (!op || !from)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->op->refs++;
    list->op[list->count] = node->op;
    list->node[list->count++] = node;
    return CUDA_SUCCESS;
}

static bool needs_done(const struct sim_node *node, uint64_t mark)
{
    for (size_t i = 0; i < node->needs.count; i++)
        if (node->needs.item[i]->mark != mark)
            return false;
    return true;
}

/* Appends in dependency order; CUDA_ERROR_INVALID_VALUE for a cycle. */
static CUresult list_fill(struct exec_list *list, const struct sim_graph *graph)
{
    const uint64_t mark = sim.next_id++;
    size_t placed = 0, before = SIZE_MAX;

    while (placed < graph->nodes.count && placed != before) {
        before = placed;
        for (size_t i = 0; i < graph->nodes.count; i++) {
            struct sim_node *node = graph->nodes.item[i];
            if (node->mark == mark || !needs_done(node, mark))
                continue;
            CUresult result = CUDA_SUCCESS;
            if (node->child)
                result = list_fill(list, node->child);
            else if (node->op)
                result = list_append(list, node);
            if (result)
                return result;
            node->mark = mark;
            placed++;
        }
    }
    return placed == graph->nodes.count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult list_new(const struct sim_graph *graph, struct exec_list **out)
{
    struct exec_list *list = calloc(1, sizeof *list);

    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list->refs = 1;
    const CUresult result = list_fill(list, graph);
    if (result)
        list_put(list);
    else
        *out = list;
    return result;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    const struct sim_graph *graph = graph_of(handle);
    struct sim_exec *exec = NULL;

    if (!out || !graph || (flags & ~15ull))
        return CUDA_ERROR_INVALID_VALUE;
    exec = calloc(1, sizeof *exec);
    if (!exec || sim_handle_add(exec, SIM_KIND_EXEC)) {
        free(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec->flags = flags;
    const CUresult result = list_new(graph, &exec->list);
    if (result) {
        sim_handle_remove(exec);
        free(exec);
        return result;
    }
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult instantiate_log(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log,
                                size_t log_size)
{
    if (failed)
        *failed = NULL;
    if (log && log_size)
        *log = '\0';
    return instantiate(out, graph, 0);
}

static CUresult instantiate_parameters(CUgraphExec *out, CUgraph graph,
                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    if (!parameters)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = instantiate(out, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out =
        result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return result;
}

static struct sim_exec *exec_of(CUgraphExec handle)
{
    return sim_handle_is(handle, SIM_KIND_EXEC) ? (struct sim_exec *)handle : NULL;
}

static CUresult exec_run(const struct sim_op *op, struct sim_context *context)
{
    const struct exec_list *list = ((const struct exec_op *)op)->list;
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < list->count && !result; i++)
        if (list->op[i]->run)
            result = sim_guarded_run(list->op[i], context);
    sim_count(&sim_stats.graph_launches, 1);
    return result;
}

static void exec_release(struct sim_op *op)
{
    list_put(((struct exec_op *)op)->list);
}

static CUresult exec_launch(struct sim_call *call, CUgraphExec handle,
                            struct sim_stream *stream)
{
    const struct sim_exec *exec = exec_of(handle);

    if (!stream)
        return call->result;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_graph_memory_ready(exec->list->op, exec->list->count);
    if (result)
        return result;
    struct exec_op *op =
        (struct exec_op *)sim_op_new(sizeof *op, "graph", CU_GRAPH_NODE_TYPE_GRAPH, exec_run);
    if (op) {
        op->op.release = exec_release;
        op->list = exec->list;
        op->list->refs++;
        sim_log("graph launch of %zu operations on stream %llu", exec->list->count,
                (unsigned long long)stream->id);
    }
    return sim_submit(call, stream, op ? &op->op : NULL);
}

static CUresult exec_destroy(CUgraphExec handle)
{
    struct sim_exec *exec = exec_of(handle);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_remove(exec);
    list_put(exec->list);
    free(exec);
    return CUDA_SUCCESS;
}

/* The graph must have the shape it had: the same kinds of operation in the same order. */
static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle,
                            CUgraphExecUpdateResult *why)
{
    struct sim_exec *exec = exec_of(handle);
    const struct sim_graph *graph = graph_of(graph_handle);
    struct exec_list *list = NULL;

    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = list_new(graph, &list);
    if (result)
        return result;
    bool same = list->count == exec->list->count;
    for (size_t i = 0; same && i < list->count; i++)
        same = list->op[i]->type == exec->list->op[i]->type;
    if (why)
        *why =
            same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    list_put(same ? exec->list : list);
    if (same)
        exec->list = list;
    return same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

static CUresult exec_update_v2(CUgraphExec exec, CUgraph graph,
                               CUgraphExecUpdateResultInfo *info)
{
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    return exec_update(exec, graph, &info->result);
}

/* Puts op (consumed) in the place of a node's operation, for launches from now on. */
CUresult sim_exec_replace(CUgraphExec handle, CUgraphNode node_handle, struct sim_op *op)
{
    struct sim_exec *exec = exec_of(handle);
    struct exec_list *list = calloc(1, sizeof *list);
    size_t at = 0;

    while (exec && at < exec->list->count &&
           exec->list->node[at] != (struct sim_node *)node_handle)
        at++;
    if (!exec || !list || at == exec->list->count || exec->list->op[at]->type != op->type) {
        free(list);
        sim_op_put(op);
        return list ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    const size_t count = exec->list->count;
    list->refs = 1;
    list->op = calloc(count, sizeof(struct sim_op *));
    list->node = calloc(count, sizeof(struct sim_node *));
    if (!list->op || !list->node) {
        list_put(list);
        sim_op_put(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        list->op[i] = i == at ? op : exec->list->op[i];
        list->op[i]->refs += i != at;
        list->node[i] = exec->list->node[i];
    }
    list->count = count;
    list_put(exec->list); /* launches under way keep the old one */
    exec->list = list;
    return CUDA_SUCCESS;
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
    struct sim_graph *graph = graph_of(handle);

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
    const struct sim_graph *graph = graph_of(handle);

    if (!out || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraph)graph_clone(graph);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult find_in_clone(CUgraphNode *out, CUgraphNode original, CUgraph handle)
{
    const struct sim_graph *graph = graph_of(handle);

    if (!out || !graph || !node_of(original))
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
    const struct sim_graph *graph = graph_of(child);

    node->child = graph ? graph_clone(graph) : NULL;
    return node->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

#define STREAM sim_stream(&call, stream, per_thread)

SIM_API(cuGraphCreate, (CUgraph * out, unsigned int flags), SIM_INIT, graph_create(out, flags))
SIM_API(cuGraphDestroy, (CUgraph graph), SIM_INIT, graph_destroy(graph))
SIM_API(cuGraphClone, (CUgraph * out, CUgraph graph), SIM_INIT, clone_out(out, graph))
SIM_API(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode original, CUgraph clone),
        SIM_INIT, find_in_clone(out, original, clone))
SIM_API(cuGraphInstantiate,
        (CUgraphExec * out, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        SIM_CTX, instantiate_log(out, graph, failed, log, size))
SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * out, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        SIM_CTX, instantiate_log(out, graph, failed, log, size))
SIM_API(cuGraphInstantiateWithFlags,
        (CUgraphExec * out, CUgraph graph, unsigned long long flags), SIM_CTX,
        instantiate(out, graph, flags))
SIM_API(cuGraphInstantiateWithParams,
        (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), SIM_CTX,
        instantiate_parameters(out, graph, parameters))
SIM_API(cuGraphInstantiateWithParams_ptsz,
        (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), SIM_CTX,
        instantiate_parameters(out, graph, parameters))
SIM_API(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), SIM_INIT,
        exec_of(exec) && flags ? (*flags = exec_of(exec)->flags, CUDA_SUCCESS)
                               : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuGraphExecDestroy, (CUgraphExec exec), SIM_INIT, exec_destroy(exec))
SIM_API(cuGraphExecUpdate,
        (CUgraphExec exec, CUgraph graph, CUgraphNode *failed, CUgraphExecUpdateResult *why),
        SIM_CTX, (failed ? *failed = NULL : NULL, exec_update(exec, graph, why)))
SIM_API(cuGraphExecUpdate_v2,
        (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), SIM_CTX,
        exec_update_v2(exec, graph, info))
SIM_STREAM_API(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), SIM_CTX,
               exec_launch(&call, exec, STREAM))
SIM_STREAM_API(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream), SIM_CTX,
               exec_of(exec) ? (STREAM ? CUDA_SUCCESS : call.result) : CUDA_ERROR_INVALID_VALUE)
