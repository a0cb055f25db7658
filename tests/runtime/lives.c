/* SPDX-License-Identifier: Apache-2.0
 *
 * lives.c: threads, processes, streams and contexts that come and go while the library is at
 * work: lives CASE, as calls.c. A case that hangs is ended by an alarm.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/check.h"

#define STREAMS 3000
#define ROUNDS  100

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static CUcontext context;
static _Atomic(bool) over;

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* the machine may be busy */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Allocates, writes and frees in every way until it is over; what another thread does must not
 * disturb it. */
static void *run_work(void *unused)
{
    CUdeviceptr address;
    CUstream stream;

    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 1; !atomic_load(&over); round++) {
        OK(cuMemAllocAsync(&address, 5 * MIB, stream));
        OK(cuMemsetD8Async(address, 1, 5 * MIB, stream));
        OK(cuMemFreeAsync(address, stream));
        OK(cuMemAllocAsync(&address, 1000, stream));
        OK(cuMemFreeAsync(address, stream));
        OK(cuMemAllocAsync(&address, 3 * MIB, stream));
        OK(cuMemFreeAsync(address, stream));
        if (round % 64 == 0) /* else the queue grows for as long as the machine is busy */
            OK(cuStreamSynchronize(stream));
    }
    OK(cuStreamSynchronize(stream));
    return NULL;
}

/* A capture of this mode forbids other threads nothing, and the calls that we make for theirs leave
 * it alone. */
static void case_capture_beside(void)
{
    const struct timespec pause = {0, 3000000};
    pthread_t thread;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(pthread_create(&thread, NULL, run_work, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        CUgraph graph = NULL;

        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        nanosleep(&pause, NULL);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphDestroy(graph));
    }
    atomic_store(&over, true);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A node for memory that may not have come yet, beside a capture that keeps the gate from closing. */
static void case_node_early(void)
{
    CUDA_MEMSET_NODE_PARAMS set = {.elementSize = 1, .width = 64, .height = 1};
    CUgraph graph, captured = NULL;
    CUgraphNode node;
    CUstream stream;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&set.dst, 3 * MIB));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphDestroy(captured));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(set.dst));
}

static pthread_key_t key;

/* comes again until the last round of destructors */
static void late_call(void *argument)
{
    const uintptr_t round = (uintptr_t)argument;
    CUdeviceptr address;

    OK(cuMemAlloc(&address, 1000));
    OK(cuMemsetD8(address, 1, 1000));
    OK(cuMemFree(address));
    if (round < 6)
        pthread_setspecific(key, (void *)(round + 1));
}

static void *end_late(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    CHECK(pthread_setspecific(key, (void *)1) == 0);
    return NULL;
}

/* Threads whose destructors call the driver, to the last round, where nothing is called behind them;
 * the gate still closes when even the threads' memory is gone (their stacks, which hold it too). */
static void case_destructors(void)
{
    const size_t bytes = 1 << 20;
    pthread_attr_t attributes[8];
    pthread_t threads[8];
    void *stacks[8];
    CUdeviceptr address;
    CUcontext other;

    OK(cuMemAlloc(&address,
                  1000)); /* through the gate: its key is older than ours, and so ends first */
    CHECK(pthread_key_create(&key, late_call) == 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 8; i++) {
            stacks[i] =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(stacks[i] != MAP_FAILED && pthread_attr_init(&attributes[i]) == 0);
            CHECK(pthread_attr_setstack(&attributes[i], stacks[i], bytes) == 0);
            CHECK(pthread_create(&threads[i], &attributes[i], end_late, NULL) == 0);
        }
        for (int i = 0; i < 8; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0 && munmap(stacks[i], bytes) == 0);
            CHECK(pthread_attr_destroy(&attributes[i]) == 0);
        }
        OK(cuCtxCreate(&other, NULL, 0, 0));
        OK(cuCtxDestroy(other));
    }
    OK(cuMemFree(address));
}

