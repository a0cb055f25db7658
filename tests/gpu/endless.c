/* SPDX-License-Identifier: Apache-2.0
 *
 * endless.c: a program whose kernel ends only when the host says so (or after two minutes, so
 * that no card hangs for good), for run.sh:
 *
 *   endless exit BYTES GO   allocates BYTES, starts the kernel, says "spinning"; when the file
 * GO is there it leaves main() with the kernel running endless host BYTES GO   ... it queues
 * other work first, says "call SECONDS", how long that call took, then lets the kernel end, and
 * looks at every byte: "ok"
 *
 * Built without CUDA libraries: cc endless.c -ldl; everything by dlsym. On the simulated card
 * the kernel is a function here.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cudaTypedefs.h>

#include "tests/simcuda/standin.h"

#define MOST_NS 120000000000ull

static const char ptx[] = ".version 7.0\n"
                          ".target sm_75\n"
                          ".address_size 64\n"
                          ".visible .entry spin(.param .u64 flag, .param .u64 most)\n"
                          "{\n"
                          "    .reg .pred %p<3>;\n"
                          "    .reg .u32 %r<2>;\n"
                          "    .reg .u64 %rd<5>;\n"
                          "    ld.param.u64 %rd1, [flag];\n"
                          "    ld.param.u64 %rd2, [most];\n"
                          "    mov.u64 %rd3, %globaltimer;\n"
                          "    add.u64 %rd2, %rd2, %rd3;\n"
                          "LOOK:\n"
                          "    ld.volatile.global.u32 %r1, [%rd1];\n"
                          "    setp.ne.u32 %p1, %r1, 0;\n"
                          "    @%p1 bra DONE;\n"
                          "    mov.u64 %rd4, %globaltimer;\n"
                          "    setp.lt.u64 %p2, %rd4, %rd2;\n"
                          "    @%p2 bra LOOK;\n"
                          "DONE:\n"
                          "    ret;\n"
                          "}\n";

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_spin(const struct simcuda_launch *launch)
{
    const volatile uint32_t *flag = *(const volatile uint32_t *const *)launch->params[0];
    const uint64_t until = now_ns() + *(const uint64_t *)launch->params[1];

    while (*flag == 0 && now_ns() < until)
        usleep(100);
}

__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"spin", run_spin, 2, (const uint32_t[]){8, 8}}, {NULL, NULL, 0, NULL}};

static void *driver;

#define FN(symbol, pfn) ((pfn)dlsym(driver, #symbol))
#define OK(call)                                                                               \
    do {                                                                                       \
        const CUresult ok_result = (call);                                                     \
        if (ok_result != CUDA_SUCCESS) {                                                       \
            fprintf(stderr, "endless.c:%d: %s: CUresult %d\n", __LINE__, #call,                \
                    (int)ok_result);                                                           \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static uint32_t *flag; /* in host memory that the card sees */
static CUdeviceptr held, scratch;
static CUstream side;

static void begin_work(size_t bytes)
{
    CUcontext context;

    OK(FN(cuInit, PFN_cuInit_v2000)(0));
    OK(FN(cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000)(&context, 0));
    OK(FN(cuCtxSetCurrent, PFN_cuCtxSetCurrent_v4000)(context));
    OK(FN(cuMemAlloc_v2, PFN_cuMemAlloc_v3020)(&held, bytes));
    OK(FN(cuMemsetD8_v2, PFN_cuMemsetD8_v3020)(held, 0x5a, bytes));
    OK(FN(cuMemAlloc_v2, PFN_cuMemAlloc_v3020)(&scratch, 1000));
    OK(FN(cuStreamCreate, PFN_cuStreamCreate_v2000)(&side, CU_STREAM_NON_BLOCKING));
    OK(FN(cuMemHostAlloc, PFN_cuMemHostAlloc_v2020)((void **)&flag, sizeof *flag,
                                                    CU_MEMHOSTALLOC_DEVICEMAP));
    *flag = 0;
}

static void spin_kernel(void)
{
    uint64_t most = MOST_NS;
    void *params[] = {&flag, &most};
    CUfunction function;
    CUmodule module;

    OK(FN(cuModuleLoadData, PFN_cuModuleLoadData_v2000)(&module, ptx));
    OK(FN(cuModuleGetFunction, PFN_cuModuleGetFunction_v2000)(&function, module, "spin"));
    OK(FN(cuCtxSynchronize, PFN_cuCtxSynchronize_v2000)());
    OK(FN(cuLaunchKernel, PFN_cuLaunchKernel_v4000)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params,
                                                    NULL));
}

static void check_bytes(size_t bytes)
{
    const size_t piece = 1 << 20;
    uint8_t *copy = malloc(piece);

    for (size_t at = 0; copy != NULL && at < bytes; at += piece) {
        const size_t size = bytes - at < piece ? bytes - at : piece;

        OK(FN(cuMemcpyDtoH_v2, PFN_cuMemcpyDtoH_v3020)(copy, held + at, size));
        for (size_t i = 0; i < size; i++)
            if (copy[i] != 0x5a) {
                fprintf(stderr, "endless.c: byte %zu is %d\n", at + i, copy[i]);
                exit(1);
            }
    }
    free(copy);
}

int main(int argc, char **argv)
{
    uint64_t start;
    size_t bytes;

    if (argc != 4 || (strcmp(argv[1], "exit") != 0 && strcmp(argv[1], "host") != 0)) {
        fprintf(stderr, "usage: endless exit|host BYTES GO\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    bytes = strtoull(argv[2], NULL, 10);
    begin_work(bytes);
    spin_kernel();
    printf("spinning\n");
    fflush(stdout);
    for (unsigned i = 0; access(argv[3], F_OK) != 0; i++, usleep(10000))
        if (i > 10000) {
            fprintf(stderr, "endless.c: nobody said go\n");
            return 1;
        }
    if (strcmp(argv[1], "exit") == 0)
        return 0;
    start = now_ns();
    OK(FN(cuMemsetD8Async, PFN_cuMemsetD8Async_v3020)(scratch, 1, 1000, side));
    printf("call %.2f\n", (double)(now_ns() - start) / 1e9);
    *(volatile uint32_t *)flag = 1;
    OK(FN(cuCtxSynchronize, PFN_cuCtxSynchronize_v2000)());
    check_bytes(bytes);
    printf("ok\n");
    return 0;
}
