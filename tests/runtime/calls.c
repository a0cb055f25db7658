/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c: single cases on the simulated card, one an invocation: calls CASE. Linked with
 * libgpushare first. Prints what was not so, with its line, and exits 1; 0 when everything was.
 * One case, one process: contexts and the gate are the process's. Threads: only where a case
 * makes them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/check.h"

__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{NULL, NULL, 0, NULL}};

static void case_sizes(void)
{
    static const size_t sizes[] = {1, 511, 512, 513, MIB, MIB + 1, 2 * MIB, 65 * MIB};
    CUdeviceptr address = 0, base;
    size_t size, free_before, free_after, total;

    begin_context();
    CHECK(cuMemAlloc(&address, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAlloc(NULL, 1) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetInfo(&free_before, &total));
    CHECK(cuMemAlloc(&address, total + 1) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&address, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&address, SIZE_MAX / 2) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAlloc(&address, SIZE_MAX - 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        OK(cuMemAlloc(&address, sizes[i]));
        CHECK(address % 512 == 0);
        OK(cuMemsetD8(address, (unsigned char)i, sizes[i]));
        expect_bytes(address, sizes[i], (int)i);
        OK(cuMemGetAddressRange(&base, &size, address + sizes[i] - 1));
        CHECK(base == address && size == sizes[i]);
        OK(cuMemFree(address));
        CHECK(cuMemFree(address) == CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemGetInfo(&free_after, &total));
    /* at most the last empty slab of each kind stays; more may have become free meanwhile */
    CHECK(free_before <= free_after + 32ul * MIB);
    OK(cuMemAlloc(&address, free_after)); /* what is called free can be had */
    OK(cuMemFree(address));
}

static void case_frees(void)
{
    CUdeviceptr small, large, neighbour, base;
    char host[64];
    size_t size;

    begin_context();
    OK(cuMemFree(0));
    OK(cuMemAlloc(&small, 1000));
    OK(cuMemAlloc(&neighbour, 1000));
    OK(cuMemAlloc(&large, 5 * MIB));
    OK(cuMemsetD8(neighbour, 7, 1000));
    CHECK(cuMemFree(small + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large + 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large + 5 * MIB - 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree((CUdeviceptr)(uintptr_t)host) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(0x10) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(small));
    OK(cuMemFree(large));
    CHECK(cuMemFree(small) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemGetAddressRange(&base, &size, large) != CUDA_SUCCESS);
    expect_bytes(neighbour, 1000, 7);
    OK(cuMemFree(neighbour));
}

static void case_attributes(void)
{
    CUdeviceptr ours, start = 0;
    CUcontext context = begin_context(), found = NULL;
    unsigned type = 0;
    int ordinal = -1;
    size_t size = 0;
    unsigned managed = 9; /* the driver writes four bytes */
    void *host = NULL;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *where[] = {&type, &size, &ordinal};

    OK(cuMemAlloc(&ours, 70000));
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, ours + 5));
    CHECK(found == context);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ours + 69999));
    CHECK(start == ours);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ours));
    CHECK(managed == 0);
    OK(cuPointerGetAttributes(3, which, where, ours + 3));
    CHECK(type == CU_MEMORYTYPE_DEVICE && size == 70000 && ordinal == 0);
    CHECK(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_CONTEXT, ours) ==
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostAlloc(&host, 4096, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                             (CUdeviceptr)(uintptr_t)host));
    CHECK(type == CU_MEMORYTYPE_HOST);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x10) != CUDA_SUCCESS);
    OK(cuMemFreeHost(host));
    OK(cuCtxSetCurrent(NULL));
    GIVES(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ours),
          CUDA_ERROR_INVALID_CONTEXT);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ours));
    CHECK(type == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuCtxSetCurrent(context));
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ours + 5));
    CHECK(start == ours + 5);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, ours));
    CHECK(type == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemFree(ours));
    size = 1; /* freed, and kept mapped for the next one: the program's address no longer */
    OK(cuPointerGetAttributes(3, which, where, ours + 3));
    CHECK(type == 0 && size == 0);
}

