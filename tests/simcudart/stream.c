/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: what depends on which default stream is meant: streams' state, events recorded in
 * them, capture, graph launches, stream-ordered memory. Compiled twice, see simcudart.h.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"

#include <stdlib.h>

cudaError_t SIMCUDART_PTSZ(cudaStreamSynchronize)(cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamSynchronize)(stream)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamQuery)(cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamQuery)(stream)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetPriority)(cudaStream_t stream, int *priority)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuStreamGetPriority)(stream, priority)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetFlags)(cudaStream_t stream, unsigned int *flags)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER_PTSZ(cuStreamGetFlags)(stream, flags)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetId)(cudaStream_t stream, unsigned long long *id)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamGetId)(stream, id)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetDevice)(cudaStream_t stream, int *ordinal)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER_PTSZ(cuStreamGetDevice)(stream, ordinal)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamWaitEvent)(cudaStream_t stream, cudaEvent_t event,
                                                unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuStreamWaitEvent)(stream, event, flags)));
}

cudaError_t SIMCUDART_PTSZ(cudaEventRecord)(cudaEvent_t event, cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuEventRecord)(event, stream)));
}

cudaError_t SIMCUDART_PTSZ(cudaEventRecordWithFlags)(cudaEvent_t event, cudaStream_t stream,
                                                     unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuEventRecordWithFlags)(event, stream, flags)));
}

/* The driver calls back with a CUresult, the program expects a cudaError_t. */
struct callback {
    cudaStreamCallback_t function;
    void *data;
};

static void call_back(CUstream stream, CUresult result, void *data)
{
    struct callback *callback = data;

    callback->function(stream, simcudart_result(result), callback->data);
    free(callback);
}

cudaError_t SIMCUDART_PTSZ(cudaStreamAddCallback)(cudaStream_t stream,
                                                  cudaStreamCallback_t function, void *data,
                                                  unsigned int flags)
{
    cudaError_t error = function && !flags ? simcudart_enter() : cudaErrorInvalidValue;
    struct callback *callback = error ? NULL : malloc(sizeof(*callback));

    if (!callback)
        return simcudart_note(error ?: cudaErrorMemoryAllocation);
    *callback = (struct callback){function, data};
    error =
        simcudart_result(DRIVER_PTSZ(cuStreamAddCallback)(stream, call_back, callback, flags));
    if (error)
        free(callback);
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaStreamAttachMemAsync)(cudaStream_t stream, void *pointer,
                                                     size_t size, unsigned int flags)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamAttachMemAsync)(
                                     stream, simcudart_address(pointer), size, flags)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamCopyAttributes)(cudaStream_t dst, cudaStream_t src)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER_PTSZ(cuStreamCopyAttributes)(dst, src)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetAttribute)(cudaStream_t stream,
                                                   cudaLaunchAttributeID attribute,
                                                   cudaLaunchAttributeValue *value)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuStreamGetAttribute)(
                   stream, (CUstreamAttrID)(int)attribute, (CUstreamAttrValue *)value)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamSetAttribute)(cudaStream_t stream,
                                                   cudaLaunchAttributeID attribute,
                                                   const cudaLaunchAttributeValue *value)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuStreamSetAttribute)(
                   stream, (CUstreamAttrID)(int)attribute, (const CUstreamAttrValue *)value)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamBeginCapture)(cudaStream_t stream,
                                                   enum cudaStreamCaptureMode mode)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamBeginCapture_v2)(
                                     stream, (CUstreamCaptureMode)(int)mode)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamBeginCaptureToGraph)(
    cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *after,
    const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuStreamBeginCaptureToGraph)(
                                     stream, graph, after, (const CUgraphEdgeData *)edges,
                                     count, (CUstreamCaptureMode)(int)mode)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamUpdateCaptureDependencies)(cudaStream_t stream,
                                                                cudaGraphNode_t *nodes,
                                                                const cudaGraphEdgeData *edges,
                                                                size_t count,
                                                                unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuStreamUpdateCaptureDependencies_v2)(
                   stream, nodes, (const CUgraphEdgeData *)edges, count, flags)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamEndCapture)(cudaStream_t stream, cudaGraph_t *graph)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER_PTSZ(cuStreamEndCapture)(stream, graph)));
}

cudaError_t SIMCUDART_PTSZ(cudaStreamIsCapturing)(cudaStream_t stream,
                                                  enum cudaStreamCaptureStatus *status)
{
    CUstreamCaptureStatus driver_status = CU_STREAM_CAPTURE_STATUS_NONE;
    cudaError_t error = status ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER_PTSZ(cuStreamIsCapturing)(stream, &driver_status));
    if (!error)
        *status = (enum cudaStreamCaptureStatus)(int)driver_status;
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaStreamGetCaptureInfo)(cudaStream_t stream,
                                                     enum cudaStreamCaptureStatus *status,
                                                     unsigned long long *id, cudaGraph_t *graph,
                                                     const cudaGraphNode_t **dependencies,
                                                     const cudaGraphEdgeData **edges,
                                                     size_t *count)
{
    CUstreamCaptureStatus driver_status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t driver_id = 0;
    cudaError_t error = status ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER_PTSZ(cuStreamGetCaptureInfo_v3)(
            stream, &driver_status, &driver_id, graph, dependencies,
            (const CUgraphEdgeData **)edges, count));
    if (!error)
        *status = (enum cudaStreamCaptureStatus)(int)driver_status;
    if (!error && id)
        *id = driver_id;
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaGraphInstantiateWithParams)(cudaGraphExec_t *exec,
                                                           cudaGraph_t graph,
                                                           cudaGraphInstantiateParams *params)
{
    _Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS),
                   "the same");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuGraphInstantiateWithParams)(
                                     exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params)));
}

cudaError_t SIMCUDART_PTSZ(cudaGraphUpload)(cudaGraphExec_t exec, cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuGraphUpload)(exec, stream)));
}

cudaError_t SIMCUDART_PTSZ(cudaGraphLaunch)(cudaGraphExec_t exec, cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER_PTSZ(cuGraphLaunch)(exec, stream)));
}

cudaError_t SIMCUDART_PTSZ(cudaMallocAsync)(void **pointer, size_t size, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error && size > 0)
        error = simcudart_result(DRIVER_PTSZ(cuMemAllocAsync)(&address, size, stream));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaMallocFromPoolAsync)(void **pointer, size_t size,
                                                    cudaMemPool_t pool, cudaStream_t stream)
{
    CUdeviceptr address = 0;
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error && size > 0)
        error = simcudart_result(
            DRIVER_PTSZ(cuMemAllocFromPoolAsync)(&address, size, pool, stream));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaFreeAsync)(void *pointer, cudaStream_t stream)
{
    cudaError_t error = simcudart_enter();

    if (!error && pointer)
        error =
            simcudart_result(DRIVER_PTSZ(cuMemFreeAsync)(simcudart_address(pointer), stream));
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaMemPrefetchAsync)(const void *pointer, size_t size,
                                                 struct cudaMemLocation location,
                                                 unsigned int flags, cudaStream_t stream)
{
    CUmemLocation driver_location = {.type = (CUmemLocationType)(int)location.type,
                                     .id = location.id};

    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuMemPrefetchAsync_v2)(
                   simcudart_address(pointer), size, driver_location, flags, stream)));
}
