/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c: the wrappers that are made from the table alone: gated calls, calls that wait, calls
 * that may need room.
 *
 * No state. On the fast path a gated call costs what gs_gate_enter() costs. After a fast pass
 * only the result is looked at. Any thread.
 */
#include "runtime/calls/freed.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/calls/hooks.h"
#include "runtime/gate/throttle.h"
#include "runtime/memory/virtual.h"
#include "runtime/range/uses.h"

#define LIKELY_FINE(pass, result)                                                              \
    __builtin_expect(((pass) == GS_PASS_FREE) & ((result) == CUDA_SUCCESS), 1)

/* stream column of the table: properties of the call (enum gs_gate_call) */
#define GS_NO_STREAM                  NULL, 0
#define GS_PTSZ(s)                    s, GS_CALL_QUEUES | GS_CALL_PER_THREAD
#define BOUND(...)                    BOUND_PICK(__VA_ARGS__, GS_CALL_QUEUES, 0)
#define BOUND_PICK(stream, call, ...) bound_work(stream, call)

#define ENTER(family, ...)                    ENTER_PICK(family, __VA_ARGS__, GS_CALL_QUEUES, 0)
#define ENTER_PICK(family, stream, call, ...) gs_gate_enter_on(stream, (call) | CALL_##family)

/* what a call's family adds */
#define CALL_LAUNCH  0
#define CALL_COPY    0
#define CALL_SET     0
#define CALL_WORK    0
#define CALL_EVENT   GS_CALL_BUILDS
#define CALL_ALLOC   0
#define CALL_CAPTURE GS_CALL_BUILDS
#define CALL_QUERY   0

/* Copies, sets and nodes that use memory which the program has freed, or that go beyond its
 * memory, are refused as the driver refuses them (freed.h). Only arguments are looked at whose
 * type says that they are an address, or contain one. */
#define AS(type, x)  _Generic((x), type : (x), default : 0)
#define HAS(type, x) _Generic((x), type : true, default : false)
#define VALUE_BYTES(x)                                                                         \
    _Generic((x), unsigned char : 1, unsigned short : 2, unsigned : 4, default : 0)
#define FREED(x, bytes)                                                                        \
    (gs_freed_address(AS(CUdeviceptr, x), bytes) ||                                            \
     gs_freed_2d(AS(const CUDA_MEMCPY2D_v2 *, x)) ||                                           \
     gs_freed_3d(AS(const CUDA_MEMCPY3D_v2 *, x)) ||                                           \
     gs_freed_3d_peer(AS(const CUDA_MEMCPY3D_PEER_v1 *, x)) ||                                 \
     gs_freed_set(AS(const CUDA_MEMSET_NODE_PARAMS_v1 *, x)) ||                                \
     gs_freed_node(AS(CUgraphNodeParams *, x)))
#define FREED_IN_LIST(a, b, c, d)                                                              \
    (gs_freed_batch(AS(CUdeviceptr *, a), AS(CUdeviceptr *, b), AS(size_t *, c),               \
                    AS(size_t, d)) ||                                                          \
     gs_freed_batch_3d(AS(CUDA_MEMCPY3D_BATCH_OP_v1 *, b), AS(size_t, a)) ||                   \
     gs_freed_batch_3d(AS(CUDA_MEMCPY3D_BATCH_OP_v1 *, a), 1) ||                               \
     gs_freed_fabric(AS(CUDA_FABRIC_COPY_BATCH_OP_v1 *, b), AS(size_t, a)))
#define ANY_FREED(bytes, ...) ANY_FREED_PICK(bytes, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define ANY_FREED_PICK(bytes, a, b, c, d, e, f, ...)                                           \
    (FREED(a, bytes) || FREED(b, bytes) || FREED(c, bytes) || FREED(d, bytes) ||               \
     FREED(e, bytes) || FREED(f, bytes) || FREED_IN_LIST(a, b, c, d))
/* the number of bytes: the last size argument; for a set, the count of values, or rows of them */
#define COPY_BYTES(...) COPY_BYTES_PICK(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define COPY_BYTES_PICK(a, b, c, d, e, ...)                                                    \
    (HAS(size_t, e) ? AS(size_t, e) : HAS(size_t, d) ? AS(size_t, d) : AS(size_t, c))
#define SET_BYTES(...) SET_BYTES_PICK(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define SET_BYTES_PICK(a, b, c, d, e, ...)                                                     \
    gs_freed_set_bytes(VALUE_BYTES(b), VALUE_BYTES(c), AS(size_t, b), AS(size_t, d),           \
                       AS(size_t, e), AS(size_t, c))
#define REFUSED_COPY(...)    ANY_FREED(COPY_BYTES(__VA_ARGS__), __VA_ARGS__)
#define REFUSED_SET(...)     ANY_FREED(SET_BYTES(__VA_ARGS__), __VA_ARGS__)
#define REFUSED_CAPTURE(...) (ANY_FREED(0, __VA_ARGS__) || REFUSED_FILLS(__VA_ARGS__, 0, 0, 0))
#define REFUSED_LAUNCH(...)  false
#define REFUSED_WORK(...)    false
#define REFUSED_EVENT(...)   false
#define REFUSED_QUERY(...)   false
#define REFUSED_ALLOC(...)   HANDLES_PICK(__VA_ARGS__, 0)
/* cuMemMapArrayAsync: only tile pools, which are the driver's own, can be behind arrays */
#define HANDLES_PICK(a, b, ...)                                                                \
    gs_virtual_is_behind(AS(CUarrayMapInfo_v1 *, a), AS(unsigned, b))

