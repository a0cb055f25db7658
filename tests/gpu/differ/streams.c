/* SPDX-License-Identifier: Apache-2.0
 *
 * streams.c: the operations of differ.c on streams, events, kernels, modules and contexts.
 */
#include "tests/gpu/differ/differ.h"

#include <string.h>

/* --- streams --- */

static void stream_create(void)
{
    const unsigned slot = 2 + pick(STREAMS - 2), flags = one_in(12) ? 5 : pick(2);

    tell(" s%u flags %u", slot, flags);
    if (world.stream[slot] != NULL)
        return;
    if ((one_in(3) ? answer(CALL(cuStreamCreateWithPriority, cuStreamCreateWithPriority_v5050)(
                         &world.stream[slot], flags, -(int)pick(3)))
                   : answer(CALL(cuStreamCreate, cuStreamCreate_v2000)(&world.stream[slot],
                                                                       flags))) != CUDA_SUCCESS)
        world.stream[slot] = NULL;
}

static void stream_destroy(void)
{
    const unsigned slot = 2 + pick(STREAMS - 2);

    tell(" s%u", slot);
    if (world.stream[slot] == NULL || world.capturing != 0)
        return;
    answer(CALL(cuStreamDestroy_v2, cuStreamDestroy_v4000)(world.stream[slot]));
    world.stream[slot] = NULL;
}

static void stream_ask(void)
{
    const CUstream stream = pick_stream();
    unsigned flags = 77;
    int priority = 77;
    CUcontext context = NULL;

    if (answer(CALL(cuStreamGetFlags, cuStreamGetFlags_v5050)(stream, &flags)) == CUDA_SUCCESS)
        tell(" %u", flags);
    if (answer(CALL(cuStreamGetPriority, cuStreamGetPriority_v5050)(stream, &priority)) ==
        CUDA_SUCCESS)
        tell(" %d", priority);
    if (answer(CALL(cuStreamGetCtx, cuStreamGetCtx_v9020)(stream, &context)) == CUDA_SUCCESS)
        tell(context == world.primary ? " primary" : " other");
}

static void stream_wait(void)
{
    const CUstream stream = pick_stream();

    if (answer(CALL(cuStreamSynchronize, cuStreamSynchronize_v2000)(stream)) == CUDA_SUCCESS)
        answer(CALL(cuStreamQuery, cuStreamQuery_v2000)(stream));
}

static void stream_values(void)
{
    struct memory *memory = pick_memory();
    const CUstream stream = pick_stream();
    const unsigned value = pick(1000);

    if (memory == NULL || memory->bytes < 8)
        return;
    note_use(memory);
    if (memory->kind == ORDERED)
        memory->known = false; /* a meant difference: with gpushare it is written */
    tell(" %u", value);
    if (answer(CALL(cuStreamWriteValue32_v2, cuStreamWriteValue32_v11070)(
            stream, memory->start, value, 0)) == CUDA_SUCCESS &&
        world.capturing == 0) /* else it would wait for ever */
        answer(CALL(cuStreamWaitValue32_v2, cuStreamWaitValue32_v11070)(
            stream, memory->start, value, CU_STREAM_WAIT_VALUE_EQ));
}

static void host_function(void *unused)
{
    (void)unused;
}

static void launch_host(void)
{
    const CUstream stream = pick_stream();

    answer(CALL(cuLaunchHostFunc,
                cuLaunchHostFunc_v10000)(stream, one_in(10) ? NULL : host_function, NULL));
}

/* --- events --- */

static void event_create(void)
{
    const unsigned slot = pick(EVENTS), flags = one_in(8) ? pick(16) : pick(4);

    tell(" e%u flags %u", slot, flags);
    if (world.event[slot] != NULL)
        return;
    if (answer(CALL(cuEventCreate, cuEventCreate_v2000)(&world.event[slot], flags)) !=
        CUDA_SUCCESS)
        world.event[slot] = NULL;
}

static void event_destroy(void)
{
    const unsigned slot = pick(EVENTS);

    tell(" e%u", slot);
    if (world.event[slot] == NULL || world.capturing != 0)
        return;
    answer(CALL(cuEventDestroy_v2, cuEventDestroy_v4000)(world.event[slot]));
    world.event[slot] = NULL;
}

static void event_record(void)
{
    const unsigned slot = pick(EVENTS);
    const CUstream stream = pick_stream();

    tell(" e%u", slot);
    if (world.event[slot] == NULL)
        return;
    if (one_in(3))
        answer(CALL(cuEventRecordWithFlags, cuEventRecordWithFlags_v11010)(world.event[slot],
                                                                           stream, pick(3)));
    else
        answer(CALL(cuEventRecord, cuEventRecord_v2000)(world.event[slot], stream));
}

