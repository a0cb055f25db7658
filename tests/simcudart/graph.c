/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: graphs built from capture or node by node. Launching is in stream.c.
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

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                     size_t count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphAddDependencies_v2)(
                                     graph, from, to, (const CUgraphEdgeData *)edges, count)));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                  const cudaGraphNode_t *after, size_t count)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphAddEmptyNode)(node, graph, after, count)));
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const struct cudaKernelNodeParams *params)
{
    CUkernel kernel;
    cudaError_t error = params ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_kernel(params->func, &kernel);
    if (error)
        return simcudart_note(error);
    CUDA_KERNEL_NODE_PARAMS_v2 driver_params = {
        .kern = kernel,
        .gridDimX = params->gridDim.x,
        .gridDimY = params->gridDim.y,
        .gridDimZ = params->gridDim.z,
        .blockDimX = params->blockDim.x,
        .blockDimY = params->blockDim.y,
        .blockDimZ = params->blockDim.z,
        .sharedMemBytes = params->sharedMemBytes,
        .kernelParams = params->kernelParams,
        .extra = params->extra,
    };

    return simcudart_note(simcudart_result(
        DRIVER(cuGraphAddKernelNode_v2)(node, graph, after, count, &driver_params)));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const struct cudaMemsetParams *params)
{
    CUcontext context = NULL;
    cudaError_t error = params ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_result(DRIVER(cuCtxGetCurrent)(&context));
    if (error)
        return simcudart_note(error);
    CUDA_MEMSET_NODE_PARAMS driver_params = {
        .dst = simcudart_address(params->dst),
        .pitch = params->pitch,
        .value = params->value,
        .elementSize = params->elementSize,
        .width = params->width,
        .height = params->height,
    };

    return simcudart_note(simcudart_result(
        DRIVER(cuGraphAddMemsetNode)(node, graph, after, count, &driver_params, context)));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    CUcontext context = NULL;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_copy_3d(params, &copy);
    error = error ?: simcudart_result(DRIVER(cuCtxGetCurrent)(&context));
    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuGraphAddMemcpyNode)(
                                     node, graph, after, count, &copy, context)));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *after, size_t count, void *dst,
                                     const void *src, size_t size, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms params = {
        .srcPtr = {simcudart_pointer(simcudart_address(src)), size, size, 1},
        .dstPtr = {dst, size, size, 1},
        .extent = {size, 1, 1},
        .kind = kind,
    };

    return cudaGraphAddMemcpyNode(node, graph, after, count, &params);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *after, size_t count,
                                 const struct cudaHostNodeParams *params)
{
    cudaError_t error = params ? simcudart_enter() : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    CUDA_HOST_NODE_PARAMS driver_params = {.fn = params->fn, .userData = params->userData};

    return simcudart_note(simcudart_result(
        DRIVER(cuGraphAddHostNode)(node, graph, after, count, &driver_params)));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                       const cudaGraphNode_t *after, size_t count,
                                       cudaGraph_t child)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphAddChildGraphNode)(
                                     node, graph, after, count, child)));
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                        const cudaGraphNode_t *after, size_t count,
                                        cudaEvent_t event)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphAddEventRecordNode)(
                                     node, graph, after, count, event)));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                      const cudaGraphNode_t *after, size_t count,
                                      cudaEvent_t event)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphAddEventWaitNode)(
                                     node, graph, after, count, event)));
}
