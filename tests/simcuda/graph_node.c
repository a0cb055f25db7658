/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_node.c: owns the calls about nodes: adding kernels, copies, sets, host functions, child
 * graphs and empty nodes, their parameters, and the edges between them. Invariants: parameters
 * are checked as for the call that submits the same operation. Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

/* Consumes op (NULL for nodes without one). */
static CUresult add_node(CUgraphNode *out, CUgraph graph_handle, const CUgraphNode *needs,
                         size_t count, CUgraphNodeType type, struct sim_op *op)
{
    struct sim_graph *graph = sim_graph_of(graph_handle);
    bool valid = out && graph && (needs || !count);

    for (size_t i = 0; valid && i < count; i++)
        valid = sim_node_of(needs[i]) && sim_node_of(needs[i])->graph == graph;
    if (!valid) {
        sim_op_put(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_node *node = sim_graph_add(graph, op, type, NULL);
    int rc = node ? 0 : -1;
    for (size_t i = 0; i < count && !rc; i++)
        rc = sim_nodes_add(&node->needs, sim_node_of(needs[i]));
    if (rc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult kernel_op(struct sim_context *context, const CUDA_KERNEL_NODE_PARAMS_v2 *launch,
                          struct sim_op **op)
{
    return launch ? sim_launch_op(context, launch, op) : CUDA_ERROR_INVALID_VALUE;
}

/* The first form of the parameters lacks the last two fields. */
static CUresult kernel_op_v1(struct sim_context *context,
                             const CUDA_KERNEL_NODE_PARAMS_v1 *launch, struct sim_op **op)
{
    CUDA_KERNEL_NODE_PARAMS_v2 whole = {0};

    _Static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern) == sizeof *launch, "a prefix");
    if (launch)
        memcpy(&whole, launch, sizeof *launch);
    return launch ? sim_launch_op(context, &whole, op) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_op(const CUDA_MEMCPY3D *box, struct sim_op **op)
{
    struct sim_copy copy;
    const CUresult result = sim_copy_from_3d(box, &copy);

    return result ? result : sim_copy_node_op(&copy, op);
}

static CUresult memset_op(const CUDA_MEMSET_NODE_PARAMS *set, struct sim_op **op)
{
    CUresult result = set ? sim_memset_op(set, op) : CUDA_ERROR_INVALID_VALUE;

    if (!result && *op && (result = sim_memset_check(*op))) {
        sim_op_put(*op);
        *op = NULL;
    }
    return result;
}

/* A real driver (580) takes the context of the memory in place of NULL; mapped memory has none, nor
 * has that of pools. */
static CUresult memset_in(CUcontext context, const CUDA_MEMSET_NODE_PARAMS *set,
                          struct sim_op **op)
{
    const struct sim_allocation *allocation = set ? sim_allocation_find(set->dst) : NULL;

    if (set && !context && (!allocation || allocation->pool))
        return CUDA_ERROR_INVALID_VALUE;
    return memset_op(set, op);
}

static CUresult host_op(const CUDA_HOST_NODE_PARAMS *host, struct sim_op **op)
{
    if (!host || !host->fn)
        return CUDA_ERROR_INVALID_VALUE;
    *op = sim_host_op(host->fn, host->userData);
    return *op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_child(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs,
                          size_t count, CUgraph child)
{
    if (!sim_graph_of(child) || child == graph)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_GRAPH, NULL);
    return result ? result : sim_graph_add_child(sim_node_of(*out), child);
}

static CUresult fill_op(const CUDA_MEMSET_NODE_PARAMS_v2 *fill, struct sim_op **op)
{
    const CUDA_MEMSET_NODE_PARAMS set = {.dst = fill->dst,
                                         .pitch = fill->pitch,
                                         .value = fill->value,
                                         .elementSize = fill->elementSize,
                                         .width = fill->width,
                                         .height = fill->height};

    return memset_in(fill->ctx, &set, op);
}

/* Any kind with an operation, by its tag. */
static CUresult any_op(struct sim_context *context, const CUgraphNodeParams *node,
                       struct sim_op **op)
{
    CUDA_KERNEL_NODE_PARAMS_v2 launch = {0};
    const CUDA_HOST_NODE_PARAMS host =
        node ? (CUDA_HOST_NODE_PARAMS){node->host.fn, node->host.userData}
             : (CUDA_HOST_NODE_PARAMS){0};

    _Static_assert(sizeof launch == sizeof node->kernel, "the same fields");
    switch (node ? (int)node->type : -1) {
    case -1:
        return CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&launch, &node->kernel, sizeof launch);
        return sim_launch_op(context, &launch, op);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_op(&node->memcpy.copyParams, op);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return fill_op(&node->memset, op);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_op(&host, op);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult add_any(struct sim_context *context, CUgraphNode *out, CUgraph graph,
                        const CUgraphNode *needs, size_t count, const CUgraphNodeParams *node)
{
    struct sim_op *op = NULL;

    if (node && node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return add_child(out, graph, needs, count, node->graph.graph);
    const CUresult result = node && node->type == CU_GRAPH_NODE_TYPE_EMPTY
                                ? CUDA_SUCCESS
                                : any_op(context, node, &op);
    return result ? result : add_node(out, graph, needs, count, node->type, op);
}

/* A node's operation for another of the same kind (op is consumed). */
static CUresult replace_node(CUgraphNode handle, struct sim_op *op)
{
    struct sim_node *node = sim_node_of(handle);

    if (!node || !node->op || node->type != op->type) {
        sim_op_put(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_op_put(node->op);
    node->op = op;
    return CUDA_SUCCESS;
}

static CUresult kernel_get(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *launch)
{
    const struct sim_node *node = sim_node_of(handle);

    if (!node || !launch || node->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_launch_params(node->op, launch);
    return CUDA_SUCCESS;
}

static CUresult kernel_get_v1(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *launch)
{
    CUDA_KERNEL_NODE_PARAMS_v2 whole;
    const CUresult result = launch ? kernel_get(handle, &whole) : CUDA_ERROR_INVALID_VALUE;

    if (!result)
        memcpy(launch, &whole, sizeof *launch);
    return result;
}

static CUresult memset_get(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *set)
{
    const struct sim_node *node = sim_node_of(handle);

    if (!node || !set || !node->op || node->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return CUDA_ERROR_INVALID_VALUE;
    sim_memset_params(node->op, set);
    return CUDA_SUCCESS;
}

static CUresult host_get(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *host)
{
    const struct sim_node *node = sim_node_of(handle);

    if (!node || !host || node->type != CU_GRAPH_NODE_TYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    sim_host_params(node->op, host);
    return CUDA_SUCCESS;
}

static CUresult type_get(CUgraphNode handle, CUgraphNodeType *type)
{
    const struct sim_node *node = sim_node_of(handle);

    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

/* Fills up to *count handles (out NULL: only counts); the rest becomes NULL, *count the number
 * there is. */
static CUresult nodes_out(const struct sim_nodes *nodes, CUgraphNode *out, size_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; out && i < *count; i++)
        out[i] = i < nodes->count ? (CUgraphNode)nodes->item[i] : NULL;
    if (!out || *count > nodes->count)
        *count = nodes->count;
    return CUDA_SUCCESS;
}

static CUresult graph_nodes(CUgraph handle, CUgraphNode *out, size_t *count, bool roots)
{
    const struct sim_graph *graph = sim_graph_of(handle);
    struct sim_nodes some = {0};
    int rc = 0;

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count && !rc; i++)
        if (!roots || !graph->nodes.item[i]->needs.count)
            rc = sim_nodes_add(&some, graph->nodes.item[i]);
    const CUresult result = rc ? CUDA_ERROR_OUT_OF_MEMORY : nodes_out(&some, out, count);
    sim_nodes_clear(&some);
    return result;
}

static CUresult node_neighbours(CUgraphNode handle, CUgraphNode *out, size_t *count,
                                bool dependents)
{
    const struct sim_node *node = sim_node_of(handle);
    struct sim_nodes some = {0};
    int rc = 0;

    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    if (!dependents)
        return nodes_out(&node->needs, out, count);
    for (size_t i = 0; i < node->graph->nodes.count && !rc; i++) {
        struct sim_node *other = node->graph->nodes.item[i];
        for (size_t k = 0; k < other->needs.count && !rc; k++)
            if (other->needs.item[k] == node)
                rc = sim_nodes_add(&some, other);
    }
    const CUresult result = rc ? CUDA_ERROR_OUT_OF_MEMORY : nodes_out(&some, out, count);
    sim_nodes_clear(&some);
    return result;
}

static CUresult edges_out(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    const struct sim_graph *graph = sim_graph_of(handle);
    size_t found = 0;

    if (!graph || !count || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++)
        for (size_t k = 0; k < graph->nodes.item[i]->needs.count; k++, found++)
            if (from && found < *count) {
                from[found] = (CUgraphNode)graph->nodes.item[i]->needs.item[k];
                to[found] = (CUgraphNode)graph->nodes.item[i];
            }
    if (!from || *count > found)
        *count = found;
    return CUDA_SUCCESS;
}

static void needs_remove(struct sim_node *node, const struct sim_node *need)
{
    size_t kept = 0;

    /* the list grows at powers of two: build it anew instead of shrinking it in place */
    struct sim_nodes old = node->needs;
    node->needs = (struct sim_nodes){0};
    for (; kept < old.count; kept++)
        if (old.item[kept] != need && sim_nodes_add(&node->needs, old.item[kept]))
            break;
    sim_nodes_clear(&old);
}

static CUresult edges_change(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             size_t count, bool remove)
{
    const struct sim_graph *graph = sim_graph_of(handle);

    if (!graph || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct sim_node *first = sim_node_of(from[i]), *second = sim_node_of(to[i]);
        if (!first || !second || first == second || first->graph != graph ||
            second->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        if (remove)
            needs_remove(sim_node_of(to[i]), sim_node_of(from[i]));
        else if (sim_nodes_add(&sim_node_of(to[i])->needs, sim_node_of(from[i])))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

#define ADD(type, make)                                                                        \
    ({                                                                                         \
        struct sim_op *op = NULL;                                                              \
        const CUresult made = (make);                                                          \
        made ? made : add_node(out, graph, needs, count, type, op);                            \
    })
#define EXCHANGE(make, put)                                                                    \
    ({                                                                                         \
        struct sim_op *op = NULL;                                                              \
        const CUresult made = (make);                                                          \
        made ? made : (op ? (put) : CUDA_ERROR_INVALID_VALUE);                                 \
    })
#define NODE CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count

SIM_API(cuGraphAddKernelNode, (NODE, const CUDA_KERNEL_NODE_PARAMS_v1 *launch), SIM_CTX,
        ADD(CU_GRAPH_NODE_TYPE_KERNEL, kernel_op_v1(call.context, launch, &op)))
SIM_API(cuGraphAddKernelNode_v2, (NODE, const CUDA_KERNEL_NODE_PARAMS_v2 *launch), SIM_CTX,
        ADD(CU_GRAPH_NODE_TYPE_KERNEL, kernel_op(call.context, launch, &op)))
SIM_API(cuGraphAddMemcpyNode, (NODE, const CUDA_MEMCPY3D *box, CUcontext context), SIM_CTX,
        ((void)context, ADD(CU_GRAPH_NODE_TYPE_MEMCPY, copy_op(box, &op))))
SIM_API(cuGraphAddMemsetNode, (NODE, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context),
        SIM_CTX, ADD(CU_GRAPH_NODE_TYPE_MEMSET, memset_in(context, set, &op)))
SIM_API(cuGraphAddHostNode, (NODE, const CUDA_HOST_NODE_PARAMS *host), SIM_CTX,
        ADD(CU_GRAPH_NODE_TYPE_HOST, host_op(host, &op)))
SIM_API(cuGraphAddChildGraphNode, (NODE, CUgraph child), SIM_CTX,
        add_child(out, graph, needs, count, child))
SIM_API(cuGraphAddEmptyNode, (NODE), SIM_CTX,
        add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_EMPTY, NULL))
SIM_API(cuGraphAddNode, (NODE, CUgraphNodeParams *node), SIM_CTX,
        add_any(call.context, out, graph, needs, count, node))
SIM_API(cuGraphAddNode_v2,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *needs,
         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *node),
        SIM_CTX,
        edges ? CUDA_ERROR_NOT_SUPPORTED
              : add_any(call.context, out, graph, needs, count, node))
SIM_API(cuGraphAddNode_v3,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode *needs,
         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *node),
        SIM_CTX,
        edges ? CUDA_ERROR_NOT_SUPPORTED
              : add_any(call.context, out, graph, needs, count, node))
SIM_API(cuGraphKernelNodeGetParams, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *launch),
        SIM_INIT, kernel_get_v1(node, launch))
SIM_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *launch),
        SIM_INIT, kernel_get(node, launch))
SIM_API(cuGraphKernelNodeSetParams,
        (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *launch), SIM_CTX,
        EXCHANGE(kernel_op_v1(call.context, launch, &op), replace_node(node, op)))
SIM_API(cuGraphKernelNodeSetParams_v2,
        (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *launch), SIM_CTX,
        EXCHANGE(kernel_op(call.context, launch, &op), replace_node(node, op)))
SIM_API(cuGraphMemcpyNodeSetParams, (CUgraphNode node, const CUDA_MEMCPY3D *box), SIM_CTX,
        EXCHANGE(copy_op(box, &op), replace_node(node, op)))
SIM_API(cuGraphMemsetNodeSetParams, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set),
        SIM_CTX, EXCHANGE(memset_op(set, &op), replace_node(node, op)))
SIM_API(cuGraphHostNodeSetParams, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host),
        SIM_CTX, EXCHANGE(host_op(host, &op), replace_node(node, op)))
SIM_API(cuGraphExecKernelNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *launch), SIM_CTX,
        EXCHANGE(kernel_op_v1(call.context, launch, &op), sim_exec_replace(exec, node, op)))
SIM_API(cuGraphExecKernelNodeSetParams_v2,
        (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *launch), SIM_CTX,
        EXCHANGE(kernel_op(call.context, launch, &op), sim_exec_replace(exec, node, op)))
SIM_API(cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *box, CUcontext context),
        SIM_CTX, ((void)context, EXCHANGE(copy_op(box, &op), sim_exec_replace(exec, node, op))))
SIM_API(cuGraphExecMemsetNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set,
         CUcontext context),
        SIM_CTX,
        ((void)context, EXCHANGE(memset_op(set, &op), sim_exec_replace(exec, node, op))))
SIM_API(cuGraphExecHostNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host), SIM_CTX,
        EXCHANGE(host_op(host, &op), sim_exec_replace(exec, node, op)))
