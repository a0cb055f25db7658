/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.c: the operations of differ.c that go through a CUDA runtime (--runtime FILE). Their
 * objects are those of the driver's operations, so that both kinds meet: memory from cudaMalloc is
 * freed by cuMemFree, and the other way round.
 *
 * A runtime keeps the last error of each thread, so each operation tells that, too.
 */
#include "tests/gpu/differ/differ.h"

#include <cuda_runtime_api.h>

#define RUNTIME(function) ((__typeof__(&(function)))runtime_function(#function))

static cudaError_t is_missing(void)
{
    return cudaErrorNotSupported;
}

/* A runtime of the simulated driver has not all: without a function every call has one answer. */
static void *runtime_function(const char *name)
{
    void *function = dlsym(world.runtime, name);
    cudaError_t (*missing)(void) = is_missing;

    return function != NULL ? function : *(void **)&missing;
}

static cudaError_t say(cudaError_t result)
{
    tell(" = %d", (int)result);
    return result;
}

/* Each operation ends with it. */
static void say_last(void)
{
    const cudaError_t last =
        one_in(2) ? RUNTIME(cudaGetLastError)() : RUNTIME(cudaPeekAtLastError)();

    if (last != cudaSuccess)
        tell(" last %d", (int)last);
}

/* --- memory --- */

static void keep(cudaError_t result, struct memory *slot, const void *start, size_t bytes,
                 enum memory_kind kind)
{
    if (result == cudaSuccess && start != NULL)
        memory_keep(slot, (CUdeviceptr)(uintptr_t)start, bytes, kind);
    say_last();
}

static void allocate(void)
{
    struct memory *slot = memory_free_slot();
    const size_t bytes = one_in(40) ? 0 : one_in(40) ? (size_t)1 << 50 : pick_size();
    void *start = NULL;

    if (slot == NULL)
        return;
    tell(" %zu", bytes);
    keep(say(RUNTIME(cudaMalloc)(one_in(50) ? NULL : &start, bytes)), slot, start, bytes,
         PLAIN);
}

static void allocate_more(void)
{
    struct memory *slot = memory_free_slot();
    const size_t width = 1 + pick(3000), height = 1 + pick(100);
    void *start = NULL;
    size_t pitch = 0;
    cudaError_t result;

    if (slot == NULL)
        return;
    tell(" %zux%zu", width, height);
    if (one_in(2)) {
        result = say(RUNTIME(cudaMallocPitch)(&start, &pitch, width, height));
        keep(result, slot, start, pitch * height, PLAIN);
    } else {
        result = say(RUNTIME(cudaMallocManaged)(&start, width * height,
                                                one_in(10) ? pick(8) : cudaMemAttachGlobal));
        keep(result, slot, start, width * height, MANAGED);
    }
}

static void allocate_ordered(void)
{
    struct memory *slot = memory_free_slot();
    const size_t bytes = one_in(40) ? 0 : pick_size();
    const CUstream stream = pick_stream();
    const unsigned pool = pick(POOLS);
    void *start = NULL;
    cudaError_t result;

    if (slot == NULL || world.capturing != 0)
        return;
    tell(" %zu", bytes);
    if (world.pool[pool] != NULL && one_in(2))
        result = say(RUNTIME(cudaMallocFromPoolAsync)(&start, bytes, world.pool[pool], stream));
    else
        result = say(RUNTIME(cudaMallocAsync)(&start, bytes, stream));
    if (result == cudaSuccess)
        settle();
    keep(result, slot, start, bytes, ORDERED);
}

static void release(void)
{
    struct memory *slot = pick_memory();
    const CUstream stream = pick_stream();
    const unsigned how = pick(20);
    void *start;
    cudaError_t result;

    if (slot == NULL)
        return;
    start = (void *)(uintptr_t)(how == 1 ? 0 : slot->start + (how == 0 ? slot->bytes / 2 : 0));
    if (how < 2)
        tell(how == 0 ? " inside" : " null");
    if (slot->kind == ORDERED && how < 12) {
        if (world.capturing != 0)
            return;
        result = say(RUNTIME(cudaFreeAsync)(start, stream));
    } else {
        world.ordered_freed |= slot->kind == ORDERED;
        result = say(RUNTIME(cudaFree)(start));
    }
    if (result == cudaSuccess && (uintptr_t)start == slot->start)
        memory_forget(slot);
    say_last();
}

static void attributes(void)
{
    struct cudaPointerAttributes had = {.device = 77};
    size_t left, total = 0;
    const CUdeviceptr at = pick_address(&left);

    if (say(RUNTIME(cudaPointerGetAttributes)(&had, (const void *)(uintptr_t)at)) ==
        cudaSuccess) {
        tell(" type %d device %d", (int)had.type, had.device);
        tell_address((CUdeviceptr)(uintptr_t)had.devicePointer);
        tell_address((CUdeviceptr)(uintptr_t)had.hostPointer);
    }
    if (say(RUNTIME(cudaMemGetInfo)(&left, &total)) == cudaSuccess)
        tell(left <= total ? " fits" : " more free than there is");
    say_last();
}

