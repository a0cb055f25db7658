/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.c: kernels that read a row below and above their arrays, as some programs do (srad of
 * Rodinia and Altis), which works where the driver's neighbouring memory is mapped; and write
 * there.
 *
 *   beside read | write [MIB]        each in a process of its own, since a fault ends the
 *                                    context: one line an access, "BLOCK SIDE: CUresult"
 *   beside stay MIB READY GO         reads everything in one process; makes the file READY,
 *                                    waits for the file GO, and reads it all again. "ok" and 0,
 *                                    or 1 and a line for what was not so
 *
 * Blocks: the first allocation, of MIB (256), and small, pitched, and stream-ordered ones. Each
 * block's own bytes must be as they were. Built without CUDA libraries: everything by dlsym.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/bad_input.h"
#include "tests/simcuda/standin.h"

#define ROW     ((size_t)8192)
#define WORDS   (ROW / sizeof(unsigned))
#define PATTERN 0x5b
#define WAIT_S  120

void *driver;

/* One thread sums up a row, or writes its first word. */
static const char code[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                           ".visible .entry read_row(.param .u64 from, .param .u64 to, .param "
                           ".u32 count)\n"
                           "{\n"
                           " .reg .u64 %f, %t;\n .reg .u32 %n, %s, %v;\n .reg .pred %p;\n"
                           " ld.param.u64 %f, [from];\n ld.param.u64 %t, [to];\n"
                           " ld.param.u32 %n, [count];\n mov.u32 %s, 0;\n"
                           "again:\n"
                           " ld.volatile.global.u32 %v, [%f];\n add.u32 %s, %s, %v;\n"
                           " add.u64 %f, %f, 4;\n sub.u32 %n, %n, 1;\n"
                           " setp.ne.u32 %p, %n, 0;\n @%p bra again;\n"
                           " st.global.u32 [%t], %s;\n ret;\n"
                           "}\n"
                           ".visible .entry write_word(.param .u64 to)\n"
                           "{\n"
                           " .reg .u64 %t;\n .reg .u32 %v;\n ld.param.u64 %t, [to];\n"
                           " mov.u32 %v, 7;\n st.volatile.global.u32 [%t], %v;\n ret;\n"
                           "}\n";

static void run_read(const struct simcuda_launch *launch)
{
    const volatile unsigned *from = *(const unsigned *const *)launch->params[0];
    unsigned *to = *(unsigned *const *)launch->params[1], sum = 0;

    for (unsigned i = 0; i < *(const unsigned *)launch->params[2]; i++)
        sum += from[i];
    *to = sum;
}

static void run_write(const struct simcuda_launch *launch)
{
    **(unsigned *volatile *)launch->params[0] = 7;
}

static const uint32_t read_sizes[] = {8, 8, 4}, write_sizes[] = {8};
__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{"read_row", run_read, 3, read_sizes},
                                                 {"write_word", run_write, 1, write_sizes},
                                                 {NULL, NULL, 0, NULL}};

enum side { BELOW, ABOVE, SIDES };
static const char *const side_names[] = {"below", "above"};

static struct block {
    const char *name;
    CUdeviceptr start;
    size_t bytes;
} blocks[] = {{"large", 0, 0}, {"small", 0, 0}, {"pitched", 0, 0}, {"ordered", 0, 0}};
#define BLOCKS (sizeof blocks / sizeof blocks[0])

static CUdeviceptr result_word;
static CUfunction read_row, write_word;

static void must_succeed(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("beside: %s: %d\n", what, (int)result);
    exit(1);
}

