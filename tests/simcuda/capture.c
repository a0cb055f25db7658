/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.c: owns stream captures: what is submitted to a capturing stream becomes a node of a
 * graph.
 *
 * Rules kept as a card's driver keeps them (CUDA programming guide, "stream capture"; driver
 * API, cuStreamBeginCapture): a stream joins a capture by waiting for an event recorded in it
 * and must be joined back before the end; synchronising or asking about what is captured, and
 * calls that are unsafe in the capture's mode, fail and invalidate the capture; the legacy
 * stream cannot be used while a blocking stream of its context captures. Invariants: a capture
 * is in sim.captures from begin to end; events name it by number, since they may outlive it.
 * Threads: any, under sim.lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

/* -- sets of nodes -- */

int sim_nodes_add(struct sim_nodes *nodes, struct sim_node *node)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->item[i] == node)
            return 0;
    if ((nodes->count & (nodes->count - 1)) == 0) { /* full at every power of two */
        const size_t capacity = nodes->count ? nodes->count * 2 : 1;
        struct sim_node **item = realloc(nodes->item, capacity * sizeof(struct sim_node *));
        if (!item)
            return -ENOMEM;
        nodes->item = item;
    }
    nodes->item[nodes->count++] = node;
    return 0;
}

void sim_nodes_clear(struct sim_nodes *nodes)
{
    free(nodes->item);
    *nodes = (struct sim_nodes){0};
}

static int nodes_add_all(struct sim_nodes *nodes, const struct sim_nodes *more)
{
    int rc = 0;

    for (size_t i = 0; i < more->count && !rc; i++)
        rc = sim_nodes_add(nodes, more->item[i]);
    return rc;
}

/* -- captures -- */