/* A child of a process whose threads are inside: it has no device, and ends. */
static void case_fork_beside(void)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, run_work, NULL) == 0);
    for (int i = 0; i < 60; i++) {
        const pid_t child = fork();
        CUdeviceptr address;
        int status;

        CHECK(child >= 0);
        if (child == 0) {
            alarm(120);
            CHECK(cuMemAlloc(&address, 1000) == CUDA_ERROR_NOT_INITIALIZED);
            CHECK(cuMemsetD8(1, 1, 1) == CUDA_ERROR_NOT_INITIALIZED);
            CHECK(cuMemFree(1) != CUDA_SUCCESS);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* The primary context is reset with memory in it, and used again. */
static void case_reset(void)
{
    CUdeviceptr old, address;
    size_t before, after, total;
    CUstream stream;

    OK(cuMemGetInfo(&before, &total));
    for (int i = 0; i < 10; i++) {
        CUcontext again;

        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuMemAlloc(&old, 5 * MIB));
        OK(cuMemAllocAsync(&address, 5 * MIB, stream));
        OK(cuMemFreeAsync(address, stream));
        OK(cuMemAlloc(&address, 1000));
        OK(cuDevicePrimaryCtxReset(0));
        OK(cuDevicePrimaryCtxRetain(&again, 0));
        OK(cuCtxSetCurrent(again));
        CHECK(cuMemFree(old) == CUDA_ERROR_INVALID_VALUE);
        CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
        OK(cuMemAlloc(&address, 7 * MIB));
        OK(cuMemsetD8(address, 3, 7 * MIB));
        expect_bytes(address, 7 * MIB, 3);
        OK(cuMemFree(address));
    }
    OK(cuMemGetInfo(&after, &total));
    CHECK(after + 8 * MIB >= before);
}

/* Memory of one context, used in another, by every kind of copy. */
static void case_two_contexts(void)
{
    CUdeviceptr first, second;
    CUcontext other;

    OK(cuMemAlloc(&first, 5 * MIB));
    OK(cuMemsetD8(first, 1, 5 * MIB));
    OK(cuCtxSynchronize());
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuMemAlloc(&second, 5 * MIB));
    OK(cuMemcpyDtoD(second, first, MIB));
    OK(cuMemcpy(second + MIB, first, MIB));
    OK(cuMemcpyPeer(second + 2 * MIB, other, first, context, 3 * MIB));
    expect_bytes(second, 5 * MIB, 1);
    OK(cuMemFree(first)); /* it was made in the other one */
    OK(cuCtxDestroy(other));
    CHECK(cuMemFree(second) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc(&first, 20 * MIB));
}

/* Each of very many streams has freed something that it has not passed. */
static void case_many_streams(void)
{
    static CUstream streams[STREAMS];
    CUdeviceptr address;
    size_t left, total;
    double start;

    for (int i = 0; i < STREAMS; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(cuMemAllocAsync(&address, 1000, streams[i]));
        OK(cuMemFreeAsync(address, streams[i]));
    }
    start = cpu_seconds();
    for (int i = 0; i < 100; i++)
        OK(cuMemGetInfo(&left, &total));
    CHECK(cpu_seconds() - start < 20); /* some 50 ms: it must not go with the square of them */
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamDestroy(streams[i]));
}

static _Atomic(bool) unmapped;

static void CUDA_CB wait_for_unmapped(void *unused)
{
    (void)unused;
    while (!atomic_load(&unmapped))
        usleep(1000);
}

/* A set whose memory has gone when it runs, with a capture on that stream. */
static void break_context(CUstream captured)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc opened = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    size_t left, total;
    CUdeviceptr address;
    CUstream stream;

    OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(address, 2 * MIB, &opened, 1));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    atomic_store(&unmapped, false);
    OK(cuLaunchHostFunc(stream, wait_for_unmapped, NULL));
    OK(cuMemsetD8Async(address, 1, 2 * MIB, stream));
    OK(cuMemUnmap(address, 2 * MIB));
    OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    atomic_store(&unmapped, true);
    while (cuMemGetInfo(&left, &total) == CUDA_SUCCESS)
        usleep(1000);
}