static void fill(void)
{
    size_t left;
    const CUdeviceptr at = pick_address(&left);
    void *start = (void *)(uintptr_t)at;
    const size_t count = one_in(10) ? 0 : left < 5000 ? left : 5000;
    const int value = (int)pick(256);

    note_use(world.picked);
    tell(" %zu", count);
    if (one_in(2))
        say(RUNTIME(cudaMemset)(start, value, count));
    else
        say(RUNTIME(cudaMemsetAsync)(start, value, count, pick_stream()));
    say_last();
}

static void copy(void)
{
    size_t left;
    const CUdeviceptr at = pick_address(&left);
    const struct memory *memory = world.picked;
    void *start = (void *)(uintptr_t)at;
    const size_t count = left < HOST_BYTES ? left : HOST_BYTES;
    const bool in = one_in(2), async = one_in(2);
    const enum cudaMemcpyKind right = in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                              kind = one_in(12)  ? (enum cudaMemcpyKind)pick(7)
                                     : one_in(3) ? cudaMemcpyDefault
                                                 : right;
    void *to = in ? start : host_target;
    const void *from = in ? host_source : start;
    cudaError_t result;

    if (kind != right && kind != cudaMemcpyDefault && !world.faults && kind < 4)
        return; /* a direction that is not the pointers' */
    note_use(memory);
    tell(" %s %zu kind %d", in ? "in" : "out", count, (int)kind);
    if (async)
        result = say(RUNTIME(cudaMemcpyAsync)(to, from, count, kind, pick_stream()));
    else
        result = say(RUNTIME(cudaMemcpy)(to, from, count, kind));
    if (result == cudaSuccess && !in && memory != NULL && memory->known &&
        world.capturing == 0 && settle())
        tell_sum(host_target, count);
    say_last();
}

static void host_memory(void)
{
    const unsigned slot = pick(HOSTS), flags = one_in(12) ? pick(32) : pick(4) * 2;
    const size_t bytes = pick_size();
    void *device = NULL;

    tell(" h%u", slot);
    if (world.host[slot].start == NULL) {
        tell(" %zu flags %u", bytes, flags);
        if (say(RUNTIME(cudaHostAlloc)(&world.host[slot].start, bytes, flags)) == cudaSuccess)
            world.host[slot].bytes = bytes;
        else
            world.host[slot].start = NULL;
    } else if (world.host[slot].registered || one_in(2)) {
        if (say(RUNTIME(cudaHostGetDevicePointer)(&device, world.host[slot].start, 0)) ==
            cudaSuccess)
            tell_address((CUdeviceptr)(uintptr_t)device);
    } else if (say(RUNTIME(cudaFreeHost)(world.host[slot].start)) == cudaSuccess) {
        world.host[slot].start = NULL;
        world.host[slot].bytes = 0;
    }
    say_last();
}

/* --- streams and events --- */

static void stream(void)
{
    const unsigned slot = 2 + pick(STREAMS - 2), flags = one_in(12) ? 5 : pick(2);
    CUstream picked;

    tell(" s%u", slot);
    if (world.stream[slot] == NULL) {
        tell(" flags %u", flags);
        if (say(RUNTIME(cudaStreamCreateWithFlags)(&world.stream[slot], flags)) != cudaSuccess)
            world.stream[slot] = NULL;
    } else if (one_in(4) && world.capturing == 0) {
        say(RUNTIME(cudaStreamDestroy)(world.stream[slot]));
        world.stream[slot] = NULL;
    } else {
        picked = pick_stream();
        if (say(RUNTIME(cudaStreamSynchronize)(picked)) == cudaSuccess)
            say(RUNTIME(cudaStreamQuery)(picked));
    }
    say_last();
}