SIM_API(cuGraphNodeSetParams, (CUgraphNode node, CUgraphNodeParams *params), SIM_CTX,
        EXCHANGE(any_op(call.context, params, &op), replace_node(node, op)))
SIM_API(cuGraphExecNodeSetParams,
        (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), SIM_CTX,
        EXCHANGE(any_op(call.context, params, &op), sim_exec_replace(exec, node, op)))
SIM_API(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set), SIM_INIT,
        memset_get(node, set))
SIM_API(cuGraphHostNodeGetParams, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *host), SIM_INIT,
        host_get(node, host))
SIM_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), SIM_INIT,
        sim_node_of(node) && sim_node_of(node)->child && graph
            ? (*graph = (CUgraph)sim_node_of(node)->child, CUDA_SUCCESS)
            : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), SIM_INIT,
        type_get(node, type))
SIM_API(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), SIM_INIT,
        graph_nodes(graph, nodes, count, false))
SIM_API(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count), SIM_INIT,
        graph_nodes(graph, nodes, count, true))
SIM_API(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
        SIM_INIT, edges_out(graph, from, to, count))
SIM_API(cuGraphGetEdges_v2,
        (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
         size_t *count),
        SIM_INIT, edges ? CUDA_ERROR_NOT_SUPPORTED : edges_out(graph, from, to, count))
