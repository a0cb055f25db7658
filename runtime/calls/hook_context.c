/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_context.c: notes when contexts, and captures of streams, begin and end: the client thread
 * drains contexts and copies memory in them, and memory ends with the context in which it was
 * allocated.
 *
 * A context ends while the client thread is parked, so that the thread never works in a context
 * that ends. No state.
 */
#include "runtime/calls/hooks.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/gate/throttle.h"
#include "runtime/memory/dispose.h"
#include "runtime/memory/stream_order.h"
#include "runtime/range/edge.h"
#include "runtime/range/host.h"

CUresult __wrap_cuInit(unsigned int flags)
{
    return GS_READY(gs_driver.cuInit(flags));
}

static CUresult note_created(CUcontext *context, CUdevice ordinal, CUresult result)
{
    if (result != CUDA_SUCCESS || context == NULL)
        return result;
    gs_edge_begin(ordinal, NULL); /* for the daemon's first report */
    gs_client_attach(*context, ordinal);
    gs_edge_begin(ordinal, gs_room_make);
    return result;
}

static bool room_for_context(CUdevice ordinal, unsigned attempt)
{
    if (attempt == 0)
        gs_client_attach_room(ordinal);
    return gs_room_make(gs_device_get(ordinal), attempt);
}

/* creates a context, and makes room for it if the card is full */
#define WITH_ROOM(ordinal, call)                                                               \
    ({                                                                                         \
        CUresult made = GS_READY(CUDA_SUCCESS);                                                \
        unsigned attempt = 0;                                                                  \
                                                                                               \
        if (made == CUDA_SUCCESS) {                                                            \
            gs_client_begin(ordinal);                                                          \
            do                                                                                 \
                made = (call);                                                                 \
            while (made == CUDA_ERROR_OUT_OF_MEMORY && room_for_context(ordinal, attempt++));  \
        }                                                                                      \
        made;                                                                                  \
    })

#define CREATE(symbol, params, args)                                                           \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        return note_created(pctx, dev, WITH_ROOM(dev, gs_driver.symbol args));                 \
    }

CREATE(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev), (pctx, dev))
CREATE(cuCtxCreate, (CUcontext * pctx, unsigned flags, CUdevice dev), (pctx, flags, dev))
CREATE(cuCtxCreate_v2, (CUcontext * pctx, unsigned flags, CUdevice dev), (pctx, flags, dev))
CREATE(cuCtxCreate_v3,
       (CUcontext * pctx, CUexecAffinityParam *affinity, int count, unsigned flags,
        CUdevice dev),
       (pctx, affinity, count, flags, dev))
CREATE(cuCtxCreate_v4,
       (CUcontext * pctx, CUctxCreateParams *params, unsigned flags, CUdevice dev),
       (pctx, params, flags, dev))

/* While a context ends, no thread of ours works in it: neither the client thread nor a thread
 * that asks about its events. */
static void quieten_contexts(void)
{
    gs_worker_park();
    gs_stream_order_hold_off();
}

static void go_on(void)
{
    gs_stream_order_release();
    gs_worker_unpark();
}

static void forget_context(CUcontext context)
{
    gs_host_context_ended(context);
    gs_context_remove(context);
    gs_throttle_context_ended(context);
    gs_capture_context_ended(context);
    gs_memory_context_ended(context);
    gs_edges_context_ended();
}

/* ends a context by handle */
#define END_CONTEXT(symbol, type, handle_of)                                                   \
    CUresult __wrap_##symbol(type argument)                                                    \
    {                                                                                          \
        CUcontext context;                                                                     \
        CUresult result;                                                                       \
                                                                                               \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        context = handle_of(argument);                                                         \
        quieten_contexts();                                                                    \
        result = gs_driver.symbol(argument);                                                   \
        if (result == CUDA_SUCCESS && context != NULL)                                         \
            forget_context(context);                                                           \
        go_on();                                                                               \
        return result;                                                                         \
    }

static CUcontext context_itself(CUcontext context)
{
    return context;
}

END_CONTEXT(cuCtxDestroy, CUcontext, context_itself)
END_CONTEXT(cuCtxDestroy_v2, CUcontext, context_itself)
END_CONTEXT(cuCtxDetach, CUcontext, context_itself)

/* A primary context ends by its device, when its last retain is released or when it is reset.
 * Its handle is asked for before, with a retain of our own that is released at once. */
