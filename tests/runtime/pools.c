/* SPDX-License-Identifier: Apache-2.0
 *
 * pools.c: single cases of stream-ordered memory and pools on the simulated card, one an
 * invocation: pools CASE (test_calls.py runs them, with and without gpushare where both must do the
 * same). A host function holds a stream up, so that "not yet passed" lasts as long as a case
 * wants. Threads: the driver's, and one that lets it go.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/pools.h"

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static _Atomic(bool) held;

static void CUDA_CB hold_stream(void *unused)
{
    const struct timespec pause = {0, 500000};

    (void)unused;
    while (atomic_load(&held))
        nanosleep(&pause, NULL);
}

static void hold_back(CUstream stream)
{
    atomic_store(&held, true);
    OK(cuLaunchHostFunc(stream, hold_stream, NULL));
}

static void let_go(void)
{
    atomic_store(&held, false);
}

/* What one stream frees is its own again at once. True: and another's when it was passed. */
static bool order_once(size_t bytes)
{
    const CUstream a = stream_new(), b = stream_new();
    CUdeviceptr first, second, third, fourth;

    OK(cuMemAllocAsync(&first, bytes, a));
    OK(cuMemsetD8Async(first, 1, bytes, a));
    hold_back(a);
    OK(cuMemFreeAsync(first, a));
    OK(cuMemAllocAsync(&second, bytes, b));
    CHECK(second + bytes <= first || first + bytes <= second);
    OK(cuMemsetD8Async(second, 2, bytes, b));
    OK(cuMemAllocAsync(&third, bytes, a));
    CHECK(third == first);
    OK(cuMemsetD8Async(third, 3, bytes, a));
    let_go();
    OK(cuStreamSynchronize(a));
    OK(cuStreamSynchronize(b));
    expect_bytes(second, bytes, 2);
    expect_bytes(third, bytes, 3);
    OK(cuMemFreeAsync(third, a));
    OK(cuStreamSynchronize(a));
    read_amount(default_pool(),
                CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); /* looks what was passed */
    OK(cuMemAllocAsync(&fourth, bytes, b));
    OK(cuMemFreeAsync(fourth, b));
    OK(cuMemFreeAsync(second, b));
    OK(cuStreamSynchronize(b));
    OK(cuStreamDestroy(a));
    OK(cuStreamDestroy(b));
    return fourth == first;
}

/* Memory that was passed is kept for a second, and not while the library's own thread has it in
 * hand: on a busy machine it may be gone, but not every time. No stream is made to wait for another
 * one's memory, as it is where a daemon on a busy machine has not given any yet. */
static void order_of_size(size_t bytes)
{
    bool again = false;
    int waits = 0;

    OK(cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                             &waits));
    for (unsigned rounds = 0; rounds < 100 && !again; rounds++)
        again = order_once(bytes);
    CHECK(again);
}

static void case_order_large(void)
{
    begin_context();
    order_of_size(6 * MIB);
}

/* A graph's memory, far more than is asked for at a time, on a card that another program has
 * (test_moves.py). */