static void event(void)
{
    const unsigned slot = pick(EVENTS), flags = one_in(8) ? pick(16) : pick(4);
    const unsigned how = pick(5);
    float ms = -1;

    tell(" e%u", slot);
    if (world.event[slot] == NULL) {
        tell(" flags %u", flags);
        if (say(RUNTIME(cudaEventCreateWithFlags)(&world.event[slot], flags)) != cudaSuccess)
            world.event[slot] = NULL;
    } else if (how == 0 && world.capturing == 0) {
        say(RUNTIME(cudaEventDestroy)(world.event[slot]));
        world.event[slot] = NULL;
    } else if (how == 1) {
        say(RUNTIME(cudaStreamWaitEvent)(pick_stream(), world.event[slot], 0));
    } else if (how == 2) {
        if (say(RUNTIME(cudaEventSynchronize)(world.event[slot])) == cudaSuccess)
            say(RUNTIME(cudaEventQuery)(world.event[slot]));
    } else if (how == 3 && world.capturing != 0) {
        return; /* it may have happened, or not */
    } else if (how == 3) {
        if (say(RUNTIME(cudaEventElapsedTime)(&ms, world.event[slot], world.event[slot])) ==
            cudaSuccess)
            tell(" %g", (double)ms);
    } else {
        say(RUNTIME(cudaEventRecord)(world.event[slot], pick_stream()));
    }
    say_last();
}

/* --- captures, graphs, pools --- */

static void capture(void)
{
    const CUstream stream = pick_stream();
    const int mode = one_in(20) ? 7 : (int)pick(3);
    enum cudaStreamCaptureStatus status = (enum cudaStreamCaptureStatus)77;

    if (world.capturing == 0 && one_in(3)) {
        tell(" begin mode %d", mode);
        if (say(RUNTIME(cudaStreamBeginCapture)(stream, (enum cudaStreamCaptureMode)mode)) ==
            cudaSuccess) {
            world.capturing = 1; /* graphs.c ends it */
            world.capture_uses = (struct graph_uses){{0}};
        }
    } else if (say(RUNTIME(cudaStreamIsCapturing)(stream, &status)) == cudaSuccess) {
        tell(" %d", (int)status);
    }
    say_last();
}

static void graph(void)
{
    const unsigned slot = pick(GRAPHS), exec = pick(EXECS), how = pick(3);
    struct memory *memory = pick_memory();
    struct cudaMemsetParams params = {.value = 5, .elementSize = 1, .width = 64, .height = 1};
    cudaGraphNode_t node, before[NODES];
    size_t count;

    tell(" g%u x%u", slot, exec);
    if (world.graph[slot] == NULL) {
        if (say(RUNTIME(cudaGraphCreate)(&world.graph[slot], 0)) != cudaSuccess)
            world.graph[slot] = NULL;
        world.graph_uses[slot] = (struct graph_uses){{0}};
    } else if (how == 0 && memory != NULL && memory->bytes >= 64 &&
               nodes_of(world.graph[slot], before, &count)) {
        params.dst = (void *)(uintptr_t)memory->start;
        if (say(RUNTIME(cudaGraphAddMemsetNode)(&node, world.graph[slot], before, count,
                                                &params)) == cudaSuccess)
            note_graph_use(&world.graph_uses[slot], memory);
    } else if (how == 1) {
        say(RUNTIME(cudaGraphDestroy)(world.graph[slot]));
        world.graph[slot] = NULL;
    } else if (world.exec[exec] != NULL) {
        say(RUNTIME(cudaGraphExecDestroy)(world.exec[exec]));
        world.exec[exec] = NULL;
    }
    say_last();
}

static void pool(void)
{
    const unsigned slot = pick(POOLS);
    uint64_t value = 0;

    tell(" p%u", slot);
    if (world.pool[slot] == NULL)
        return;
    if (one_in(2)) {
        say(RUNTIME(cudaMemPoolTrimTo)(world.pool[slot], pick(4) * MIB));
    } else if (say(RUNTIME(cudaMemPoolGetAttribute)(
                   world.pool[slot], cudaMemPoolAttrUsedMemCurrent, &value)) == cudaSuccess &&
               !world.ordered_freed) {
        tell(" %llu", (unsigned long long)value);
    }
    say_last();
}

static void device(void)
{
    const int which = one_in(4) ? 99 : 0;
    int now = 77;

    tell(" %d", which);
    if (which != 0 || one_in(2))
        say(RUNTIME(cudaSetDevice)(which));
    if (say(RUNTIME(cudaGetDevice)(&now)) == cudaSuccess)
        tell(" %d", now);
    say(RUNTIME(cudaDeviceSynchronize)());
    say_last();
}

const struct operation runtime_operations[] = {
    {"cudaMalloc", 4, allocate},
    {"cudaMallocPitch or managed", 2, allocate_more},
    {"cudaMallocAsync", 4, allocate_ordered},
    {"cudaFree", 6, release},
    {"cudaPointerGetAttributes", 4, attributes},
    {"cudaMemset", 4, fill},
    {"cudaMemcpy", 8, copy},
    {"cudaHostAlloc", 3, host_memory},
    {"cudaStream", 4, stream},
    {"cudaEvent", 6, event},
    {"cudaStreamCapture", 3, capture},
    {"cudaGraph", 4, graph},
    {"cudaMemPool", 2, pool},
    {"cudaSetDevice", 2, device},
    {0},
};