static void look_at_fill(CUgraphNode node, CUgraphNodeType type, void *refused)
{
    CUDA_MEMSET_NODE_PARAMS set;

    if (type == CU_GRAPH_NODE_TYPE_MEMSET &&
        gs_driver.cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS && gs_freed_set(&set))
        *(bool *)refused = true;
}

/* cuGraphInstantiate's kinds: the driver (580) makes nothing of a graph whose fills lie in memory
 * that was freed, or beside memory. */
static bool has_refused_fill(CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    bool refused = false;

    if (graph != NULL && gs_driver_load())
        gs_graph_walk(graph, look_at_fill, &refused);
    if (refused && params != NULL) {
        params->hErrNode_out = NULL;
        params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return refused;
}
#define REFUSED_FILLS(a, b, c, ...)                                                            \
    (HAS(CUgraphExec *, a) &&                                                                  \
     has_refused_fill(AS(CUgraph, b), AS(CUDA_GRAPH_INSTANTIATE_PARAMS *, c)))

/* A fill in a graph may leave its context to the driver, which takes the memory's (driver_api.def).
 * What is mapped behind ours has none; nor has memory of pools, whose fill the driver refuses. */
static CUcontext fill_context(CUcontext given, CUdeviceptr address)
{
    struct gs_allocation allocation;

    if (given != NULL || gs_memory_find(address, &allocation) != GS_MEMORY_LIVE ||
        allocation.own || allocation.pool != NULL)
        return given;
    return allocation.context;
}
#define GS_FILL_CONTEXT(set, given) ((set) == NULL ? (given) : fill_context(given, (set)->dst))

static CUgraphNodeParams *node_with_context(CUgraphNodeParams *given, CUgraphNodeParams *own)
{
    if (given == NULL || given->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return given;
    *own = *given;
    own->memset.ctx = fill_context(given->memset.ctx, given->memset.dst);
    return own;
}
#define GS_NODE(params) node_with_context(params, &(CUgraphNodeParams){0})

/* The memory that a call uses, for programs that are larger than the card (uses.h): the addresses and the
 * size of a copy or a set, the parameters of a launch. */
#define USED_COPY(...)    USED_SPANS(COPY_BYTES(__VA_ARGS__), __VA_ARGS__)
#define USED_SET(...)     USED_SPANS(SET_BYTES(__VA_ARGS__), __VA_ARGS__)
#define USED_LAUNCH(...)  USED_LAUNCH_PICK(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define USED_WORK(...)    ((void)0)
#define USED_EVENT(...)   ((void)0)
#define USED_ALLOC(...)   ((void)0)
#define USED_CAPTURE(...) USED_CAPTURE_PICK(__VA_ARGS__, 0, 0)
#define USED_QUERY(...)   ((void)0)

#define USED_SPANS(bytes, ...) USED_SPANS_PICK(bytes, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define USED_SPANS_PICK(bytes, a, b, c, d, ...)                                                \
    (gs_uses_span(AS(CUdeviceptr, a), bytes), gs_uses_span(AS(CUdeviceptr, b), bytes),         \
     gs_uses_span(AS(CUdeviceptr, c), bytes), gs_uses_span(AS(CUdeviceptr, d), bytes))
/* cuGraphInstantiate's kinds, and cuGraphExecUpdate's */
#define USED_CAPTURE_PICK(a, b, ...)                                                           \
    gs_graph_uses_made(exec_of(AS(CUgraphExec *, a), AS(CUgraphExec, a)), AS(CUgraph, b))
/* cuLaunchKernel has its parameters in the tenth place and the eleventh, cuLaunchKernelEx in the
 * third and the fourth */
#define USED_LAUNCH_PICK(a, b, c, d, e, f, g, h, i, j, k, ...)                                 \
    gs_graph_uses_launched(AS(CUgraphExec, a));                                                \
    gs_uses_launch(HAS(CUfunction, a) ? AS(CUfunction, a) : AS(CUfunction, b),                 \
                   HAS(void **, j) ? AS(void **, j) : AS(void **, c),                          \
                   HAS(void **, k) ? AS(void **, k) : AS(void **, d))

static CUgraphExec exec_of(const CUgraphExec *made, CUgraphExec known)
{
    return made != NULL ? *made : known;
}

static void bound_work(CUstream stream, unsigned call)
{
    if ((call & GS_CALL_QUEUES) != 0 && gs_gate_is_watched())
        gs_throttle_bound(&gs_gate_self, stream, (call & GS_CALL_PER_THREAD) != 0);
}

/* The answer to a copy or a set that is refused; CUDA_SUCCESS: it is not. Before the memory the
 * driver (580) looks at the stream. The legacy stream disturbs captures, also with no bytes; a
 * stream of the program's own needs no current context. A capture records any set, unless it is
 * invalid already. */
static CUresult refusal_on(bool sets, bool per_thread, CUstream stream)
{
    const CUstreamCaptureStatus status = gs_capture_status(stream, per_thread);
    CUresult result = CUDA_SUCCESS;
    CUcontext context;

    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && sets)
        return CUDA_SUCCESS;
    if (stream == CU_STREAM_LEGACY || (stream == NULL && !per_thread))
        result = gs_driver.cuMemsetD8Async(0, 0, 0, CU_STREAM_LEGACY);
    else if (stream != NULL && stream != CU_STREAM_PER_THREAD &&
             gs_driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS &&
             gs_context_check(context) == CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? result : gs_context_refusal();
}
#define REFUSAL_COPY(per_thread, ...)    refusal_on(false, per_thread, FIRST(__VA_ARGS__, 0))
#define REFUSAL_SET(per_thread, ...)     refusal_on(true, per_thread, FIRST(__VA_ARGS__, 0))
#define REFUSAL_CAPTURE(per_thread, ...) gs_context_refusal()
#define REFUSAL_LAUNCH                   REFUSAL_CAPTURE
#define REFUSAL_WORK                     REFUSAL_CAPTURE
#define REFUSAL_EVENT                    REFUSAL_CAPTURE
#define REFUSAL_QUERY                    REFUSAL_CAPTURE
#define REFUSAL_ALLOC                    REFUSAL_CAPTURE
#define FIRST(stream, ...)               stream

/* A call that went through the closed gate may be about memory that is away. */
static bool lacks_memory(unsigned pass)
{
    return (pass & GS_PASS_RECORDED) != 0 ||
           (pass == GS_PASS_NESTED && GS_ANY_DEVICE(gs_memory_accounts(device).missing != 0));
}

#define GS_GATE(symbol, base, since, variant, family, stream, params, args)                    \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        unsigned attempt = 0, pass;                                                            \
        CUresult result;                                                                       \
                                                                                               \
        if (REFUSED_##family args) {                                                           \
            result = REFUSAL_##family(sizeof #variant > 1, stream);                            \
            if (result != CUDA_SUCCESS)                                                        \
                return result;                                                                 \
        }                                                                                      \
        pass = ENTER(family, stream);                                                          \
        if (__builtin_expect(pass == GS_PASS_REFUSED, 0))                                      \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
        result = gs_driver.symbol args;                                                        \
        if (LIKELY_FINE(pass, result)) {                                                       \
            gs_gate_leave(GS_PASS_FREE);                                                       \
            return result;                                                                     \
        }                                                                                      \
        if (result == CUDA_ERROR_INVALID_VALUE && lacks_memory(pass)) {                        \
            gs_gate_leave(pass);                                                               \
            pass = gs_gate_enter(); /* the driver records no copy of memory that is away */    \
            if (pass == GS_PASS_REFUSED)                                                       \
                return CUDA_ERROR_OUT_OF_MEMORY;                                               \
            result = gs_driver.symbol args;                                                    \
        }                                                                                      \
        while (result == CUDA_ERROR_OUT_OF_MEMORY && (pass & GS_PASS_NESTED) == 0) {           \
            gs_gate_leave(pass);                                                               \
            if (!gs_room_make(NULL, attempt++))                                                \
                return result;                                                                 \
            pass = ENTER(family, stream);                                                      \
            if (pass == GS_PASS_REFUSED)                                                       \
                return result;                                                                 \
            result = gs_driver.symbol args;                                                    \
        }                                                                                      \
        if (result == CUDA_SUCCESS && pass == GS_PASS_WATCHED) {                               \
            BOUND(stream);                                                                     \
            if (atomic_load_explicit(&gs_uses_noted, memory_order_relaxed)) {                  \
                USED_##family args;                                                            \
            }                                                                                  \
        }                                                                                      \
        gs_gate_leave(pass);                                                                   \
        if (result != CUDA_SUCCESS)                                                            \
            gs_context_failed(NULL, result);                                                   \
        return result;                                                                         \
    }

static CUresult note_result(CUresult result)
{
    if (result != CUDA_SUCCESS)
        gs_context_failed(NULL, result);
    return result;
}

#define GS_SYNC(symbol, base, since, variant, family, params, args)                            \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        CUresult result;                                                                       \
                                                                                               \
        if (!gs_client_ready())                                                                \
            return CUDA_ERROR_NOT_INITIALIZED;                                                 \
        gs_gate_sync_begin();                                                                  \
        result = gs_driver.symbol args;                                                        \
        gs_gate_sync_end();                                                                    \
        return note_result(result);                                                            \
    }

#define GS_ROOM(symbol, base, since, variant, family, params, args)                            \
    CUresult __wrap_##symbol params                                                            \
    {                                                                                          \
        return note_result(GS_READY(GS_IN_ROOM(NULL, gs_driver.symbol args)));                 \
    }

#include "wrap/driver_api.def"
