/* SPDX-License-Identifier: Apache-2.0
 *
 * testkit.h: what the tests of the simulated driver share: each test body runs in a process of
 * its own, on a card of its own.
 */
#pragma once

#include <cuda.h>
#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define MIB (1024ul * 1024)

/* Ends the process of the test body with a line that says what is wrong. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition))                                                                      \
            kit_fail(__FILE__, __LINE__, #condition);                                          \
    } while (0)
/* A driver call must give this result. */
#define GIVES(wanted, call) kit_gives(__FILE__, __LINE__, #call, (wanted), (call))
#define OK(call)            GIVES(CUDA_SUCCESS, call)

void kit_fail(const char *file, int line, const char *what) __attribute__((noreturn));
void kit_gives(const char *file, int line, const char *what, CUresult wanted, CUresult got);

/* Runs body in a child with a fresh card and the environment settings "NAME=value",
 * NULL-terminated, and fails the test unless the child ends with 0. */
void kit_run(void (*body)(void), ...) __attribute__((sentinel));

/* For bodies: another process on the same card. It must not have called cuInit before. */
int kit_spawn(void (*body)(void));
void kit_join(int pid);
/* A pipe's worth of turn taking between the two. */
struct kit_turn {
    int pipe[2];
};
void kit_turn_init(struct kit_turn *turn);
void kit_turn_signal(struct kit_turn *turn);
void kit_turn_wait(struct kit_turn *turn);

CUcontext kit_context(void);             /* cuInit and a primary context, current */
CUfunction kit_kernel(const char *name); /* from a PTX module: found by stand-in */
void kit_launch(CUfunction kernel, CUstream stream, void **parameters);
/* A kernel that ends when kit_release() is called, in this process, and not before: what was
 * queued behind it has not run, however busy the machine is. Of several such kernels the next
 * one has to be released again. */
void kit_hold(CUstream stream);
void kit_await_held(void); /* until one runs */
void kit_release(void);
CUdeviceptr
kit_vmm(size_t size,
        CUmemGenericAllocationHandle *handle); /* reserved, created, mapped, writable */
extern const CUmemAllocationProp kit_prop;
extern const CUmemAccessDesc kit_access;
double kit_seconds(void);
uint64_t kit_processor_ns(void); /* processor time of the calling thread */
/* The driver's: the time that operations of this process have taken for memory, by the model. */
uint64_t simcuda_memory_ns(void);

/* Whether all bytes of that memory have the value; what cuMemGetInfo() calls free. */
bool kit_all_bytes(CUdeviceptr address, size_t size, unsigned char value);
size_t kit_memory_left(void);

int kit_run_basic(void), kit_run_memory(void), kit_run_stream(void), kit_run_capture(void),
    kit_run_process(void), kit_run_module(void), kit_run_shared(void),
    kit_run_shared_many(void), kit_run_vmm(void);

/* A cmocka test that runs the body `name` by kit_run() with the given settings. */
#define TEST(name, ...)                                                                        \
    static void test_##name(void **state)                                                      \
    {                                                                                          \
        (void)state;                                                                           \
        kit_run(name, __VA_ARGS__);                                                            \
    }
