/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c: owns the work of the program moves that does not end by itself, or not yet: a kernel
 * that looks at a flag, a stream of its own, its capture. One thread, the kernel's, and one that
 * sets the flag later.
 */
#include "tests/runtime/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/runtime/check.h"

#define SPIN_MOST 600000 /* looks at the flag, each about 100 us after the last */
#define LATER_US  300000 /* a call that does not wait for the kernel has returned by then */

static _Atomic(bool) spinning;

void work_spin_run(const struct simcuda_launch *launch)
{
    const _Atomic(uint32_t) *flag = *(const _Atomic(uint32_t) *const *)launch->params[0];

    for (unsigned i = 0; i < SPIN_MOST && atomic_load(flag) == 0; i++)
        usleep(100);
    atomic_store(&spinning, false);
}

static _Atomic(uint32_t)
    *spin_flag; /* in host memory that the kernel sees; NULL: not used yet */

CUresult work_spin(void)
{
    CUfunction function;
    CUmodule module;
    CUresult result = CUDA_SUCCESS;
    void *memory = spin_flag;

    if (memory == NULL)
        result = cuMemHostAlloc(&memory, sizeof *spin_flag, 0);
    if (result == CUDA_SUCCESS)
        result = cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n");
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&function, module, "spin");
    if (result != CUDA_SUCCESS)
        return result;
    spin_flag = memory;
    atomic_store(spin_flag, 0);
    atomic_store(&spinning, true);
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&spin_flag}, NULL);
}

static CUstream side_stream(void)
{
    static CUstream stream;

    if (stream == NULL)
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUresult work_poke(void)
{
    static CUdeviceptr scratch;

    if (scratch == 0)
        OK(cuMemAlloc(&scratch, 1000));
    return cuMemsetD8Async(scratch, 1, 1000, side_stream());
}

CUresult work_capture(void)
{
    return cuStreamBeginCapture(side_stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

CUresult work_record(size_t bytes)
{
    CUdeviceptr memory;
    const CUresult result = cuMemAlloc(&memory, bytes);

    return result == CUDA_SUCCESS ? cuMemsetD8Async(memory, 1, bytes, side_stream()) : result;
}

CUresult work_captured(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUresult result = cuStreamEndCapture(side_stream(), &graph);

    if (result == CUDA_SUCCESS)
        result = cuGraphInstantiate(&exec, graph, 0);
    return result == CUDA_SUCCESS ? cuGraphLaunch(exec, side_stream()) : result;
}

void work_wipe_run(const struct simcuda_launch *launch)
{
    memset(*(void *const *)launch->params[0], 0, *(const uint64_t *)launch->params[1]);
}

static CUresult find_wipe(CUfunction *function)
{
    CUmodule module;
    const CUresult result = cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n");

    return result == CUDA_SUCCESS ? cuModuleGetFunction(function, module, "wipe") : result;
}

CUresult work_wipe_now(CUdeviceptr memory, uint64_t bytes, size_t times)
{
    static CUfunction function;
    CUresult result = function == NULL ? find_wipe(&function) : CUDA_SUCCESS;

    for (size_t i = 0; i < times && result == CUDA_SUCCESS; i++)
        result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL,
                                (void *[]){&memory, &bytes}, NULL);
    return result;
}

CUresult work_wipe_graph(CUgraphExec *exec, CUdeviceptr memory, uint64_t bytes)
{
    CUfunction function;
    CUgraph graph;
    CUresult result = find_wipe(&function);

    if (result == CUDA_SUCCESS)
        result = work_capture();
    if (result != CUDA_SUCCESS)
        return result;
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, side_stream(), (void *[]){&memory, &bytes},
                      NULL));
    OK(cuStreamEndCapture(side_stream(), &graph));
    result = cuGraphInstantiate(exec, graph, 0);
    OK(cuGraphDestroy(graph));
    return result;
}

CUresult work_wipe(CUgraphExec exec, size_t times)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < times && result == CUDA_SUCCESS; i++) {
        result = cuGraphLaunch(exec, side_stream());
        if (result == CUDA_SUCCESS)
            result = cuStreamSynchronize(side_stream());
    }
    return result;
}

void work_stop(void)
{
    CHECK(spin_flag != NULL);
    atomic_store(spin_flag, 1);
}

static void *stop_later(void *unused)
{
    usleep(LATER_US);
    work_stop();
    return unused;
}

CUresult work_free(CUdeviceptr memory)
{
    pthread_t thread;
    CUresult result;

    CHECK(pthread_create(&thread, NULL, stop_later, NULL) == 0);
    result = cuMemFree(memory);
    if (result == CUDA_SUCCESS && atomic_load(&spinning))
        result = CUDA_ERROR_UNKNOWN;
    CHECK(pthread_join(thread, NULL) == 0);
    return result;
}