static CUcontext context_primary(CUdevice ordinal)
{
    CUcontext context = NULL;
    unsigned flags;
    int active = 0;

    if (gs_driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS ||
        active == 0)
        return NULL;
    if (gs_driver.cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS)
        return NULL;
    gs_driver.cuDevicePrimaryCtxRelease_v2(ordinal);
    return context;
}

static bool primary_is_gone(CUdevice ordinal)
{
    unsigned flags;
    int active = 1;

    return gs_driver.cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CUDA_SUCCESS &&
           active == 0;
}

/* A green context retains its primary context, to which its work and memory belong. */
CUresult __wrap_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                                 unsigned int flags)
{
    CUcontext context = NULL, home;
    struct gs_device *device;
    const CUresult result = WITH_ROOM(dev, gs_driver.cuGreenCtxCreate(phCtx, desc, dev, flags));

    if (result != CUDA_SUCCESS || gs_driver.cuCtxFromGreenCtx(&context, *phCtx) != CUDA_SUCCESS)
        return result;
    home = context_primary(dev);
    device = gs_device_get(dev);
    if (home == NULL || device == NULL)
        return result;
    gs_client_attach(home, dev);
    if (!gs_context_add_green(context, home, device))
        gs_daemon_remark("out of memory while recording a green context");
    return result;
}

CUresult __wrap_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    const struct gs_context *known = NULL;
    CUcontext context, home = NULL;
    CUdevice ordinal = -1;
    CUresult result;

    if (!gs_client_ready())
        return CUDA_ERROR_NOT_INITIALIZED;
    quieten_contexts();
    if (gs_driver.cuCtxFromGreenCtx(&context, hCtx) == CUDA_SUCCESS)
        known = gs_context_find(context);
    if (known != NULL) {
        home = known->home;
        ordinal = known->device->ordinal;
    }
    result = gs_driver.cuGreenCtxDestroy(hCtx);
    if (result == CUDA_SUCCESS && known != NULL) {
        forget_context(context);
        if (home != NULL && primary_is_gone(ordinal))
            forget_context(home);
    }
    go_on();
    return result;
}

#define END_PRIMARY(symbol)                                                                    \
    CUresult __wrap_##symbol(CUdevice dev)                                                     \
    {                                                                                          \
        CUcontext context;                                                                     \
        CUresult result;                                                                       \
                                                                                               \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        quieten_contexts();                                                                    \
        context = context_primary(dev);                                                        \
        result = gs_driver.symbol(dev);                                                        \
        if (result == CUDA_SUCCESS && context != NULL && primary_is_gone(dev))                 \
            forget_context(context);                                                           \
        go_on();                                                                               \
        return result;                                                                         \
    }

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)

/* under the lock: false if it was there already, or the list is full */
static bool note_peer(struct gs_device *device, CUdevice peer)
{
    for (unsigned i = 0; i < device->peers.count; i++)
        if (device->peers.ordinals[i] == peer)
            return false;
    if (device->peers.count == GS_MAX_PEERS)
        return false;
    device->peers.ordinals[device->peers.count++] = peer;
    return true;
}

/* The driver gives a peer access to all memory of cuMemAlloc, also to later allocations; to VMM
 * memory it gives access mapping by mapping. Chunks on the device get it now, the others when
 * they come in. */
static void share_with(struct gs_device *device, CUdevice peer)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const bool is_new = GS_WITH_MEMORY(note_peer(device, peer));

    /* managed memory can be reached by all devices */
    if (is_new && !device->managed && gs_range_grant(device, NULL, &access, 1) != CUDA_SUCCESS)
        gs_log("device %d could not be given access to all memory of device %d", peer,
               device->ordinal);
}

CUresult __wrap_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int flags)
{
    CUdevice here, there = -1;
    unsigned pass;
    CUresult result = GS_READY(gs_driver.cuCtxEnablePeerAccess(peerContext, flags));

    if (result != CUDA_SUCCESS || gs_driver.cuCtxGetDevice(&here) != CUDA_SUCCESS ||
        gs_driver.cuCtxPushCurrent_v2(peerContext) != CUDA_SUCCESS)
        return result;
    if (gs_driver.cuCtxGetDevice(&there) != CUDA_SUCCESS)
        there = -1;
    gs_context_pop();
    pass = gs_gate_enter(); /* nothing moves inside */
    if (there >= 0 && gs_device_get(there) != NULL)
        share_with(gs_device_get(there), here);
    if (pass != GS_PASS_REFUSED)
        gs_gate_leave(pass);
    return result;
}

/* The calls that begin and end stream captures, which gate/capture.c counts. */

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
