/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.c: memory that processes share by handles (legacy CUDA IPC).
 *
 *   ipc told            reads commands, one a line, and answers each with a line: "ok [...]",
 *                       "error CURESULT", or "bad OFFSET" (see commands[] in ipc_told.c)
 *   ipc pair fork BYTES a parent that exports and a child that opens, as NVIDIA's sample
 *   ipc pair spawn BYTES simpleIPC: by fork() before the first call of CUDA, or by exec(). "ok"
 *                       and 0, or a line for what was not so and 1
 *
 * Bytes are set and checked in blocks of a MiB, each with a value of its own. Built without CUDA
 * libraries: everything by dlsym.
 */
#include "tests/gpu/ipc.h"

#define PART (16 * MIB) /* bytes that are looked at together */

void *driver;

static unsigned *buffer; /* PART bytes */

/* --- calls --- */

CUresult ipc_begin_driver(int ordinal)
{
    CUcontext context;
    CUdevice device;
    CUresult result;

#ifndef GS_LINKED
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
#endif
    buffer = malloc(PART);
    result = CALL(cuInit, cuInit_v2000)(0);
    if (result == CUDA_SUCCESS)
        result = CALL(cuDeviceGet, cuDeviceGet_v2000)(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result =
            CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000)(&context, device);
    if (result == CUDA_SUCCESS)
        result = CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(context);
    return result;
}

CUresult allocate(CUdeviceptr *p, size_t bytes)
{
    return CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(p, bytes);
}

CUresult release(CUdeviceptr p)
{
    return CALL(cuMemFree_v2, cuMemFree_v3020)(p);
}

CUresult ipc_get_handle(CUdeviceptr address, CUipcMemHandle *handle)
{
    return CALL(cuIpcGetMemHandle, cuIpcGetMemHandle_v4010)(handle, address);
}

CUresult ipc_open_handle(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *address)
{
    return CALL(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle_v11000)(address, *handle, flags);
}

CUresult ipc_close_handle(CUdeviceptr address)
{
    return CALL(cuIpcCloseMemHandle, cuIpcCloseMemHandle_v4010)(address);
}

CUresult ipc_wait_for_card(void)
{
    return CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)();
}

/* --- bytes --- */

static unsigned value_of(unsigned seed, size_t block)
{
    return seed * 2654435761u + (unsigned)block * 40503u + 1;
}

size_t ipc_lesser_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

CUresult ipc_fill_bytes(CUdeviceptr address, size_t bytes, unsigned seed)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += MIB)
        result = CALL(cuMemsetD32_v2, cuMemsetD32_v3020)(address + at, value_of(seed, at / MIB),
                                                         ipc_lesser_of(bytes - at, MIB) / 4);
    return result == CUDA_SUCCESS ? ipc_wait_for_card() : result;
}

/* words that are not the value; without a branch, so that the compiler makes vectors of it */
static size_t count_wrong(const unsigned *words, size_t count, unsigned value)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += words[i] != value;
    return wrong;
}

/* *bad: the block that is not right, or SIZE_MAX */
CUresult ipc_check_bytes(CUdeviceptr address, size_t bytes, unsigned seed, size_t *bad)
{
    CUresult result = CUDA_SUCCESS;

    *bad = SIZE_MAX;
    for (size_t at = 0; at < bytes && result == CUDA_SUCCESS && *bad == SIZE_MAX; at += PART) {
        const size_t part = ipc_lesser_of(bytes - at, PART);

        result = CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(buffer, address + at, part);
        for (size_t in = 0; in < part && result == CUDA_SUCCESS && *bad == SIZE_MAX; in += MIB)
            if (count_wrong(buffer + in / 4, ipc_lesser_of(part - in, MIB) / 4,
                            value_of(seed, (at + in) / MIB)) != 0)
                *bad = at + in;
    }
    return result;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "told") == 0)
        return ipc_told(argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0);
    if (argc == 4 && strcmp(argv[1], "pair") == 0)
        return ipc_pair(argv, strcmp(argv[2], "spawn") == 0);
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        return ipc_pair_child((int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10),
                              strtoull(argv[4], NULL, 10));
    fprintf(stderr, "usage: ipc told [DEVICE] | ipc pair fork|spawn BYTES\n");
    return 2;
}