static void case_graph_large(void)
{
    CUgraphExec exec;
    CUdeviceptr memory;
    CUstream stream;
    CUgraph graph;

    begin_context();
    stream = stream_new();
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&memory, 40 * MIB, stream));
    OK(cuMemsetD8Async(memory, 3, 40 * MIB, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    expect_bytes(memory, 40 * MIB, 3);
}

static void case_order_small(void)
{
    begin_context();
    order_of_size(300);
}

/* in a green context, which only this thread can enter */
static void case_order_green(void)
{
    begin_context();
    begin_green();
    order_of_size(6 * MIB);
    order_of_size(300);
}

/* A stream's handle may be used again for another stream while the first stream's work goes on. Memory
 * that the first one has freed may be passed on for lack of other memory, behind that work. */
static void case_stream_gone(void)
{
    CUstream a, b;
    CUdeviceptr first, second;

    begin_context();
    a = stream_new();
    OK(cuMemAllocAsync(&first, 4 * MIB, a));
    hold_back(a);
    OK(cuMemFreeAsync(first, a));
    OK(cuStreamDestroy(a));
    b = stream_new();
    OK(cuMemAllocAsync(&second, 4 * MIB, b));
    if (second == first)
        GIVES(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(b));
}

static void case_frees(void)
{
    CUdeviceptr async, plain, small, address = 0;
    CUstream stream;

    begin_context();
    stream = stream_new();
    OK(cuMemAllocAsync(&address, 0, stream)); /* as a real driver (580) */
    GIVES(cuMemAllocAsync(NULL, 10, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocAsync(&address, SIZE_MAX, stream), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAllocFromPoolAsync(&address, 10, NULL, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&async, 5 * MIB, stream));
    OK(cuMemAllocAsync(&small, 100, stream));
    OK(cuMemAlloc(&plain, 5 * MIB));
    GIVES(cuMemFreeAsync(async + 1, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFreeAsync(small + 1, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(async));
    GIVES(cuMemFreeAsync(async, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(async), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(plain, stream));
    GIVES(cuMemFreeAsync(plain, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(small, stream));
    GIVES(cuMemFreeAsync(small, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
}

/* GPUSHARE_DEVICE_LIMIT=32MiB: the only memory there is waits for another stream */
static void case_wait_behind(void)
{
    CUdeviceptr first, second;
    CUstream a, b;

    begin_context();
    a = stream_new();
    b = stream_new();
    OK(cuMemAllocAsync(&first, 20 * MIB, a));
    hold_back(a);
    OK(cuMemsetD8Async(first, 1, 20 * MIB, a));
    OK(cuMemFreeAsync(first, a));
    OK(cuMemAllocAsync(&second, 20 * MIB, b));
    OK(cuMemsetD8Async(second, 2, 20 * MIB, b));
    let_go();
    OK(cuStreamSynchronize(a));
    OK(cuStreamSynchronize(b));
    expect_bytes(second, 20 * MIB, 2);
    OK(cuMemFreeAsync(second, b));
}

static bool is_in(CUdeviceptr piece, CUdeviceptr memory, size_t bytes)
{
    return piece >= memory && piece < memory + bytes;
}

/* Memory that one stream has freed and not passed is no other stream's, also when the first stream
 * has a small part of it again. */
static void slab_of_freed(size_t bytes)
{
    const CUstream a = stream_new(), b = stream_new();
    CUdeviceptr freed, own, others;

    OK(cuMemAllocAsync(&freed, 2 * MIB, a));
    hold_back(a);
    OK(cuMemsetD8Async(freed, 1, 2 * MIB, a));
    OK(cuMemFreeAsync(freed, a));
    OK(cuMemAllocAsync(&own, bytes, a));
    OK(cuMemAllocAsync(&others, bytes, b));
    CHECK(!is_in(others, freed, 2 * MIB));
    let_go();
    OK(cuMemFreeAsync(own, a));
    OK(cuMemFreeAsync(others, b));
    OK(cuStreamSynchronize(a));
    OK(cuStreamSynchronize(b));
}

static void case_slab_of_freed(void)
{
    begin_context();
    slab_of_freed(512);
    slab_of_freed(4096);
    slab_of_freed(500000);
}

/* the twins for the per-thread default stream; cuda.h has them by other names only */
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);

/* a piece of one context's, freed behind work of another one that outlives it */
static void case_context_gone(void)
{
    const CUcontext primary = begin_context();
    const CUstream stream = stream_new();
    CUdeviceptr memory, next;
    CUstream others;
    CUcontext other;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    others = stream_new();
    OK(cuMemAllocAsync(&memory, 1000, others));
    OK(cuStreamSynchronize(others));
    OK(cuCtxSetCurrent(primary));
    hold_back(stream);
    OK(cuMemFreeAsync(memory, stream));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(primary));
    usleep(50000); /* the client thread looks */
    let_go();
    OK(cuStreamSynchronize(stream));
    usleep(50000);
    for (unsigned i = 0; i < 100; i++) {
        OK(cuMemAllocAsync(&next, 1000, stream));
        OK(cuMemsetD8Async(next, 5, 1000, stream));
        OK(cuStreamSynchronize(stream));
        expect_bytes(next, 1000, 5);
        OK(cuMemFreeAsync(next, stream));
    }
    OK(cuStreamSynchronize(stream));
}

/* What a context allocates is not a piece that ends with another context, though its stream has
 * freed that piece. */
static void case_context_piece(void)
{
    const CUcontext primary = begin_context();
    const CUstream stream = stream_new();
    CUdeviceptr freed, memory;
    CUcontext other;

    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAllocAsync(&freed, 1000, NULL));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(primary));
    hold_back(stream);
    OK(cuMemFreeAsync(freed, stream));
    OK(cuMemAllocAsync(&memory, 1000, stream));
    OK(cuMemsetD8Async(memory, 7, 1000, stream));
    let_go();
    OK(cuStreamSynchronize(stream));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(primary));
    expect_bytes(memory, 1000, 7);
    OK(cuMemFreeAsync(memory, stream));
    OK(cuStreamSynchronize(stream));
}

static _Atomic(bool) passed;

static void CUDA_CB note_passed(void *unused)
{
    (void)unused;
    atomic_store(&passed, true);
}

static void *let_go_later(void *unused)
{
    usleep(300000); /* a call that does not wait has returned by then */
    let_go();
    return unused;
}

/* GPUSHARE_DEVICE_LIMIT=32MiB: there is no memory but that which a stream has freed and not passed.
 * A stream that is made to wait for it may have it, and a third one may not. */
static void case_slab_behind(void)
{
    CUdeviceptr memory[64], second, third;
    CUstream a, b, c;
    unsigned count = 0;

    begin_context();
    a = stream_new();
    b = stream_new();
    c = stream_new();
    while (count < 64 && cuMemAllocAsync(&memory[count], 2 * MIB, a) == CUDA_SUCCESS)
        count++;
    CHECK(count > 4 && count < 64);
    hold_back(a);
    for (unsigned i = 0; i < 3; i++) /* more than one: the limit may yet fall by an edge */
        OK(cuMemFreeAsync(memory[i], a));
    OK(cuMemAllocAsync(&second, 4096, b));
    OK(cuMemAllocAsync(&third, 4096, c));
    for (unsigned i = 0; i < 3; i++)
        CHECK(!is_in(third, memory[i], 2 * MIB));
    let_go();
    OK(cuMemsetD8Async(third, 3, 4096, c));
    OK(cuStreamSynchronize(c));
    expect_bytes(third, 4096, 3);
    OK(cuMemFreeAsync(second, b));
    OK(cuMemFreeAsync(third, c));
}

/* cuMemFree waits for the work of the current context, also if the memory is another one's. */
static void case_free_waits_here(void)
{
    const CUcontext primary = begin_context();
    CUdeviceptr large, small;
    pthread_t thread;
    CUcontext other;
    CUstream stream;

    OK(cuMemAlloc(&large, 4 * MIB));
    OK(cuMemAlloc(&small, 1000));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    stream = stream_new();
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&passed, false);
        hold_back(stream);
        OK(cuLaunchHostFunc(stream, note_passed, NULL));
        CHECK(pthread_create(&thread, NULL, let_go_later, NULL) == 0);
        OK(cuMemFree(i == 0 ? large : small));
        CHECK(atomic_load(&passed));
        CHECK(pthread_join(thread, NULL) == 0);
    }
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(primary));
}