SIM_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *out, size_t *count),
        SIM_INIT, node_neighbours(node, out, count, false))
SIM_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode *out, size_t *count),
        SIM_INIT, node_neighbours(node, out, count, true))
SIM_API(cuGraphNodeGetDependencies_v2,
        (CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *edges, size_t *count), SIM_INIT,
        edges ? CUDA_ERROR_NOT_SUPPORTED : node_neighbours(node, out, count, false))
SIM_API(cuGraphNodeGetDependentNodes_v2,
        (CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *edges, size_t *count), SIM_INIT,
        edges ? CUDA_ERROR_NOT_SUPPORTED : node_neighbours(node, out, count, true))
SIM_API(cuGraphAddDependencies,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), SIM_INIT,
        edges_change(graph, from, to, count, false))
SIM_API(cuGraphAddDependencies_v2,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
         const CUgraphEdgeData *edges, size_t count),
        SIM_INIT,
        edges ? CUDA_ERROR_NOT_SUPPORTED : edges_change(graph, from, to, count, false))
SIM_API(cuGraphRemoveDependencies,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), SIM_INIT,
        edges_change(graph, from, to, count, true))
SIM_API(cuGraphRemoveDependencies_v2,
        (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
         const CUgraphEdgeData *edges, size_t count),
        SIM_INIT, edges ? CUDA_ERROR_NOT_SUPPORTED : edges_change(graph, from, to, count, true))
