/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: for the programs whose cases are run one at a time (calls.c, pools.c): a case ends
 * the process with 1 and a line at the first thing that is not so.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "tests/simcuda/standin.h"

#define MIB ((size_t)1 << 20)

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE_NAME__, __LINE__, #condition);       \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)
#define GIVES(call, expected)                                                                  \
    do {                                                                                       \
        const CUresult gives_result = (call);                                                  \
        if (gives_result != (expected)) {                                                      \
            fprintf(stderr, "%s:%d: %s: CUresult %d, not %d\n", __FILE_NAME__, __LINE__,       \
                    #call, (int)gives_result, (int)(expected));                                \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)
#define OK(call) GIVES(call, CUDA_SUCCESS)

static inline CUcontext begin_context(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

/* all of device 0 as a green context, current to this thread from now on */
static inline CUgreenCtx begin_green(void)
{
    CUdevResource resource;
    CUdevResourceDesc part;
    CUgreenCtx green;
    CUcontext context;

    OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&part, &resource, 1));
    OK(cuGreenCtxCreate(&green, part, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxSetCurrent(context));
    return green;
}

static inline void expect_bytes(CUdeviceptr address, size_t bytes, int value)
{
    uint8_t *copy = malloc(bytes);

    CHECK(copy != NULL);
    memset(copy, ~value, bytes);
    OK(cuMemcpyDtoH(copy, address, bytes));
    for (size_t i = 0; i < bytes; i++)
        CHECK(copy[i] == (uint8_t)value);
    free(copy);
}

struct check_case {
    const char *name;
    void (*run)(void);
};

/* Runs the one that the command line names. The exit status. */
static inline int run_case(int argc, char **argv, const struct check_case *cases)
{
    for (; argc == 2 && cases->name != NULL; cases++)
        if (strcmp(cases->name, argv[1]) == 0) {
            cases->run();
            return 0;
        }
    fprintf(stderr, "usage: %s CASE\n", argv[0]);
    return 2;
}
