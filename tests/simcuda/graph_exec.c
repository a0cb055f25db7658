/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_exec.c: owns graphs that were made ready to run.
 *
 * An executable graph is the list of the nodes' operations in an order that respects the
 * dependencies; a launch runs them one after another as one operation of the stream (an order
 * that a card may choose too), behind all earlier launches of that graph (driver API,
 * cuGraphLaunch). Invariant: an executable graph holds its own references to the
 * operations, so that the graph may change or go. Threads: any, under sim.lock; launches run on
 * workers.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

struct exec_list { /* shared by the executable graph and its launches */
    unsigned refs;
    size_t count;
    struct sim_op **op;
    struct sim_node **node; /* identity only: which node of the graph the operation is from */
};

struct sim_exec {
    struct exec_list *list;
    unsigned long long flags;
    struct sim_fence *last; /* of the newest launch, or NULL */
};

struct exec_op {
    struct sim_op op;
    struct exec_list *list;
};

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

static struct sim_node *refused_fill; /* by the last list_new(); under sim.lock */

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
            else if (node->op) {
                if (node->op->type == CU_GRAPH_NODE_TYPE_MEMSET)
                    result = sim_memset_check(node->op);
                if (result)
                    refused_fill = node;
                result = result ? result : list_append(list, node);
            }
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
    refused_fill = NULL;
    const CUresult result = list_fill(list, graph);
    if (result)
        list_put(list);
    else
        *out = list;
    return result;
}

static CUresult instantiate_graph(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    const struct sim_graph *graph = sim_graph_of(handle);
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
    return instantiate_graph(out, graph, 0);
}

static CUresult instantiate_parameters(CUgraphExec *out, CUgraph graph,
                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    if (!parameters)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = instantiate_graph(out, graph, parameters->flags);
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
    struct sim_exec *exec = exec_of(handle);

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
    if (stream->capture)
        return sim_submit(call, stream, op ? &op->op : NULL);
    struct sim_fence *fence = NULL;
    const CUresult submitted =
        sim_submit_after(call, stream, op ? &op->op : NULL, exec->last, &fence);
    if (!submitted) {
        sim_fence_put(exec->last);
        exec->last = fence;
    }
    return submitted;
}

static CUresult exec_destroy(CUgraphExec handle)
{
    struct sim_exec *exec = exec_of(handle);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    sim_handle_remove(exec);
    list_put(exec->list);
    sim_fence_put(exec->last);
    free(exec);
    return CUDA_SUCCESS;
}

/* The graph must have the shape it had: the same kinds of operation in the same order. */
static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle,
                            CUgraphExecUpdateResult *why)
{
    struct sim_exec *exec = exec_of(handle);
    const struct sim_graph *graph = sim_graph_of(graph_handle);
    struct exec_list *list = NULL;

    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = list_new(graph, &list);
    if (why && result)
        *why = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (result)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
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
    const CUresult result = exec_update(exec, graph, &info->result);
    if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE &&
        info->result == CU_GRAPH_EXEC_UPDATE_ERROR)
        info->errorNode = (CUgraphNode)refused_fill;
    return result;
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

#define STREAM sim_stream(&call, stream, per_thread)

SIM_API(cuGraphInstantiate,
        (CUgraphExec * out, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        SIM_CTX | SIM_UNSAFE, instantiate_log(out, graph, failed, log, size))
SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * out, CUgraph graph, CUgraphNode *failed, char *log, size_t size),
        SIM_CTX | SIM_UNSAFE, instantiate_log(out, graph, failed, log, size))
SIM_API(cuGraphInstantiateWithFlags,
        (CUgraphExec * out, CUgraph graph, unsigned long long flags), SIM_CTX | SIM_UNSAFE,
        instantiate_graph(out, graph, flags))
SIM_API(cuGraphInstantiateWithParams,
        (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
        SIM_CTX | SIM_UNSAFE, instantiate_parameters(out, graph, parameters))
SIM_API(cuGraphInstantiateWithParams_ptsz,
        (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
        SIM_CTX | SIM_UNSAFE, instantiate_parameters(out, graph, parameters))
SIM_API(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), SIM_INIT,
        exec_of(exec) && flags ? (*flags = exec_of(exec)->flags, CUDA_SUCCESS)
                               : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuGraphExecDestroy, (CUgraphExec exec), SIM_INIT | SIM_UNSAFE, exec_destroy(exec))
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