static void set_up(size_t large)
{
    size_t pitch = 0;
    CUcontext context;
    CUmodule module;

    alarm(2 * WAIT_S); /* nothing of this may hang */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || CALL(cuInit, cuInit_v2000)(0) != CUDA_SUCCESS)
        _exit(77);
    must_succeed(CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000)(&context, 0),
                 "context");
    must_succeed(CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(context), "current context");
    blocks[0].bytes = large;
    must_succeed(CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&blocks[0].start, large), "large");
    blocks[1].bytes = 4096;
    must_succeed(CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&blocks[1].start, 4096), "small");
    must_succeed(CALL(cuMemAllocPitch_v2, cuMemAllocPitch_v3020)(&blocks[2].start, &pitch, 4096,
                                                                 1024, 4),
                 "pitched");
    blocks[2].bytes = pitch * 1024;
    blocks[3].bytes = 6 * MIB;
    must_succeed(CALL(cuMemAllocAsync, cuMemAllocAsync_v11020)(&blocks[3].start, 6 * MIB, NULL),
                 "ordered");
    must_succeed(CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&result_word, 4 * MIB), "result");
    must_succeed(CALL(cuModuleLoadData, cuModuleLoadData_v2000)(&module, code), "code");
    must_succeed(
        CALL(cuModuleGetFunction, cuModuleGetFunction_v2000)(&read_row, module, "read_row"),
        "read_row");
    must_succeed(
        CALL(cuModuleGetFunction, cuModuleGetFunction_v2000)(&write_word, module, "write_word"),
        "write_word");
    for (unsigned i = 0; i < BLOCKS; i++)
        must_succeed(
            CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(blocks[i].start, PATTERN, blocks[i].bytes),
            blocks[i].name);
    must_succeed(CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)(), "set up");
}

static CUresult launch_kernel(CUfunction function, void **values)
{
    const CUresult result = CALL(cuLaunchKernel, cuLaunchKernel_v4000)(
        function, 1, 1, 1, 1, 1, 1, 0, NULL, values, NULL);

    return result == CUDA_SUCCESS ? CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)() : result;
}

static CUresult read_beside(const struct block *block, enum side side)
{
    CUdeviceptr from = side == BELOW ? block->start - ROW : block->start + block->bytes;
    unsigned count = WORDS;

    return launch_kernel(read_row, (void *[]){&from, &result_word, &count});
}

static CUresult write_beside(const struct block *block, enum side side)
{
    CUdeviceptr to =
        side == BELOW ? block->start - sizeof(unsigned) : block->start + block->bytes;

    return launch_kernel(write_word, (void *[]){&to});
}

/* The kernel reads what is in the block, and the bytes at its ends are what they were. */
static void check_block(const struct block *block)
{
    const size_t last = block->bytes < ROW ? 0 : block->bytes - ROW;
    CUdeviceptr from = block->start + last;
    unsigned count = block->bytes < ROW ? (unsigned)(block->bytes / sizeof count) : WORDS;
    unsigned sum = 0;

    must_succeed(launch_kernel(read_row, (void *[]){&from, &result_word, &count}), block->name);
    must_succeed(CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&sum, result_word, sizeof sum),
                 "sum");
    if (sum == 0x5b5b5b5bu * count)
        return;
    printf("beside: %s does not hold what it held\n", block->name);
    exit(1);
}

static void run_apart(const struct block *block, enum side side, bool writes, size_t large)
{
    const pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        set_up(large);
        printf("%s %s: %d\n", block->name, side_names[side],
               (int)(writes ? write_beside(block, side) : read_beside(block, side)));
        exit(0);
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void read_all(const char *when)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        check_block(&blocks[i]);
        for (enum side side = BELOW; side < SIDES; side++) {
            const CUresult result = read_beside(&blocks[i], side);

            if (result != CUDA_SUCCESS) {
                printf("beside: %s: %s %s: %d\n", when, blocks[i].name, side_names[side],
                       (int)result);
                exit(1);
            }
        }
    }
}

static void wait_for(const char *ready, const char *go)
{
    const struct timespec pause = {0, 20000000};
    const int file = open(ready, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    if (file < 0) {
        printf("beside: %s: %s\n", ready, strerror(errno));
        exit(1);
    }
    close(file);
    for (unsigned i = 0; i < WAIT_S * 50 && access(go, F_OK) != 0; i++)
        nanosleep(&pause, NULL);
    if (access(go, F_OK) == 0)
        return;
    printf("beside: nobody said go\n");
    exit(1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const size_t large = (argc > 2 ? strtoull(argv[2], NULL, 10) : 256) * MIB;

    setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is left in it when a process begins */
    if (strcmp(what, "stay") == 0 && argc == 5) {
        set_up(large);
        read_all("before");
        wait_for(argv[3], argv[4]);
        read_all("after");
        puts("ok");
        return 0;
    }
    if ((strcmp(what, "read") != 0 && strcmp(what, "write") != 0) || argc > 3 || large == 0) {
        fprintf(stderr, "usage: beside read | write [MIB], or stay MIB READY GO\n");
        return 2;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        for (enum side side = BELOW; side < SIDES; side++)
            run_apart(&blocks[i], side, strcmp(what, "write") == 0, large);
    return 0;
}