static void all_fail(CUdeviceptr small, CUdeviceptr large)
{
    CUdeviceptr address;
    size_t left, total, pitch;

    for (size_t bytes = 1000; bytes <= 10 * MIB; bytes *= 10) {
        GIVES(cuMemAlloc(&address, bytes), CUDA_ERROR_ILLEGAL_ADDRESS);
        GIVES(cuMemAllocAsync(&address, bytes, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    GIVES(cuMemAllocPitch(&address, &pitch, 1000, 1000, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemGetInfo(&left, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemGetAddressRange(&address, &left, small), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemFree(small), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemFree(small + 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemFree(large), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemAlloc(&address, 10), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A fault ends all contexts of the process on the device (an H200, driver 580): a call that needs a
 * context, or finds one, says so from then on, also beside a capture. */
static void case_fault(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr small, large, ordered, ordered_large, address;
    CUcontext other;
    CUstream stream;

    OK(cuMemAlloc(&small, 1000));
    OK(cuMemAlloc(&large, 5 * MIB));
    OK(cuMemAllocAsync(&ordered, 1000, NULL));
    OK(cuMemAllocAsync(&ordered_large, 5 * MIB, NULL));
    OK(cuCtxCreate(&other, NULL, 0, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(context));
    break_context(stream);
    all_fail(small, large);
    OK(cuThreadExchangeStreamCaptureMode(&mode)); /* the capture goes on, and forbids nothing */
    all_fail(small, large);
    OK(cuCtxSetCurrent(other));
    all_fail(small, large);
    OK(cuCtxSetCurrent(NULL)); /* and the one below it */
    OK(cuCtxSetCurrent(NULL));
    GIVES(cuMemAlloc(&address, 10), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuMemFree(small), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemFree(small + 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree(large + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(ordered)); /* of a pool, which has no context */
    OK(cuMemFree(ordered_large));
    OK(cuMemFree(0));
    OK(cuCtxSetCurrent(context));
    OK(cuDevicePrimaryCtxReset(0));
    begin_context();
    OK(cuMemAlloc(&address, 10));
    OK(cuMemsetD8(address, 1, 10));
}

#define SHARERS 4

static pthread_barrier_t together;
static CUmemGenericAllocationHandle shared;

static void *share_it(void *fd)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&together);
        OK(cuMemExportToShareableHandle(fd, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        0));
        pthread_barrier_wait(&together);
    }
    return NULL;
}

/* Several threads export the same memory, which none of them had before: it gets memory once.
 * What would be lost each time is more than the card has. */
static void case_share_at_once(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    pthread_t threads[SHARERS];
    int fd[SHARERS];

    CHECK(pthread_barrier_init(&together, NULL, SHARERS + 1) == 0);
    for (unsigned i = 0; i < SHARERS; i++)
        CHECK(pthread_create(&threads[i], NULL, share_it, &fd[i]) == 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        OK(cuMemCreate(&shared, 8 * MIB, &prop, 0));
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        for (unsigned k = 0; k < SHARERS; k++)
            CHECK(close(fd[k]) == 0);
        OK(cuMemRelease(shared));
    }
    for (unsigned i = 0; i < SHARERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {{"capture_beside", case_capture_beside},
                                              {"node_early", case_node_early},
                                              {"destructors", case_destructors},
                                              {"fork_beside", case_fork_beside},
                                              {"reset", case_reset},
                                              {"two_contexts", case_two_contexts},
                                              {"many_streams", case_many_streams},
                                              {"fault", case_fault},
                                              {"share_at_once", case_share_at_once},
                                              {NULL, NULL}};

    alarm(300);
    context = begin_context();
    return run_case(argc, argv, cases);
}
