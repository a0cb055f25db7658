/* SPDX-License-Identifier: Apache-2.0
 *
 * testkit.c: owns the running of test bodies (testkit.h) and the stand-in kernels of the tests.
 * Invariants: the process that runs cmocka never calls the driver, so that its children may.
 * Threads: one.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/simcuda/standin.h"
#include "tests/simcuda/testkit.h"

const CUmemAllocationProp kit_prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
const CUmemAccessDesc kit_access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

/* -- stand-ins -- */

static void run_fill(const struct simcuda_launch *launch)
{
    uint32_t *to = *(uint32_t **)launch->params[0];
    const uint32_t value = *(const uint32_t *)launch->params[1];
    const uint64_t count = *(const uint64_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        to[i] = value;
}

static void run_add(const struct simcuda_launch *launch)
{
    uint32_t *to = *(uint32_t **)launch->params[0];

    *to += *(const uint32_t *)launch->params[1];
}

static void run_sleep(const struct simcuda_launch *launch)
{
    const struct timespec time = {.tv_nsec = (long)*(const uint64_t *)launch->params[0]};

    nanosleep(&time, NULL);
}

static _Atomic(int) held,
    released; /* how often a kernel has begun to hold, how often it was let go */

static void run_hold(const struct simcuda_launch *launch)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const int number = atomic_fetch_add(&held, 1);

    (void)launch;
    while (atomic_load(&released) <= number)
        nanosleep(&pause, NULL);
}

static void run_nothing(const struct simcuda_launch *launch)
{
    (void)launch;
}

/* __global__ void mixed(char, double, short, void *result): writes the sum of its numbers */
static void run_mixed(const struct simcuda_launch *launch)
{
    double **to = (double **)launch->params[3];

    **to = *(const char *)launch->params[0] + *(const double *)launch->params[1] +
           *(const short *)launch->params[2];
}

static const uint32_t fill_sizes[] = {8, 4, 8}, add_sizes[] = {8, 4}, sleep_sizes[] = {8};
static const uint32_t mixed_sizes[] = {1, 8, 2, 8};
const struct simcuda_kernel simcuda_kernels[] = {{"fill", run_fill, 3, fill_sizes},
                                                 {"add", run_add, 2, add_sizes},
                                                 {"sleep", run_sleep, 1, sleep_sizes},
                                                 {"nothing", run_nothing, 0, NULL},
                                                 {"mixed", run_mixed, 4, mixed_sizes},
                                                 {"hold", run_hold, 0, NULL},
                                                 {NULL, NULL, 0, NULL}};

/* -- bodies -- */

void kit_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    fflush(NULL);
    _exit(1);
}

void kit_gives(const char *file, int line, const char *what, CUresult wanted, CUresult got)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s gave %d, not %d\n", file, line, what, (int)got, (int)wanted);
    fflush(NULL);
    _exit(1);
}

int kit_spawn(void (*body)(void))
{
    const int pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(300);
        body();
        exit(0);
    }
    return pid;
}

void kit_join(int pid)
{
    int status = 0;

    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void kit_run(void (*body)(void), ...)
{
    char folder[] = "/tmp/simcuda-test-XXXXXX", command[64];
    va_list settings;
    int status = 0;

    assert_non_null(mkdtemp(folder));
    const int pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("SIMCUDA_CARD", folder, 1);
        setenv("SIMCUDA_MEMORY", "64MiB", 1);
        va_start(settings, body);
        for (char *one = va_arg(settings, char *); one; one = va_arg(settings, char *))
            putenv(one);
        va_end(settings);
        alarm(300);
        body();
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    // NOLINTNEXTLINE(cert-env33-c): a fixed command
    assert_int_equal(system(command), 0);
    if (WIFSIGNALED(status))
        fail_msg("the test body died of signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void kit_turn_init(struct kit_turn *turn)
{
    CHECK(pipe(turn->pipe) == 0);
}

void kit_turn_signal(struct kit_turn *turn)
{
    CHECK(write(turn->pipe[1], "x", 1) == 1);
}

void kit_turn_wait(struct kit_turn *turn)
{
    char byte;

    CHECK(read(turn->pipe[0], &byte, 1) == 1);
}

/* -- driver -- */

CUcontext kit_context(void)
{
    CUcontext context = NULL;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

CUfunction kit_kernel(const char *name)
{
    CUmodule module = NULL;
    CUfunction function = NULL;

    OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

void kit_launch(CUfunction kernel, CUstream stream, void **parameters)
{
    OK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

void kit_hold(CUstream stream)
{
    kit_launch(kit_kernel("hold"), stream, NULL);
}

void kit_await_held(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    while (atomic_load(&held) <= atomic_load(&released))
        nanosleep(&pause, NULL);
}

void kit_release(void)
{
    atomic_fetch_add(&released, 1);
}

CUdeviceptr kit_vmm(size_t size, CUmemGenericAllocationHandle *handle)
{
    CUdeviceptr address = 0;

    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    OK(cuMemCreate(handle, size, &kit_prop, 0));
    OK(cuMemMap(address, size, 0, *handle, 0));
    OK(cuMemSetAccess(address, size, &kit_access, 1));
    return address;
}

double kit_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

uint64_t kit_processor_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

bool kit_all_bytes(CUdeviceptr address, size_t size, unsigned char value)
{
    unsigned char *bytes = malloc(size);
    bool same = bytes != NULL;

    OK(cuMemcpyDtoH(bytes, address, size));
    for (size_t i = 0; i < size && same; i++)
        same = bytes[i] == value;
    free(bytes);
    return same;
}

size_t kit_memory_left(void)
{
    size_t left = 0, total = 0;

    OK(cuMemGetInfo(&left, &total));
    return left;
}