static void event_wait(void)
{
    const unsigned slot = pick(EVENTS);

    tell(" e%u", slot);
    if (world.event[slot] == NULL)
        return;
    if (one_in(2)) {
        answer(CALL(cuStreamWaitEvent, cuStreamWaitEvent_v3020)(pick_stream(),
                                                                world.event[slot], one_in(10)));
        return;
    }
    if (answer(CALL(cuEventSynchronize, cuEventSynchronize_v2000)(world.event[slot])) ==
        CUDA_SUCCESS)
        answer(CALL(cuEventQuery, cuEventQuery_v2000)(world.event[slot]));
}

static void event_elapsed(void)
{
    const unsigned from = pick(EVENTS), to = pick(EVENTS);
    float ms = -1;

    tell(" e%u e%u", from, to);
    if (world.event[from] == NULL || world.event[to] == NULL || world.capturing != 0)
        return; /* beside a capture nothing is waited for: it may have happened, or not */
    if (answer(CALL(cuEventElapsedTime, cuEventElapsedTime_v2000)(
            &ms, world.event[from], world.event[to])) == CUDA_SUCCESS &&
        from == to)
        tell(" %g", (double)ms);
}

/* --- kernels and modules --- */

static void launch(void)
{
    struct memory *memory = pick_memory();
    const CUstream stream = pick_stream();
    unsigned count = 1 + pick(500), value = pick(1000);
    CUdeviceptr at;
    void *params[] = {&at, &count, &value};
    const unsigned wrong = one_in(20) ? pick(3) : 3;

    if (memory == NULL)
        return;
    at = memory->start;
    if (count > memory->bytes / 4)
        count = (unsigned)(memory->bytes / 4);
    if (count == 0)
        return;
    note_use(memory);
    tell(" %u words", count);
    if (one_in(3)) {
        CUlaunchConfig config = {.gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .hStream = stream};

        if (wrong == 0)
            config.blockDimX = 4096;
        answer(CALL(cuLaunchKernelEx, cuLaunchKernelEx_v11060)(
            wrong == 1 ? NULL : &config, wrong == 2 ? NULL : world.add, params, NULL));
        return;
    }
    answer(CALL(cuLaunchKernel, cuLaunchKernel_v4000)(wrong == 0 ? NULL : world.add, 1, 1,
                                                      wrong == 1 ? 0 : 1, wrong == 2 ? 4096 : 1,
                                                      1, 1, 0, stream, params, NULL));
}

static void poke(void) /* a fault, or an access that is right */
{
    size_t left;
    CUdeviceptr at = pick_address(&left);
    void *params[] = {&at};

    if (!world.faults || world.capturing != 0 || !one_in(4))
        return;
    at = one_in(2) ? (CUdeviceptr)0x1000 : world.reservation[0].start;
    for (unsigned i = 0; i < GRANULES; i++)
        if (at != 0x1000 && world.reservation[0].mapped[i] != 0)
            return;
    if (at == 0)
        return;
    tell(" fault");
    answer(CALL(cuLaunchKernel, cuLaunchKernel_v4000)(world.poke, 1, 1, 1, 1, 1, 1, 0, NULL,
                                                      params, NULL));
}

static void module_global(void)
{
    CUdeviceptr at = 0;
    size_t bytes = 0;
    const bool with_at = !one_in(4), with_bytes = !one_in(4);
    const char *name = one_in(6) ? "nothing" : "differ_global";

    tell(" %s", name);
    if (answer(CALL(cuModuleGetGlobal_v2, cuModuleGetGlobal_v3020)(
            with_at ? &at : NULL, with_bytes ? &bytes : NULL, world.module, name)) ==
        CUDA_SUCCESS)
        tell(" %s %zu", at != 0 ? "there" : "0", bytes);
}

static void function_attribute(void)
{
    int value = 77;
    const CUfunction_attribute which =
        one_in(10) ? (CUfunction_attribute)99 : (CUfunction_attribute)pick(10);

    tell(" %d", (int)which);
    if (answer(CALL(cuFuncGetAttribute, cuFuncGetAttribute_v2020)(&value, which, world.add)) ==
        CUDA_SUCCESS)
        tell(" %d", value);
    if (answer(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
                    cuOccupancyMaxActiveBlocksPerMultiprocessor_v6050)(
            &value, world.add, 32 << pick(6), pick(4) * KIB)) == CUDA_SUCCESS)
        tell(" %d", value);
}

const struct operation stream_operations[] = {
    {"cuStreamCreate", 3, stream_create},
    {"cuStreamDestroy", 1, stream_destroy},
    {"cuStreamGetFlags", 2, stream_ask},
    {"cuStreamSynchronize", 3, stream_wait},
    {"cuStreamWriteValue32", 2, stream_values},
    {"cuLaunchHostFunc", 2, launch_host},
    {"cuEventCreate", 3, event_create},
    {"cuEventDestroy", 1, event_destroy},
    {"cuEventRecord", 3, event_record},
    {"cuEventSynchronize", 3, event_wait},
    {"cuEventElapsedTime", 1, event_elapsed},
    {"cuLaunchKernel", 10, launch},
    {"poke", 1, poke},
    {"cuModuleGetGlobal", 1, module_global},
    {"cuFuncGetAttribute", 2, function_attribute},
    {0},
};

