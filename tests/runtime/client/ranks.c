/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.c: one rank of a job, on the simulated card. In each round it computes, then meets the
 * others in a kernel that spins until the kernels of all ranks run, as collectives do.
 *
 *   ranks FILE RANK RANKS ROUNDS MIB WAY [GROWTH | NCCL]
 *
 * FILE is memory that the ranks share. WAY: "env" sets MASTER_ADDR and MASTER_PORT (to a number
 * from the name of the file) after the start, as Python programs do; "register" maps FILE only
 * when the program has run for a while, and registers it with the driver, as NCCL does; "export" connects the ranks 0 and 1 by TCP,
 * and both export device memory, as NCCL does where GPUs reach each other; "connect" does only the first; "nccl" and "none" do nothing.
 * "late" waits for nobody on the host, and maps the file NCCL, which shows that the ranks are one
 * job, once it is there.
 * With GROWTH (a file, too) this rank needs as much memory again in the middle, at the same moment
 * as the rank of another job that has that file; the others of both jobs are in kernels that wait
 * for them then. It makes a handle of that memory (CUDA IPC), and another rank opens and reads it at
 * the end.
 * Its last line is "ok" if its memory holds what it must.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "tests/runtime/check.h"
#include "tests/simcuda/standin.h"

#define RANKS_MOST 8
#define LOOKS_MOST 6000000 /* each about 100 us after the last: ten minutes */

struct meeting {
    _Atomic(uint32_t) at[RANKS_MOST]; /* the round that each has come to */
    _Atomic(uint32_t) port;
    _Atomic(uint32_t) exported; /* the stages of the growth that another rank opens */
    CUipcMemHandle handle;
};

enum { HAS_HANDLE = 1, IS_WRITTEN, IS_READ };

static void meet_run(const struct simcuda_launch *launch)
{
    struct meeting *meeting = *(struct meeting *const *)launch->params[0];
    const uint32_t rank = *(const uint32_t *)launch->params[1];
    const uint32_t ranks = *(const uint32_t *)launch->params[2];
    const uint32_t round = *(const uint32_t *)launch->params[3];

    atomic_store(&meeting->at[rank], round);
    for (uint32_t i = 0, looks = 0; i < ranks && looks < LOOKS_MOST;) {
        if (atomic_load(&meeting->at[i]) >= round) {
            i++;
            continue;
        }
        usleep(100);
        looks++;
    }
}

__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"meet", meet_run, 4, (const uint32_t[]){sizeof(void *), 4, 4, 4}}, {NULL, NULL, 0, NULL}};

static void queue_work(CUdeviceptr memory, size_t bytes, uint32_t round)
{
    for (unsigned i = 0; i < 8; i++)
        OK(cuMemsetD8Async(memory + i * (bytes / 8), (unsigned char)(round + i), bytes / 8,
                           NULL));
}

static bool is_right(CUdeviceptr memory, size_t bytes, uint32_t round)
{
    unsigned char *copy = malloc(bytes);
    bool right = copy != NULL;

    OK(cuMemcpyDtoH(copy, memory, bytes));
    for (size_t i = 0; i < bytes && right; i++)
        right = copy[i] == (unsigned char)(round + i / (bytes / 8));
    free(copy);
    return right;
}

/* By the two versions of the function, as programs of then and now do. */
static void register_shared(struct meeting *meeting, uint32_t rank)
{
    void *function;

    OK(cuGetProcAddress("cuMemHostRegister", &function, rank % 2 == 0 ? 4000 : 13000, 0, NULL));
    OK((*(PFN_cuMemHostRegister_v6050 *)&function)(meeting, 4096, CU_MEMHOSTREGISTER_PORTABLE));
}

static struct meeting *map_meeting(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct meeting *meeting;

    CHECK(fd >= 0 && ftruncate(fd, sizeof *meeting) == 0);
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(meeting != MAP_FAILED);
    close(fd);
    return meeting;
}

static void *map_when_there(void *path)
{
    while (access(path, F_OK) != 0)
        usleep(1000);
    map_meeting(path);
    return NULL;
}

static unsigned port_of(const char *file)
{
    unsigned port = 20000;

    for (const char *at = file; *at != '\0'; at++)
        port = port * 31 + (unsigned char)*at;
    return 20000 + port % 10000;
}

static void set_environment(const char *file)
{
    char text[16];

    snprintf(text, sizeof text, "%u", port_of(file));
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", text, 1);
}

/* By a port that rank 0 has found. The connection stays. */
static void connect_ranks(struct meeting *meeting, uint32_t rank)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint32_t port;

    CHECK(fd >= 0);
    if (rank == 0) {
        CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 1) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &size) == 0);
        atomic_store(&meeting->port, ntohs(address.sin_port));
        CHECK(accept(fd, NULL, NULL) >= 0);
        return;
    }
    while ((port = atomic_load(&meeting->port)) == 0)
        usleep(1000);
    address.sin_port = htons((uint16_t)port);
    CHECK(connect(fd, (struct sockaddr *)&address, size) == 0);
}