static void case_pitch(void)
{
    CUdeviceptr address;
    size_t pitch = 0;

    begin_context();
    CHECK(cuMemAllocPitch(&address, &pitch, 0, 10, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocPitch(&address, &pitch, 10, 0, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocPitch(&address, &pitch, 10, 10, 3) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocPitch(&address, &pitch, SIZE_MAX, 2, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemAllocPitch(&address, &pitch, MIB, SIZE_MAX / 4, 4) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocPitch(&address, &pitch, 1000, 33, 16));
    CHECK(pitch >= 1000 && pitch % 512 == 0);
    OK(cuMemsetD8(address, 3, pitch * 33));
    OK(cuMemFree(address));
}

/* GPUSHARE_DEVICE_LIMIT=32MiB on a card of 128 MiB, nobody else on it */
static void case_limit(void)
{
    CUdeviceptr address, second;
    size_t free_bytes, total, all;

    begin_context();
    OK(cuDeviceTotalMem(&all, 0));
    OK(cuMemGetInfo(&free_bytes, &total));
    CHECK(all == 32 * MIB && total == 32 * MIB && free_bytes <= total &&
          free_bytes >= 24 * MIB);
    OK(cuMemAlloc(&address, free_bytes));
    CHECK(cuMemAlloc(&second, 2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(address));
    OK(cuMemAlloc(&second, 2 * MIB));
    OK(cuMemGetInfo(&all, &total));
    CHECK(all == free_bytes - 2 * MIB);
}

static void case_contexts(void)
{
    CUcontext primary = begin_context(), first, second, again;
    CUdeviceptr a, b, c, base;
    size_t size, before, after, total;

    OK(cuMemAlloc(&c, 3 * MIB));
    OK(cuMemsetD8(c, 9, 3 * MIB));
    usleep(1500000); /* the daemon corrects its first figure, for the edges, within a second */
    OK(cuMemGetInfo(&before, &total));
    OK(cuCtxCreate(&first, NULL, 0, 0));
    OK(cuMemAlloc(&a, 10 * MIB));
    OK(cuCtxCreate(&second, NULL, 0, 0));
    OK(cuMemAlloc(&b, 1000));
    OK(cuMemsetD8(b, 5, 1000));
    OK(cuCtxDestroy(first)); /* not the current one */
    CHECK(cuMemGetAddressRange(&base, &size, a) != CUDA_SUCCESS);
    expect_bytes(b, 1000, 5);
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(primary));
    CHECK(cuMemGetAddressRange(&base, &size, b) != CUDA_SUCCESS);
    expect_bytes(c, 3 * MIB, 9);
    before -= 2 * MIB; /* what lies beside all ranges, which the daemon may not have known of */
    do {               /* all comes back once the daemon knows that the contexts ended */
        OK(cuMemGetInfo(&after, &total));
        usleep(1000);
    } while (after < before); /* else a test that hangs is ended */
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuDevicePrimaryCtxRelease(0)); /* one of two: it stays */
    expect_bytes(c, 3 * MIB, 9);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    OK(cuCtxSetCurrent(again));
    CHECK(cuMemGetAddressRange(&base, &size, c) != CUDA_SUCCESS);
    OK(cuMemAlloc(&c, 3 * MIB));
    OK(cuMemFree(c));
}

/* Its memory is the primary context's and stays, as does its address; its streams go. */
static void case_green(void)
{
    const CUcontext primary = begin_context();
    const CUgreenCtx green = begin_green();
    CUdeviceptr small, large, pooled;
    CUcontext found = NULL;
    CUstream stream;

    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuMemAlloc(&small, 1000));
    OK(cuMemAlloc(&large, 6 * MIB));
    OK(cuMemAllocAsync(&pooled, 6 * MIB, stream));
    OK(cuMemsetD8Async(pooled, 3, 6 * MIB, stream));
    OK(cuMemsetD8(small, 1, 1000));
    OK(cuMemsetD8(large, 2, 6 * MIB));
    OK(cuStreamSynchronize(stream));
    OK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, large));
    CHECK(found == primary);
    OK(cuStreamDestroy(stream));
    OK(cuCtxSetCurrent(primary));
    OK(cuGreenCtxDestroy(green));
    expect_bytes(small, 1000, 1);
    expect_bytes(large, 6 * MIB, 2);
    expect_bytes(pooled, 6 * MIB, 3);
    OK(cuMemFree(pooled));
    OK(cuMemFree(large));
    OK(cuMemFree(small));
    begin_green();
    OK(cuDevicePrimaryCtxReset(0)); /* with which the green one ends */
    begin_context();
    OK(cuMemAlloc(&large, 6 * MIB));
    OK(cuMemsetD8(large, 4, 6 * MIB));
    expect_bytes(large, 6 * MIB, 4);
}

static _Atomic(bool) stop;

static void *allocate_in_own_context(void *unused)
{
    CUcontext context;

    OK(cuCtxCreate(&context, NULL, 0, 0));
    while (!atomic_load(&stop)) {
        CUdeviceptr address[8];

        for (int i = 0; i < 8; i++) {
            OK(cuMemAlloc(&address[i], (size_t)1 << (i * 3)));
            OK(cuMemsetD8(address[i], 1, (size_t)1 << (i * 3)));
        }
        for (int i = 0; i < 8; i++)
            OK(cuMemFree(address[i]));
    }
    OK(cuCtxDestroy(context));
    return unused;
}

static void case_destroy_beside(void)
{
    pthread_t threads[4];
    CUdeviceptr address;
    CUcontext context;

    begin_context();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_in_own_context, NULL) == 0);
    for (int i = 0; i < 40; i++) {
        OK(cuCtxCreate(&context, NULL, 0, 0));
        OK(cuMemAlloc(&address, 4 * MIB));
        OK(cuMemsetD8(address, 1, 4 * MIB));
        OK(cuCtxDestroy(context));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void case_only_queries(void)
{
    int count = 0;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count >= 1);
}

