/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: graphs as a whole. Their nodes are in graph_node.c, launching is in stream.c.
 *
 * Stateless; any thread. Handles are the driver's own.
 */
#include "simcudart.h"

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphCreate)(graph, flags)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return simcudart_note(simcudart_enter() ?: simcudart_result(DRIVER(cuGraphDestroy)(graph)));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags)));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphExecDestroy)(exec)));
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags)
{
    cuuint64_t driver_flags = 0;
    cudaError_t error = flags ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuGraphExecGetFlags)(exec, &driver_flags));
    if (!error)
        *flags = driver_flags;
    return simcudart_note(error);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    _Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo),
                   "the same");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphExecUpdate_v2)(
                                     exec, graph, (CUgraphExecUpdateResultInfo *)info)));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphClone)(clone, graph)));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER(cuGraphGetNodes)(graph, nodes, count)));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphGetRootNodes)(graph, nodes, count)));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    CUgraphNodeType driver_type;
    cudaError_t error = type ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuGraphNodeGetType)(node, &driver_type));
    if (!error)
        *type = (enum cudaGraphNodeType)(int)driver_type;
    return simcudart_note(error);
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphDestroyNode)(node)));
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphDebugDotPrint)(graph, path, flags)));
}
