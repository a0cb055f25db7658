/* SPDX-License-Identifier: Apache-2.0
 *
 * hook_context.c: notes when contexts begin and end: the client thread drains them and copies
 * memory in them, and memory ends with the context in which it was allocated.
 *
 * A context ends while the client thread is parked, so that the thread never works in a context
 * that ends. No state.
 */
#include "runtime/range/edge.h"
#include "runtime/calls/hooks.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/memory/stream_order.h"
#include "runtime/gate/throttle.h"
#include "runtime/memory/dispose.h"

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