/* a forked child does not disturb its parent, whose memory goes on being its own */
static void case_fork(void)
{
    CUdeviceptr address;
    int status = -1;
    pid_t pid;

    begin_context();
    OK(cuMemAlloc(&address, 8 * MIB));
    OK(cuMemsetD8(address, 0x5a, 8 * MIB));
    for (int i = 0; i < 3; i++) {
        pid = fork();
        if (pid == 0) {
            char host[16];

            cuMemcpyDtoH(host, address, sizeof host); /* fails; must neither hang nor crash */
            exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect_bytes(address, 8 * MIB, 0x5a);
    }
    CHECK(system("exit 7") == 7 << 8); /* NOLINT(cert-env33-c): what a program may do */
    OK(cuMemFree(address));
}

static void case_child_only(void)
{
    const pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        CUdeviceptr address;

        begin_context();
        OK(cuMemAlloc(&address, 3 * MIB));
        OK(cuMemsetD8(address, 4, 3 * MIB));
        expect_bytes(address, 3 * MIB, 4);
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(wait(&status) == -1);
}

/* run without a daemon: the one that is started on demand is nobody's child here */
static void case_wait(void)
{
    const struct timespec pause = {0, 300000000};
    CUdeviceptr address;
    int status;

    begin_context();
    OK(cuMemAlloc(&address, MIB));
    OK(cuMemsetD8(address, 1, MIB));
    nanosleep(&pause, NULL);
    CHECK(waitpid(-1, &status, WNOHANG) == -1);
}

/* three large ones, for test_calls.py to count the driver's calls */
static void case_large(void)
{
    CUdeviceptr address;

    begin_context();
    OK(cuMemAlloc(&address, 2 * MIB));
    OK(cuMemsetD8(address, 1,
                  2 * MIB)); /* the gate is open: what comes has its memory at once */
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc(&address, 1024 * MIB));
}

static bool log_says(const char *what)
{
    const char *path = getenv("SIMCUDA_LOG");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    char line[512];
    bool says = false;

    while (file != NULL && !says && fgets(line, sizeof line, file) != NULL)
        says = strstr(line, what) != NULL;
    if (file != NULL)
        fclose(file);
    return says;
}

/* Run with SIMCUDA_SLOW=cuMemUnmap and a log: the library's own thread gives back what was freed,
 * and has begun to when all that is called free is asked for. */
static void case_given_back(void)
{
    const struct timespec pause = {0, 1000000};
    CUdeviceptr address;
    size_t free_bytes, total;

    begin_context();
    OK(cuMemAlloc(&address, 12 * MIB));
    OK(cuMemsetD8(address, 1, 12 * MIB));
    OK(cuMemFree(address));
    OK(cuMemGetInfo(&free_bytes, &total));
    while (!log_says("cuMemUnmap is slow"))
        nanosleep(&pause, NULL);
    OK(cuMemAlloc(&address, free_bytes));
    OK(cuMemsetD8(address, 2, free_bytes));
}

/* A graph's memory, which the driver holds until the graph goes. */
static CUgraphExec hold_memory(CUstream stream, size_t bytes)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr address;

    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&address, bytes, stream));
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    return exec;
}

/* On a card of 128 MiB: memory that cannot move is freed, and its room is allocated at once. */
static void case_room_of_graphs(void)
{
    const struct timespec pause = {0, 1000000};
    size_t free_bytes, total;
    CUgraphExec exec;
    CUdeviceptr address;
    CUstream stream;

    begin_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 5; round++) {
        exec = hold_memory(stream, 80 * MIB);
        do { /* until it is known everywhere */
            nanosleep(&pause, NULL);
            OK(cuMemGetInfo(&free_bytes, &total));
        } while (free_bytes > 60 * MIB);
        GIVES(cuMemAlloc(&address, 90 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        OK(cuGraphExecDestroy(exec));
        OK(cuMemAlloc(&address, 90 * MIB));
        OK(cuMemsetD8(address, 1, 90 * MIB));
        OK(cuMemFree(address));
    }
}

/* Numbers of descriptors that the kernel has room for without making more: -1 if it does not say. */
static long room_for_descriptors(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[128];
    long room = -1;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "FDSize:", 7) == 0)
            room = strtol(line + 7, NULL, 10);
    if (file != NULL)
        fclose(file);
    return room;
}

/* Making room for the library's descriptors takes some 10 ms in a process with threads, so it is
 * done before there are any. */
static void case_descriptors(void)
{
    CHECK(room_for_descriptors() > 1024);
    CHECK(fcntl(1024, F_GETFD) == -1); /* and nothing is open */
}

int main(int argc, char **argv)
{
    static const struct check_case cases[] = {{"sizes", case_sizes},
                                              {"frees", case_frees},
                                              {"attributes", case_attributes},
                                              {"pitch", case_pitch},
                                              {"limit", case_limit},
                                              {"contexts", case_contexts},
                                              {"green", case_green},
                                              {"destroy_beside", case_destroy_beside},
                                              {"only_queries", case_only_queries},
                                              {"fork", case_fork},
                                              {"child_only", case_child_only},
                                              {"wait", case_wait},
                                              {"large", case_large},
                                              {"given_back", case_given_back},
                                              {"room_of_graphs", case_room_of_graphs},
                                              {"descriptors", case_descriptors},
                                              {NULL, NULL}};

    return run_case(argc, argv, cases);
}
