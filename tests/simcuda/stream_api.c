/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_api.c: owns the calls about streams and events, and what is put into a stream that is
 * no copy or launch: host functions.
 *
 * Invariants: an event refers to the fence of the operation that recorded it last, or to the
 * nodes of a capture. Threads: any, under sim.lock; the operations run on workers.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

/* -- streams -- */

CUresult sim_stream_create(struct sim_context *context, CUstream *out, unsigned flags,
                           int priority)
{
    if (!out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    const int bounded = priority < -5 ? -5 : (priority > 0 ? 0 : priority);
    struct sim_stream *stream = sim_stream_new(context, flags, bounded);
    if (!stream || sim_handle_add(stream, SIM_KIND_STREAM)) {
        if (stream)
            sim_stream_close(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUstream)stream;
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream handle)
{
    struct sim_stream *stream = (struct sim_stream *)handle;

    if (!sim_handle_is(stream, SIM_KIND_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_close(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(struct sim_call *call, struct sim_stream *stream, bool wait)
{
    if (!stream)
        return call->result;
    if (stream->capture) {
        sim_capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = sim_capture_check_submit(stream);
    if (result)
        return result;
    if (wait)
        return sim_stream_wait(stream);
    result = __atomic_load_n(&stream->context->sticky, __ATOMIC_RELAXED);
    return result ? result : (sim_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

enum stream_fact { FACT_PRIORITY, FACT_FLAGS, FACT_ID, FACT_CONTEXT, FACT_DEVICE };

static CUresult stream_fact(struct sim_call *call, struct sim_stream *stream,
                            enum stream_fact fact, void *out)
{
    if (!stream)
        return call->result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    switch (fact) {
    case FACT_PRIORITY:
        *(int *)out = stream->priority;
        break;
    case FACT_FLAGS:
        *(unsigned *)out = stream->flags;
        break;
    case FACT_ID:
        *(unsigned long long *)out = stream->id;
        break;
    case FACT_CONTEXT:
        *(CUcontext *)out = (CUcontext)stream->context;
        break;
    case FACT_DEVICE:
        *(CUdevice *)out = (CUdevice)stream->context->device;
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult stream_context_v2(struct sim_call *call, struct sim_stream *stream,
                                  CUcontext *out, CUgreenCtx *green)
{
    const CUresult result = stream_fact(call, stream, FACT_CONTEXT, out);

    if (!result && green)
        *green = stream->context->owner ? (CUgreenCtx)stream->context : NULL;
    return result;
}

/* -- events -- */

static struct sim_event *event_of(CUevent handle)
{
    struct sim_event *event = (struct sim_event *)handle;

    return sim_handle_is(event, SIM_KIND_EVENT) ? event : NULL;
}

static CUresult event_create(const struct sim_context *context, CUevent *out, unsigned flags)
{
    if (!out || (flags & ~7u) ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_event *event = calloc(1, sizeof *event);
    if (!event || sim_handle_add(event, SIM_KIND_EVENT)) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->flags = flags;
    event->context_id = context->id;
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent handle)
{
    struct sim_event *event = event_of(handle);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_handle_remove(event);
    sim_fence_put(event->fence);
    free(event->tip.item);
    free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(struct sim_call *call, CUevent handle, struct sim_stream *stream)
{
    struct sim_event *event = event_of(handle);
    struct sim_fence *fence = NULL;

    if (!stream)
        return call->result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return sim_capture_record_event(stream, event);
    struct sim_op *op =
        sim_op_new(sizeof *op, "event record", CU_GRAPH_NODE_TYPE_EVENT_RECORD, NULL);
    const CUresult result = sim_submit_after(call, stream, op, NULL, &fence);
    if (result)
        return result;
    sim_fence_put(event->fence);
    event->fence = fence;
    event->capture_id = 0;
    return CUDA_SUCCESS;
}

static CUresult event_wait(struct sim_call *call, struct sim_stream *stream, CUevent handle,
                           unsigned flags)
{
    struct sim_event *event = event_of(handle);

    if (!stream)
        return call->result;
    if (!event || (flags & ~1u))
        return event ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    if (event->capture_id || stream->capture)
        return sim_capture_wait_event(stream, event);
    if (!event->fence || event->fence->done)
        return CUDA_SUCCESS;
    struct sim_op *op =
        sim_op_new(sizeof *op, "event wait", CU_GRAPH_NODE_TYPE_WAIT_EVENT, NULL);
    return sim_submit_after(call, stream, op, event->fence, NULL);
}

static CUresult event_finished(CUevent handle, bool wait)
{
    const struct sim_event *event = event_of(handle);

    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture_id) {
        struct sim_capture *capture = sim_capture_by_id(event->capture_id);
        if (capture)
            sim_capture_invalidate(capture);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (!event->fence || event->fence->done)
        return CUDA_SUCCESS;
    if (!wait)
        return CUDA_ERROR_NOT_READY;
    struct sim_fence *fence = sim_fence_get(event->fence);
    sim_fence_wait(fence);
    sim_fence_put(fence);
    return CUDA_SUCCESS;
}

static CUresult event_sync(struct sim_call *call, CUevent handle, bool wait)
{
    const CUresult result = event_finished(handle, wait);

    return result ? result : __atomic_load_n(&call->context->sticky, __ATOMIC_RELAXED);
}

static CUresult event_elapsed(float *milliseconds, CUevent start_handle, CUevent end_handle)
{
    const struct sim_event *start = event_of(start_handle), *end = event_of(end_handle);

    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!start || !end || !start->fence || !end->fence ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->fence->done || !end->fence->done)
        return CUDA_ERROR_NOT_READY;
    *milliseconds =
        (float)((double)(int64_t)(end->fence->done_ns - start->fence->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

/* -- host functions -- */

struct host_op {
    struct sim_op op;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream stream;
    void *data;
};

static CUresult host_run(const struct sim_op *op, struct sim_context *context)
{
    const struct host_op *host = (const struct host_op *)op;

    if (host->callback)
        host->callback(host->stream, __atomic_load_n(&context->sticky, __ATOMIC_RELAXED),
                       host->data);
    else
        host->function(host->data);
    return CUDA_SUCCESS;
}

struct sim_op *sim_host_op(CUhostFn function, void *data)
{
    struct host_op *host = (struct host_op *)sim_op_new(sizeof *host, "host function",
                                                        CU_GRAPH_NODE_TYPE_HOST, host_run);

    if (!host)
        return NULL;
    host->function = function;
    host->data = data;
    return &host->op;
}

void sim_host_params(const struct sim_op *op, CUDA_HOST_NODE_PARAMS *out)
{
    const struct host_op *host = (const struct host_op *)op;

    *out = (CUDA_HOST_NODE_PARAMS){.fn = host->function, .userData = host->data};
}

static CUresult callback_add(struct sim_call *call, struct sim_stream *stream, CUstream handle,
                             CUstreamCallback callback, void *data)
{
    if (!callback)
        return CUDA_ERROR_INVALID_VALUE;
    struct host_op *host = (struct host_op *)sim_host_op(NULL, data);
    if (host) {
        host->callback = callback;
        host->stream = handle;
    }
    return sim_submit(call, stream, host ? &host->op : NULL);
}

#define STREAM sim_stream(&call, stream, per_thread)

SIM_API(cuStreamCreate, (CUstream * out, unsigned int flags), SIM_CTX,
        sim_stream_create(call.context, out, flags, 0))
SIM_API(cuStreamCreateWithPriority, (CUstream * out, unsigned int flags, int priority), SIM_CTX,
        sim_stream_create(call.context, out, flags, priority))
SIM_API(cuStreamDestroy, (CUstream stream), SIM_INIT, stream_destroy(stream))
SIM_API(cuStreamDestroy_v2, (CUstream stream), SIM_INIT, stream_destroy(stream))
SIM_STREAM_API(cuStreamSynchronize, _ptsz, (CUstream stream), SIM_CTX | SIM_UNSAFE,
               stream_synchronize(&call, STREAM, true))
SIM_STREAM_API(cuStreamQuery, _ptsz, (CUstream stream), SIM_CTX | SIM_UNSAFE,
               stream_synchronize(&call, STREAM, false))
SIM_STREAM_API(cuStreamGetPriority, _ptsz, (CUstream stream, int *priority), SIM_CTX,
               stream_fact(&call, STREAM, FACT_PRIORITY, priority))
SIM_STREAM_API(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned int *flags), SIM_CTX,
               stream_fact(&call, STREAM, FACT_FLAGS, flags))
SIM_STREAM_API(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id), SIM_INIT,
               stream_fact(&call, STREAM, FACT_ID, id))
SIM_STREAM_API(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext *out), SIM_INIT,
               stream_fact(&call, STREAM, FACT_CONTEXT, out))
SIM_STREAM_API(cuStreamGetCtx_v2, _ptsz, (CUstream stream, CUcontext *out, CUgreenCtx *green),
               SIM_CTX, stream_context_v2(&call, STREAM, out, green))
SIM_STREAM_API(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice *device), SIM_CTX,
               stream_fact(&call, STREAM, FACT_DEVICE, device))
SIM_API(cuEventCreate, (CUevent * out, unsigned int flags), SIM_CTX,
        event_create(call.context, out, flags))
SIM_API(cuEventDestroy, (CUevent event), SIM_INIT, event_destroy(event))
SIM_API(cuEventDestroy_v2, (CUevent event), SIM_INIT, event_destroy(event))
SIM_STREAM_API(cuEventRecord, _ptsz, (CUevent event, CUstream stream), SIM_INIT,
               event_record(&call, event, STREAM))
SIM_STREAM_API(cuEventRecordWithFlags, _ptsz,
               (CUevent event, CUstream stream, unsigned int flags), SIM_CTX,
               flags & ~1u ? CUDA_ERROR_INVALID_VALUE : event_record(&call, event, STREAM))
SIM_API(cuEventQuery, (CUevent event), SIM_CTX | SIM_UNSAFE, event_sync(&call, event, false))
SIM_API(cuEventSynchronize, (CUevent event), SIM_CTX | SIM_UNSAFE,
        event_sync(&call, event, true))
SIM_API(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end), SIM_CTX,
        event_elapsed(milliseconds, start, end))
SIM_API(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end), SIM_CTX,
        event_elapsed(milliseconds, start, end))
SIM_STREAM_API(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned int flags),
               SIM_CTX, event_wait(&call, STREAM, event, flags))
SIM_STREAM_API(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void *data),
               SIM_CTX,
               function ? sim_submit(&call, STREAM, sim_host_op(function, data))
                        : CUDA_ERROR_INVALID_VALUE)
SIM_STREAM_API(cuLaunchHostFunc_v2, _ptsz,
               (CUstream stream, CUhostFn function, void *data, unsigned int sync_mode),
               SIM_CTX,
               function &&sync_mode <= 1
                   ? sim_submit(&call, STREAM, sim_host_op(function, data))
                   : CUDA_ERROR_INVALID_VALUE)
SIM_STREAM_API(cuStreamAddCallback, _ptsz,
               (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags),
               SIM_CTX,
               flags ? CUDA_ERROR_INVALID_VALUE
                     : callback_add(&call, STREAM, stream, callback, data))
