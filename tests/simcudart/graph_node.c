/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_node.c: nodes of graphs: adding them, their edges and parameters, and what a graph
 * owns.
 *
 * Stateless; any thread. A kernel node's function is handed back as the kernel's handle, which
 * is as good as its host stub.
 */
#include "simcudart.h"

static cudaError_t to_driver(const struct cudaKernelNodeParams *params,
                             CUDA_KERNEL_NODE_PARAMS_v2 *driver_params)
{
    CUkernel kernel;
    cudaError_t error = params ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_kernel(params->func, &kernel);
    if (error)
        return error;
    *driver_params = (CUDA_KERNEL_NODE_PARAMS_v2){
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
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *after, size_t count,
                                   const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 driver_params;
    cudaError_t error = to_driver(params, &driver_params);

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuGraphAddKernelNode_v2)(
                                     node, graph, after, count, &driver_params)));
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 driver_params;
    cudaError_t error = to_driver(params, &driver_params);

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuGraphKernelNodeSetParams_v2)(node, &driver_params)));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 driver_params;
    cudaError_t error = to_driver(params, &driver_params);

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuGraphExecKernelNodeSetParams_v2)(
                                     exec, node, &driver_params)));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                         struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 got = {0};
    cudaError_t error = params ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuGraphKernelNodeGetParams_v2)(node, &got));
    CUkernel kernel = got.kern ? got.kern : (CUkernel)got.func;

    error = error ?: simcudart_know_kernel(kernel);
    if (error)
        return simcudart_note(error);
    *params = (struct cudaKernelNodeParams){
        .func = kernel,
        .gridDim = {got.gridDimX, got.gridDimY, got.gridDimZ},
        .blockDim = {got.blockDimX, got.blockDimY, got.blockDimZ},
        .sharedMemBytes = got.sharedMemBytes,
        .kernelParams = got.kernelParams,
        .extra = got.extra,
    };
    return cudaSuccess;
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

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *edges, size_t count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphRemoveDependencies_v2)(
                                     graph, from, to, (const CUgraphEdgeData *)edges, count)));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              cudaGraphEdgeData *edges, size_t *count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphGetEdges_v2)(
                                     graph, from, to, (CUgraphEdgeData *)edges, count)));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                         cudaGraphEdgeData *edges, size_t *count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphNodeGetDependencies_v2)(
                                     node, nodes, (CUgraphEdgeData *)edges, count)));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                           cudaGraphEdgeData *edges, size_t *count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuGraphNodeGetDependentNodes_v2)(
                                     node, nodes, (CUgraphEdgeData *)edges, count)));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int on)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER(cuGraphNodeSetEnabled)(exec, node, on)));
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                    unsigned int *on)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER(cuGraphNodeGetEnabled)(exec, node, on)));
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *data, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuUserObjectCreate)(
                                     object, data, destroy, references, flags)));
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuUserObjectRetain)(object, count)));
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuUserObjectRelease)(object, count)));
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphRetainUserObject)(graph, object, count, flags)));
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                       unsigned int count)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuGraphReleaseUserObject)(graph, object, count)));
}

cudaError_t cudaDeviceGraphMemTrim(int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(error ?: simcudart_result(DRIVER(cuDeviceGraphMemTrim)(device)));
}
