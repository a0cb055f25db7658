/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_capture.c: the calls that begin and end stream captures, which gate/capture.c counts.
 */
#include "runtime/calls/hooks.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"

static CUresult leave_begun(unsigned pass, CUresult result)
{
    if (result != CUDA_SUCCESS)
        gs_capture_ended();
    gs_gate_leave(pass);
    return result;
}

/* the ways to begin, in both stream variants */
#define BEGIN(symbol, params, args)                                                            \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        const unsigned pass = gs_gate_enter_on(NULL, GS_CALL_BEGINS);                          \
                                                                                               \
        if (pass == GS_PASS_REFUSED)                                                           \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
        if (pass != GS_PASS_COUNTED)                                                           \
            gs_capture_begins();                                                               \
        return leave_begun(pass, gs_driver.symbol args);                                       \
    }

BEGIN(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))

#define TO_GRAPH_PARAMS                                                                        \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,                          \
     const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
#define TO_GRAPH_ARGS (stream, graph, dependencies, dependencyData, numDependencies, mode)

BEGIN(cuStreamBeginCaptureToGraph, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)
BEGIN(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)

#define AGAIN_PARAMS                                                                           \
    (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,                                 \
     CUgraphRecaptureCallback callback, void *data)

BEGIN(cuStreamBeginRecaptureToGraph, AGAIN_PARAMS, (stream, mode, graph, callback, data))
BEGIN(cuStreamBeginRecaptureToGraph_ptsz, AGAIN_PARAMS, (stream, mode, graph, callback, data))

/* Work that is captured into a command list of a graphics API is submitted by that API, past the
 * gate. */
#define BEGIN_GRAPHICS(symbol)                                                                 \
    CUresult __wrap_##symbol(CUstream stream, CUstreamCigCaptureParams *params)                \
    {                                                                                          \
        const unsigned pass = gs_gate_enter();                                                 \
        CUresult result;                                                                       \
                                                                                               \
        if (pass == GS_PASS_REFUSED)                                                           \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
        result = gs_driver.symbol(stream, params);                                             \
        if (result == CUDA_SUCCESS)                                                            \
            gs_daemon_remark("partly covered, memory not moved: a graphics API submits work "  \
                             "of the program");                                                \
        gs_gate_leave(pass);                                                                   \
        return result;                                                                         \
    }

BEGIN_GRAPHICS(cuStreamBeginCaptureToCig)
BEGIN_GRAPHICS(cuStreamBeginCaptureToCig_ptsz)

/* Ending a capture submits nothing and must not wait: an invalidated capture ends as well, and
 * does not if the call is refused. */
#define END(symbol, is_capturing)                                                              \
    CUresult __wrap_##symbol(CUstream stream, CUgraph *graph)                                  \
    {                                                                                          \
        CUstreamCaptureStatus before = CU_STREAM_CAPTURE_STATUS_NONE, after = before;          \
        CUresult result;                                                                       \
                                                                                               \
        if (!gs_driver_load())                                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        if (gs_driver.is_capturing(stream, &before) != CUDA_SUCCESS)                           \
            before = CU_STREAM_CAPTURE_STATUS_NONE;                                            \
        result = gs_driver.symbol(stream, graph);                                              \
        if (before != CU_STREAM_CAPTURE_STATUS_NONE &&                                         \
            (result == CUDA_SUCCESS ||                                                         \
             gs_driver.is_capturing(stream, &after) != CUDA_SUCCESS ||                         \
             after == CU_STREAM_CAPTURE_STATUS_NONE))                                          \
            gs_capture_ended();                                                                \
        return result;                                                                         \
    }

END(cuStreamEndCapture, cuStreamIsCapturing)
END(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz)

/* A capture ends with its stream as well. */
#define DESTROY(symbol)                                                                        \
    CUresult __wrap_##symbol(CUstream stream)                                                  \
    {                                                                                          \
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;                          \
        CUresult result;                                                                       \
                                                                                               \
        if (!gs_driver_load())                                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        if (gs_capture_is_any() && stream != NULL &&                                           \
            gs_driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)                    \
            status = CU_STREAM_CAPTURE_STATUS_NONE;                                            \
        result = gs_driver.symbol(stream);                                                     \
        if (status != CU_STREAM_CAPTURE_STATUS_NONE && result == CUDA_SUCCESS)                 \
            gs_capture_ended();                                                                \
        return result;                                                                         \
    }

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
