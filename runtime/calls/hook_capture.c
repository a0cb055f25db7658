/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_capture.c: the calls that begin and end stream captures, which gate/capture.c counts.
 */
#include "runtime/calls/hooks.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"

/* the ways to begin, in both stream variants */
#define BEGIN(symbol, per_thread, params, args)                                                \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        const unsigned pass = gs_gate_enter_on(                                                \
            stream, GS_CALL_BEGINS | ((per_thread) ? GS_CALL_PER_THREAD : 0));                 \
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                            \
                                                                                               \
        if (pass == GS_PASS_REFUSED)                                                           \
            return result;                                                                     \
        if (pass == GS_PASS_COUNTED || gs_capture_begins(stream, per_thread, false)) {         \
            result = gs_driver.symbol args;                                                    \
            gs_capture_changed(stream, per_thread, result == CUDA_SUCCESS);                    \
        }                                                                                      \
        gs_gate_leave(pass);                                                                   \
        return result;                                                                         \
    }

BEGIN(cuStreamBeginCapture, false, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_ptsz, true, (CUstream stream), (stream))
BEGIN(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode),
      (stream, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode),
      (stream, mode))

#define TO_GRAPH_PARAMS                                                                        \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,                          \
     const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)
#define TO_GRAPH_ARGS (stream, graph, dependencies, dependencyData, numDependencies, mode)

BEGIN(cuStreamBeginCaptureToGraph, false, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)
BEGIN(cuStreamBeginCaptureToGraph_ptsz, true, TO_GRAPH_PARAMS, TO_GRAPH_ARGS)

#define AGAIN_PARAMS                                                                           \
    (CUstream stream, CUstreamCaptureMode mode, CUgraph graph,                                 \
     CUgraphRecaptureCallback callback, void *data)

#define AGAIN_ARGS (stream, mode, graph, callback, data)

BEGIN(cuStreamBeginRecaptureToGraph, false, AGAIN_PARAMS, AGAIN_ARGS)
BEGIN(cuStreamBeginRecaptureToGraph_ptsz, true, AGAIN_PARAMS, AGAIN_ARGS)

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
#define END(symbol, per_thread, is_capturing)                                                  \
    CUresult __wrap_##symbol(CUstream stream, CUgraph *graph)                                  \
    {                                                                                          \
        CUstreamCaptureStatus after = CU_STREAM_CAPTURE_STATUS_NONE;                           \
        CUresult result;                                                                       \
        bool counted;                                                                          \
                                                                                               \
        if (!gs_driver_load())                                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        counted = gs_capture_changes(stream, per_thread);                                      \
        result = gs_driver.symbol(stream, graph);                                              \
        if (counted)                                                                           \
            gs_capture_changed(stream, per_thread,                                             \
                               result != CUDA_SUCCESS &&                                       \
                                   gs_driver.is_capturing(stream, &after) == CUDA_SUCCESS &&   \
                                   after != CU_STREAM_CAPTURE_STATUS_NONE);                    \
        return result;                                                                         \
    }

END(cuStreamEndCapture, false, cuStreamIsCapturing)
END(cuStreamEndCapture_ptsz, true, cuStreamIsCapturing_ptsz)

/* A capture ends with the stream that began it as well. The client thread must not ask about a
 * stream that ends. */
#define DESTROY(symbol)                                                                        \
    CUresult __wrap_##symbol(CUstream stream)                                                  \
    {                                                                                          \
        CUresult result;                                                                       \
        bool counted, parked;                                                                  \
                                                                                               \
        if (!gs_driver_load())                                                                 \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        counted = gs_capture_active() && gs_capture_changes(stream, false);                    \
        parked = counted || gs_capture_asks();                                                 \
        if (parked)                                                                            \
            gs_worker_park();                                                                  \
        result = gs_driver.symbol(stream);                                                     \
        if (parked)                                                                            \
            gs_worker_unpark();                                                                \
        if (counted)                                                                           \
            gs_capture_changed(stream, false, result != CUDA_SUCCESS);                         \
        return result;                                                                         \
    }

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
