/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_position.c: streams as calls name them, events in them, and waiting for contexts. No state.
 * Any thread.
 */
#include "runtime/memory/stream_position.h"
#include "runtime/gate/capture.h"

#define ATTEMPTS 4

CUresult gs_stream_position_of(CUstream stream, bool per_thread,
                               struct gs_stream_position *position)
{
    CUresult result;

    *position = (struct gs_stream_position){.stream = stream, .per_thread = per_thread};
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        result = gs_driver.cuCtxGetCurrent(&position->context);
    else
        result = gs_driver.cuStreamGetCtx(stream, &position->context);
    if (result != CUDA_SUCCESS)
        return result;
    position->context = gs_context_home(position->context);
    if (position->context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    result = per_thread ? gs_driver.cuStreamGetId_ptsz(stream, &position->id)
                        : gs_driver.cuStreamGetId(stream, &position->id);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    position->id = 0; /* a driver before 12.0: such memory comes back when it was passed */
    return CUDA_SUCCESS;
}

bool gs_stream_position_enter(CUcontext context)
{
    CUcontext current = NULL;

    return gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != context &&
           gs_context_push(context) == CUDA_SUCCESS;
}

void gs_stream_position_leave(bool pushed)
{
    if (pushed)
        gs_context_pop();
}

CUevent gs_stream_position_event(CUcontext context)
{
    const bool pushed = gs_stream_position_enter(context);
    CUevent event = NULL;

    if (gs_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        event = NULL;
    gs_stream_position_leave(pushed);
    return event;
}

bool gs_stream_position_record(CUevent event, const struct gs_stream_position *position)
{
    return (position->per_thread
                ? gs_driver.cuEventRecord_ptsz(event, position->stream)
                : gs_driver.cuEventRecord(event, position->stream)) == CUDA_SUCCESS;
}

CUevent gs_stream_position_mark(const struct gs_stream_position *position)
{
    CUevent event = gs_stream_position_event(position->context);

    if (event == NULL || gs_stream_position_record(event, position))
        return event;
    gs_driver.cuEventDestroy_v2(event);
    return NULL;
}

/* A call's failure says nothing about the work; a broken context fails each time. */
CUresult gs_stream_position_wait(const struct gs_stream_position *position)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    CUresult result = CUDA_SUCCESS;

    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        result = position->per_thread ? gs_driver.cuStreamSynchronize_ptsz(position->stream)
                                      : gs_driver.cuStreamSynchronize(position->stream);
        if (result == CUDA_SUCCESS || gs_capture_forbids(result))
            break;
    }
    return result;
}

/* --- contexts --- */

/* Beside a capture, which cuCtxSynchronize would invalidate. The driver's cuMemFree waits for the
 * same work and leaves captures alone. Without memory for that nothing is waited for. */
static CUresult wait_by_free(void)
{
    const CUstreamCaptureMode mode = gs_capture_relax();
    CUdeviceptr nothing;
    CUresult result = gs_driver.cuMemAlloc_v2(&nothing, 1);

    if (result == CUDA_SUCCESS)
        result = gs_driver.cuMemFree_v2(nothing);
    else if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    gs_capture_restore(mode);
    return result;
}

/* The failure of a single call is no reason to take memory away from a running kernel. In a
 * broken context every call fails. */
CUresult gs_synchronize_context(CUcontext context)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const bool quiet = gs_capture_hold_off();
    CUcontext current = NULL;
    CUresult result = CUDA_SUCCESS;

    gs_driver.cuCtxGetCurrent(&current);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        const bool other = current != context && context != NULL;

        result = other ? gs_context_push(context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            continue;
        result = quiet ? gs_driver.cuCtxSynchronize() : wait_by_free();
        if (other)
            gs_context_pop();
        if (result == CUDA_SUCCESS || gs_capture_forbids(result))
            break;
    }
    if (quiet)
        gs_capture_release();
    if (result != CUDA_SUCCESS)
        gs_context_failed(context, result);
    return result;
}