/* --- contexts --- */

static void set_current(void)
{
    CUcontext now = NULL;
    const unsigned how = pick(5);

    tell(how == 0 ? " none" : how == 1 ? " second" : " primary");
    if (how == 1 && world.second == NULL)
        return;
    answer(CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(how == 0   ? NULL
                                                        : how == 1 ? world.second
                                                                   : world.primary));
    if (answer(CALL(cuCtxGetCurrent, cuCtxGetCurrent_v4000)(&now)) == CUDA_SUCCESS)
        tell(now == NULL ? " none" : now == world.primary ? " primary" : " second");
}

static void context_create(void)
{
    tell(world.second == NULL ? " create" : " destroy");
    if (world.capturing != 0)
        return;
    if (world.second == NULL) {
        if (answer(CALL(cuCtxCreate_v2, cuCtxCreate_v3020)(&world.second, 0, 0)) !=
            CUDA_SUCCESS)
            world.second = NULL;
        CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(world.primary);
        return;
    }
    for (unsigned i = 2; i < STREAMS; i++)
        if (world.stream[i] != NULL)
            return; /* which may be its own */
    for (unsigned i = 0; i < EVENTS; i++)
        if (world.event[i] != NULL)
            return;
    for (unsigned i = 0; i < MEMORIES; i++)
        if (world.memory[i].start != 0)
            return;
    for (unsigned i = 0; i < HOSTS; i++)
        if (world.host[i].start != NULL)
            return;
    for (unsigned i = 0; i < EXECS; i++)
        if (world.exec[i] != NULL)
            return;
    answer(CALL(cuCtxDestroy_v2, cuCtxDestroy_v4000)(world.second));
    world.second = NULL;
    CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(world.primary);
}

static void context_ask(void)
{
    CUdevice device = 77;
    unsigned flags = 77;
    size_t limit = 0;
    const CUlimit which = (CUlimit)(one_in(10) ? 99 : pick(4));

    if (answer(CALL(cuCtxGetDevice, cuCtxGetDevice_v2000)(&device)) == CUDA_SUCCESS)
        tell(" %d", device);
    if (answer(CALL(cuCtxGetFlags, cuCtxGetFlags_v7000)(&flags)) == CUDA_SUCCESS)
        tell(" %u", flags);
    if (answer(CALL(cuCtxGetLimit, cuCtxGetLimit_v3010)(&limit, which)) == CUDA_SUCCESS)
        tell(" limit %d %zu", (int)which, limit);
}

static void device_ask(void)
{
    int value = 0;
    size_t bytes = 0;
    const CUdevice_attribute which = (CUdevice_attribute)(1 + pick(150));
    const CUdevice device = one_in(10) ? 99 : 0;

    tell(" device %d attribute %d", device, (int)which);
    if (answer(CALL(cuDeviceGetAttribute, cuDeviceGetAttribute_v2000)(&value, which, device)) ==
        CUDA_SUCCESS)
        tell(" %d", value);
    if (answer(CALL(cuDeviceTotalMem_v2, cuDeviceTotalMem_v3020)(&bytes, device)) ==
        CUDA_SUCCESS)
        tell(" %zu", bytes);
}

static void synchronize(void)
{
    answer(CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)());
}

static void entry_point(void)
{
    static const char *const names[] = {"cuMemAlloc",         "cuMemFree", "cuLaunchKernel",
                                        "cuCtxCreate",        "cuInit",    "cuGetProcAddress",
                                        "cuMemcpyHtoD",       "cuNothing", "",
                                        "cuStreamWaitValue32"};
    static const int versions[] = {2000, 3020, 4000, 7000, 11040, 12000, 13000};
    const char *name = names[pick(LENGTH(names))];
    const int version = versions[pick(LENGTH(versions))];
    const cuuint64_t flags = pick(5);
    void *function = NULL;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)77;

    tell(" %s %d flags %d", name, version, (int)flags);
    if (answer(CALL(cuGetProcAddress_v2, cuGetProcAddress_v12000)(
            name, &function, version, flags, &status)) == CUDA_SUCCESS)
        tell(" %s", function != NULL ? "found" : "0");
    tell(" status %d", (int)status);
}

static void error_text(void)
{
    const char *text = NULL;
    const CUresult code = (CUresult)pick(1000);

    tell(" %d", (int)code);
    if (answer(CALL(cuGetErrorName, cuGetErrorName_v6000)(code, &text)) == CUDA_SUCCESS)
        tell(" %s", text);
}

const struct operation context_operations[] = {
    {"cuCtxSetCurrent", 2, set_current},  {"second context", 1, context_create},
    {"cuCtxGetDevice", 2, context_ask},   {"cuDeviceGetAttribute", 2, device_ask},
    {"cuCtxSynchronize", 2, synchronize}, {"cuGetProcAddress", 2, entry_point},
    {"cuGetErrorName", 1, error_text},    {0},
};