struct sim_capture *sim_capture_by_id(uint64_t id)
{
    struct sim_capture *capture = sim.captures;

    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

void sim_capture_invalidate(struct sim_capture *capture)
{
    capture->invalid = true;
}

bool sim_capture_forbids(void)
{
    bool forbidden = false;

    if (sim_thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    for (struct sim_capture *capture = sim.captures; capture; capture = capture->next) {
        const bool mine = capture->thread == &sim_thread;
        const bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                            sim_thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!global && !(mine && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED))
            continue;
        sim_capture_invalidate(capture);
        forbidden = true;
    }
    return forbidden;
}

/* The legacy stream beside a capture of a blocking stream: work that is submitted spoils that. */
static CUresult check_legacy(const struct sim_stream *stream, bool submits)
{
    CUresult result = CUDA_SUCCESS;

    if (!stream->legacy)
        return CUDA_SUCCESS;
    for (const struct sim_stream *other = stream->context->streams; other; other = other->next)
        if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
            if (submits)
                sim_capture_invalidate(other->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult sim_capture_check_submit(struct sim_stream *stream)
{
    const CUresult sticky = __atomic_load_n(&stream->context->sticky, __ATOMIC_RELAXED);

    if (sticky)
        return sticky;
    return stream->capture && stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                       : check_legacy(stream, true);
}

CUresult sim_capture_check_sync(struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;

    for (const struct sim_stream *stream = context->streams; stream; stream = stream->next)
        if (stream->capture) {
            sim_capture_invalidate(stream->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult sim_capture_add(struct sim_stream *stream, struct sim_op *op)
{
    struct sim_capture *capture = stream->capture;

    if (capture->invalid) {
        sim_op_put(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct sim_node *node = sim_graph_add(capture->graph, op, op->type, &stream->capture_tip);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture_tip.count = 0;
    return sim_nodes_add(&stream->capture_tip, node) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult sim_capture_record_event(struct sim_stream *stream, struct sim_event *event)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_nodes_clear(&event->tip);
    event->capture_id = stream->capture->id;
    return nodes_add_all(&event->tip, &stream->capture_tip) ? CUDA_ERROR_OUT_OF_MEMORY
                                                            : CUDA_SUCCESS;
}

CUresult sim_capture_wait_event(struct sim_stream *stream, struct sim_event *event)
{
    struct sim_capture *capture =
        event->capture_id ? sim_capture_by_id(event->capture_id) : NULL;

    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->capture_id) { /* work outside of the capture: it would be lost on replay */
        if (!event->fence || !stream->capture)
            return CUDA_SUCCESS;
        sim_capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!capture)
        return CUDA_ERROR_CAPTURED_EVENT; /* of a capture that has ended */
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != capture) {
        sim_capture_invalidate(stream->capture);
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream->capture = capture;
    return nodes_add_all(&stream->capture_tip, &event->tip) ? CUDA_ERROR_OUT_OF_MEMORY
                                                            : CUDA_SUCCESS;
}

/* graph NULL: a new one. */
static CUresult capture_begin(struct sim_call *call, struct sim_stream *stream,
                              CUstreamCaptureMode mode, struct sim_graph *graph,
                              const CUgraphNode *needs, size_t need_count)
{
    if (!stream)
        return call->result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (need_count && !needs))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    for (size_t i = 0; i < need_count; i++)
        if (!sim_handle_is(needs[i], SIM_KIND_NODE) ||
            ((struct sim_node *)needs[i])->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    struct sim_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->own_graph = graph == NULL;
    capture->graph = graph ? graph : sim_graph_new();
    if (!capture->graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->id = sim.next_id++;
    capture->origin = stream;
    capture->thread = &sim_thread;
    capture->mode = mode;
    capture->next = sim.captures;
    sim.captures = capture;
    stream->capture = capture;
    stream->capture_tip.count = 0;
    int rc = 0;
    for (size_t i = 0; i < need_count && !rc; i++)
        rc = sim_nodes_add(&stream->capture_tip, (struct sim_node *)needs[i]);
    return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Every node that nothing needs must be in the origin's tip, or a stream was not joined. */
static bool all_joined(const struct sim_capture *capture)
{
    const struct sim_nodes *nodes = &capture->graph->nodes,
                           *tip = &capture->origin->capture_tip;
    const uint64_t mark = sim.next_id++;

    for (size_t i = 0; i < nodes->count; i++)
        for (size_t k = 0; k < nodes->item[i]->needs.count; k++)
            nodes->item[i]->needs.item[k]->mark = mark;
    for (size_t k = 0; k < tip->count; k++)
        tip->item[k]->mark = mark;
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->item[i]->mark != mark)
            return false;
    return true;
}

static void capture_free(struct sim_capture *capture)
{
    struct sim_capture **link = &sim.captures;

    for (struct sim_context *context = sim.contexts; context; context = context->next)
        for (struct sim_stream *stream = context->streams; stream; stream = stream->next)
            if (stream->capture == capture) {
                stream->capture = NULL;
                stream->capture_tip.count = 0;
            }
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
}

static CUresult capture_end(struct sim_call *call, struct sim_stream *stream, CUgraph *out)
{
    if (!stream)
        return call->result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    struct sim_capture *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        sim_capture_invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &sim_thread)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = CUDA_SUCCESS;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (capture->own_graph && !all_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    struct sim_graph *graph = capture->graph;
    const bool own = capture->own_graph;
    capture_free(capture);
    if (result && own)
        sim_graph_free(graph);
    else if (!result)
        *out = (CUgraph)graph;
    return result;
}

static CUstreamCaptureStatus status_of(const struct sim_stream *stream)
{
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult capture_status(struct sim_call *call, struct sim_stream *stream,
                               CUstreamCaptureStatus *status)
{
    if (!stream)
        return call->result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(stream);
    return check_legacy(stream, false);
}

static CUresult capture_info(struct sim_call *call, struct sim_stream *stream,
                             CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                             const CUgraphNode **needs, const CUgraphEdgeData **edges,
                             size_t *count)
{
    const CUresult result = capture_status(call, stream, status);

    if (edges)
        *edges = NULL;
    if (result || !stream->capture)
        return result;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = (CUgraph)stream->capture->graph;
    if (needs)
        *needs = (const CUgraphNode *)(void *)stream->capture_tip.item;
    if (count)
        *count = stream->capture_tip.count;
    return CUDA_SUCCESS;
}

static CUresult capture_update(struct sim_call *call, struct sim_stream *stream,
                               CUgraphNode *needs, size_t count, unsigned flags)
{
    int rc = 0;

    if (!stream)
        return call->result;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (flags > 1 || (count && !needs))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!sim_handle_is(needs[i], SIM_KIND_NODE) ||
            ((struct sim_node *)needs[i])->graph != stream->capture->graph)
            return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        stream->capture_tip.count = 0;
    for (size_t i = 0; i < count && !rc; i++)
        rc = sim_nodes_add(&stream->capture_tip, (struct sim_node *)needs[i]);
    return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult mode_exchange(CUstreamCaptureMode *mode)
{
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = sim_thread.capture_mode;
    sim_thread.capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

#define STREAM sim_stream(&call, stream, per_thread)

SIM_STREAM_API(cuStreamBeginCapture, _ptsz, (CUstream stream), SIM_CTX,
               capture_begin(&call, STREAM, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))
SIM_STREAM_API(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode),
               SIM_CTX, capture_begin(&call, STREAM, mode, NULL, NULL, 0))
SIM_STREAM_API(cuStreamBeginCaptureToGraph, _ptsz,
               (CUstream stream, CUgraph graph, const CUgraphNode *needs,
                const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
               SIM_CTX,
               edges ? CUDA_ERROR_NOT_SUPPORTED
               : sim_handle_is(graph, SIM_KIND_GRAPH)
                   ? capture_begin(&call, STREAM, mode, (struct sim_graph *)graph, needs, count)
                   : CUDA_ERROR_INVALID_VALUE)
SIM_STREAM_API(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph *graph), SIM_CTX,
               capture_end(&call, STREAM, graph))
SIM_STREAM_API(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus *status),
               SIM_INIT, capture_status(&call, STREAM, status))
SIM_STREAM_API(cuStreamGetCaptureInfo, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), SIM_CTX,
               capture_info(&call, STREAM, status, id, NULL, NULL, NULL, NULL))
SIM_STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **needs, size_t *count),
               SIM_CTX, capture_info(&call, STREAM, status, id, graph, needs, NULL, count))
SIM_STREAM_API(cuStreamGetCaptureInfo_v3, _ptsz,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count),
               SIM_CTX, capture_info(&call, STREAM, status, id, graph, needs, edges, count))
SIM_STREAM_API(cuStreamUpdateCaptureDependencies, _ptsz,
               (CUstream stream, CUgraphNode *needs, size_t count, unsigned int flags), SIM_CTX,
               capture_update(&call, STREAM, needs, count, flags))
SIM_STREAM_API(cuStreamUpdateCaptureDependencies_v2, _ptsz,
               (CUstream stream, CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count,
                unsigned int flags),
               SIM_CTX,
               edges ? CUDA_ERROR_NOT_SUPPORTED
                     : capture_update(&call, STREAM, needs, count, flags))
SIM_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), SIM_INIT,
        mode_exchange(mode))
