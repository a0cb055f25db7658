/* SPDX-License-Identifier: Apache-2.0
 *
 * event.c: streams and events as objects, copies between devices, versions, export tables: what
 * has no per-thread variant.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"

#include <cudaProfiler.h>
#include <cuda_profiler_api.h>

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    cudaError_t error = stream ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuStreamCreateWithPriority)(stream, flags, priority)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    cudaError_t error = stream ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error ?: simcudart_result(DRIVER(cuStreamCreate)(stream, flags)));
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuStreamDestroy_v2)(stream)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    cudaError_t error = event ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error ?: simcudart_result(DRIVER(cuEventCreate)(event, flags)));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuEventDestroy_v2)(event)));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return simcudart_note(simcudart_enter() ?: simcudart_result(DRIVER(cuEventQuery)(event)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuEventSynchronize)(event)));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuEventElapsedTime_v2)(milliseconds, start, end)));
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device,
                           size_t size)
{
    CUcontext dst_context;
    CUcontext src_context;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_primary_context(dst_device, &dst_context);
    error = error ?: simcudart_primary_context(src_device, &src_context);
    if (!error && size > 0)
        error = simcudart_result(DRIVER(cuMemcpyPeer)(
            simcudart_address(dst), dst_context, simcudart_address(src), src_context, size));
    return simcudart_note(error);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t size, cudaStream_t stream)
{
    CUcontext dst_context;
    CUcontext src_context;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_primary_context(dst_device, &dst_context);
    error = error ?: simcudart_primary_context(src_device, &src_context);
    if (!error && size > 0)
        error = simcudart_result(DRIVER(cuMemcpyPeerAsync)(simcudart_address(dst), dst_context,
                                                           simcudart_address(src), src_context,
                                                           size, stream));
    return simcudart_note(error);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    CUstreamCaptureMode driver_mode;
    cudaError_t error = mode ? simcudart_load() : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    driver_mode = (CUstreamCaptureMode)(int)*mode;
    error = simcudart_result(DRIVER(cuThreadExchangeStreamCaptureMode)(&driver_mode));
    if (!error)
        *mode = (enum cudaStreamCaptureMode)(int)driver_mode;
    return simcudart_note(error);
}

/* Without a driver the version is 0 and the call succeeds (CUDA Runtime API,
 * cudaDriverGetVersion). */
cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return simcudart_note(cudaErrorInvalidValue);
    *version = 0;
    (void)simcudart_load();
    if (!simcudart_get_proc_address)
        return cudaSuccess;
    return simcudart_note(simcudart_result(DRIVER(cuDriverGetVersion)(version)));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return simcudart_note(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetExportTable(const void **table, const cudaUUID_t *id)
{
    _Static_assert(sizeof(cudaUUID_t) == sizeof(CUuuid), "the same");
    return simcudart_note(
        simcudart_load()
            ?: simcudart_result(DRIVER(cuGetExportTable)(table, (const CUuuid *)id)));
}

cudaError_t cudaProfilerStart(void)
{
    return simcudart_note(simcudart_enter() ?: simcudart_result(DRIVER(cuProfilerStart)()));
}

cudaError_t cudaProfilerStop(void)
{
    return simcudart_note(simcudart_enter() ?: simcudart_result(DRIVER(cuProfilerStop)()));
}