/* So it does beside a capture, which goes on. */
static void case_free_waits_beside_capture(void)
{
    CUdeviceptr memory[3];
    CUstream stream, captured;
    pthread_t thread;
    CUgraph graph;

    begin_context();
    stream = stream_new();
    captured = stream_new();
    OK(cuMemAlloc(&memory[0], 4 * MIB));
    OK(cuMemAlloc(&memory[1], 1000));
    OK(cuMemAlloc(&memory[2], 1000));
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(memory[2], 5, 1000, captured));
    for (unsigned i = 0; i < 2; i++) {
        atomic_store(&passed, false);
        hold_back(stream);
        OK(cuLaunchHostFunc(stream, note_passed, NULL));
        CHECK(pthread_create(&thread, NULL, let_go_later, NULL) == 0);
        OK(cuMemFree(memory[i]));
        CHECK(atomic_load(&passed));
        CHECK(pthread_join(thread, NULL) == 0);
    }
    OK(cuStreamEndCapture(captured, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(memory[2]));
}

/* Beside a capture of the global mode the driver refuses stream-ordered memory on other streams,
 * and the capture is invalid; not on the captured stream itself. */
static void case_refused_beside_capture(void)
{
    const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUdeviceptr before, memory;
    CUstream stream, captured;
    CUgraph graph;

    begin_context();
    stream = stream_new();
    captured = stream_new();
    OK(cuMemAllocAsync(&before, 4 * MIB, stream));
    for (unsigned i = 0; i < 3; i++) {
        OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemAllocAsync(&memory, 1000, captured));
        OK(cuMemFreeAsync(memory, captured));
        CHECK((i == 0   ? cuMemAllocAsync(&memory, 1000, stream)
               : i == 1 ? cuMemAllocAsync(&memory, 4 * MIB, stream)
                        : cuMemFreeAsync(before, stream)) == refused);
        CHECK(cuStreamEndCapture(captured, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    OK(cuMemFreeAsync(before, stream));
}

/* The driver's cuMemFree waits for no work on memory of a pool. Ours does, since the memory may
 * leave at once. */
static void case_pool_free_waits_not(void)
{
    CUdeviceptr memory[2];
    CUstream stream;

    begin_context();
    stream = stream_new();
    OK(cuMemAllocAsync(&memory[0], 4 * MIB, stream));
    OK(cuMemAllocAsync(&memory[1], 1000, stream));
    OK(cuStreamSynchronize(stream));
    hold_back(stream);
    OK(cuMemFree(memory[0]));
    OK(cuMemFree(memory[1]));
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(stream));
}

static void case_per_thread(void)
{
    CUdeviceptr first, second;

    begin_context();
    OK(cuMemAllocAsync_ptsz(&first, 4 * MIB, NULL));
    hold_back(CU_STREAM_PER_THREAD);
    OK(cuMemFreeAsync_ptsz(first, NULL));
    OK(cuMemAllocAsync(&second, 4 * MIB, CU_STREAM_PER_THREAD));
    CHECK(first == second); /* the same stream by another name */
    OK(cuMemFreeAsync(second, CU_STREAM_PER_THREAD));
    let_go();
    OK(cuCtxSynchronize());
    OK(cuMemAllocAsync(&first, 4 * MIB, NULL));
    OK(cuMemsetD8(first, 3, 4 * MIB));
    expect_bytes(first, 4 * MIB, 3);
    OK(cuMemFree(first));
}

/* what is allocated while the stream is captured is the graph's */
static void case_graph(void)
{
    CUdeviceptr inside, ours, target;
    uint64_t reserved = 0;
    CUgraphExec exec;
    CUstream stream;
    CUgraph graph;

    begin_context();
    stream = stream_new();
    OK(cuMemAllocAsync(&ours, 3 * MIB, stream));
    OK(cuMemAlloc(&target, 2 * MIB));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&inside, 2 * MIB, stream));
    OK(cuMemsetD8Async(inside, 9, 2 * MIB, stream));
    OK(cuMemcpyDtoDAsync(target, inside, 2 * MIB, stream));
    OK(cuMemFreeAsync(inside, stream));
    GIVES(cuMemFreeAsync(ours, stream), CUDA_ERROR_INVALID_VALUE); /* no memory of a graph */
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        OK(cuMemsetD8Async(target, 1, 2 * MIB, stream));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        expect_bytes(target, 2 * MIB, 9);
    }
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    CHECK(reserved == 2 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFreeAsync(ours, stream));
    OK(cuMemFree(target));
    OK(cuStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {
        {"order_large", case_order_large},
        {"order_small", case_order_small},
        {"graph_large", case_graph_large},
        {"order_green", case_order_green},
        {"stream_gone", case_stream_gone},
        {"attributes", pools_case_attributes},
        {"threshold", pools_case_threshold},
        {"current", pools_case_current},
        {"most", pools_case_most},
        {"frees", case_frees},
        {"wait_behind", case_wait_behind},
        {"slab_of_freed", case_slab_of_freed},
        {"slab_behind", case_slab_behind},
        {"per_thread", case_per_thread},
        {"context_gone", case_context_gone},
        {"context_piece", case_context_piece},
        {"free_waits_here", case_free_waits_here},
        {"free_waits_beside_capture", case_free_waits_beside_capture},
        {"refused_beside_capture", case_refused_beside_capture},
        {"pool_free_waits_not", case_pool_free_waits_not},
        {"graph", case_graph},
        {NULL, NULL}};

    return run_case(argc, argv, cases);
}