static void export_memory(CUdevice device)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle;
    int fd;

    OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

/* When both have come, and what has been launched on the other device runs. */
static CUdeviceptr grow(const char *path, uint32_t rank, size_t bytes)
{
    struct meeting *both = map_meeting(path);
    CUdeviceptr more;

    OK(cuCtxSynchronize());
    atomic_store(&both->at[rank], 1);
    for (uint32_t i = 0; i < 2;)
        if (atomic_load(&both->at[i]) != 0)
            i++;
        else
            usleep(1000);
    usleep(300000);
    OK(cuMemAlloc(&more, bytes));
    return more;
}

/* The library waits 30 s for memory that is beyond the card to come back. */
static bool is_right_opened(struct meeting *meeting, size_t bytes, uint32_t round)
{
    CUdeviceptr there;
    CUresult result = CUDA_ERROR_UNKNOWN;
    bool right;

    while (atomic_load(&meeting->exported) < IS_WRITTEN)
        usleep(1000);
    for (unsigned i = 0; i < 5 && result != CUDA_SUCCESS; i++)
        result =
            cuIpcOpenMemHandle(&there, meeting->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    OK(result);
    right = is_right(there, bytes, round);
    OK(cuIpcCloseMemHandle(there));
    atomic_store(&meeting->exported, IS_READ);
    return right;
}

static void be_opened(struct meeting *meeting)
{
    atomic_store(&meeting->exported, IS_WRITTEN);
    while (atomic_load(&meeting->exported) != IS_READ)
        usleep(1000);
}

int main(int argc, char **argv)
{
    const bool given = argc == 7 || argc == 8;
    uint32_t rank = given ? (uint32_t)strtoul(argv[2], NULL, 10) : RANKS_MOST;
    uint32_t ranks = given ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    const uint32_t rounds = given ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    const size_t bytes = given ? (size_t)strtoul(argv[5], NULL, 10) << 20 : 0;
    const bool registers = given && strcmp(argv[6], "register") == 0;
    const bool exports = given && strcmp(argv[6], "export") == 0;
    const bool late = argc == 8 && strcmp(argv[6], "late") == 0;
    const char *const growth = argc == 8 && !late ? argv[7] : NULL;
    pthread_t looks;
    struct meeting *meeting = NULL;
    CUdeviceptr memory, more = 0;
    CUfunction function;
    CUcontext context;
    CUmodule module;
    CUdevice device;
    bool right;

    if (rank >= RANKS_MOST || ranks > RANKS_MOST)
        return 2;
    if (!registers)
        meeting = map_meeting(argv[1]);
    if (late)
        CHECK(pthread_create(&looks, NULL, map_when_there, argv[7]) == 0);
    if (strcmp(argv[6], "env") == 0)
        set_environment(argv[1]);
    if (exports || strcmp(argv[6], "connect") == 0)
        connect_ranks(meeting, rank);
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"));
    OK(cuModuleGetFunction(&function, module, "meet"));
    OK(cuMemAlloc(&memory, bytes));
    if (exports)
        export_memory(device);
    if (registers) {
        queue_work(memory, bytes, 1);
        OK(cuCtxSynchronize());
        usleep(500000); /* the library has looked at the mappings before it had its turn */
        meeting = map_meeting(argv[1]);
        register_shared(meeting, rank);
    }
    atomic_store(&meeting->at[rank], 1); /* a communicator begins on the host */
    for (uint32_t i = 0; i < ranks && !late;) {
        if (atomic_load(&meeting->at[i]) != 0)
            i++;
        else
            usleep(1000);
    }
    puts("all");
    fflush(stdout);
    for (uint32_t round = 2; round < rounds + 2; round++) {
        if (growth != NULL && round == rounds / 2)
            more = grow(growth, rank, bytes);
        queue_work(memory, bytes, round);
        if (more != 0)
            queue_work(more, bytes, round + 1);
        if (more != 0 && atomic_load(&meeting->exported) == 0) {
            OK(cuIpcGetMemHandle(&meeting->handle, more));
            atomic_store(&meeting->exported, HAS_HANDLE);
        }
        OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL,
                          (void *[]){&meeting, &rank, &ranks, &round}, NULL));
        if (late && round == 2) {
            puts("launched");
            fflush(stdout);
        }
        if (round % 2 == 0)
            OK(cuCtxSynchronize());
    }
    OK(cuCtxSynchronize());
    right =
        is_right(memory, bytes, rounds + 1) && (more == 0 || is_right(more, bytes, rounds + 2));
    if (more != 0)
        be_opened(meeting);
    else if (atomic_load(&meeting->exported) != 0)
        right &= is_right_opened(meeting, bytes, rounds + 2);
    puts(right ? "ok" : "wrong");
    return 0;
}
