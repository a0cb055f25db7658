/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_work.h: a program on the driver API, for driver_api.c (imports the functions) and
 * dlopen_driver.c (asks dlsym for them). The includer defines CU(name), which gives the
 * function.
 */
#pragma once

#include "samples/sample.h"

#include <cuda.h>

/* The fat binary of driver_kernel.cu; DRIVER_FATBIN is its path, from the build. */
__asm__(".section .rodata\n.balign 64\ndriver_fatbin:\n.incbin \"" DRIVER_FATBIN
        "\"\n.byte 0\n.previous\n");
extern const char driver_fatbin[];

static void must(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    if (CU(cuGetErrorName)(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    sample_die(result == CUDA_ERROR_OUT_OF_MEMORY ? SAMPLE_MEMORY : SAMPLE_WRONG, "%s: %s (%d)",
               what, name, (int)result);
}

struct work {
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    CUdeviceptr words, copy;
    uint64_t count;
    uint32_t *host; /* what must be on the device */
    uint32_t *back; /* pinned: what is there */
};

static void work_open(struct work *work, CUdevice device, uint64_t bytes)
{
    work->count = bytes / 2 / sizeof(uint32_t);
    bytes = work->count * sizeof(uint32_t);
    if (work->count == 0)
        sample_die(SAMPLE_USAGE, "--bytes: at least 8");
    must(CU(cuDevicePrimaryCtxRetain)(&work->context, device), "cuDevicePrimaryCtxRetain");
    must(CU(cuCtxSetCurrent)(work->context), "cuCtxSetCurrent");
    must(CU(cuModuleLoadData)(&work->module, driver_fatbin), "cuModuleLoadData");
    must(CU(cuModuleGetFunction)(&work->function, work->module, "driver_scale"),
         "cuModuleGetFunction");
    must(CU(cuStreamCreate)(&work->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(CU(cuMemAlloc)(&work->words, bytes), "cuMemAlloc");
    must(CU(cuMemAlloc)(&work->copy, bytes), "cuMemAlloc");
    must(CU(cuMemAllocHost)((void **)&work->back, bytes), "cuMemAllocHost");
    work->host = malloc(bytes);
    if (!work->host)
        sample_die(SAMPLE_MEMORY, "out of host memory: asked %llu bytes",
                   (unsigned long long)bytes);
    for (uint64_t i = 0; i < work->count; i++)
        work->host[i] = 7;
    must(CU(cuMemsetD32)(work->words, 7, work->count), "cuMemsetD32");
    must(CU(cuCtxSynchronize)(), "cuCtxSynchronize");
}

static void work_round(struct work *work, uint32_t round)
{
    uint32_t factor = round * 2 + 1;
    void *params[] = {&work->words, &work->count, &factor};
    size_t bytes = work->count * sizeof(uint32_t);

    must(
        CU(cuLaunchKernel)(work->function, 256, 1, 1, 256, 1, 1, 0, work->stream, params, NULL),
        "cuLaunchKernel");
    must(CU(cuMemcpyDtoDAsync)(work->copy, work->words, bytes, work->stream),
         "cuMemcpyDtoDAsync");
    must(CU(cuMemcpyDtoHAsync)(work->back, work->copy, bytes, work->stream),
         "cuMemcpyDtoHAsync");
    for (uint64_t i = 0; i < work->count; i++)
        work->host[i] = work->host[i] * factor + (uint32_t)i;
    must(CU(cuStreamSynchronize)(work->stream), "cuStreamSynchronize");
    for (uint64_t i = 0; i < work->count; i++) {
        if (work->back[i] != work->host[i])
            sample_die(SAMPLE_WRONG, "wrong: word %llu of round %u is %x, not %x",
                       (unsigned long long)i, round, work->back[i], work->host[i]);
    }
}

static void work_close(struct work *work, CUdevice device)
{
    free(work->host);
    must(CU(cuMemFreeHost)(work->back), "cuMemFreeHost");
    must(CU(cuMemFree)(work->copy), "cuMemFree");
    must(CU(cuMemFree)(work->words), "cuMemFree");
    must(CU(cuStreamDestroy)(work->stream), "cuStreamDestroy");
    must(CU(cuModuleUnload)(work->module), "cuModuleUnload");
    must(CU(cuDevicePrimaryCtxRelease)(device), "cuDevicePrimaryCtxRelease");
}

static int work_main(int argc, char **argv)
{
    uint64_t bytes = 16u << 20;
    uint32_t rounds = 20;
    uint32_t round = 0;
    double seconds = 0;
    double start = sample_now();
    struct work work = {0};
    CUdevice device;

    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "--bytes") == 0)
            bytes = sample_size(name, sample_argument(argc, argv, &i));
        else if (strcmp(name, "--rounds") == 0)
            rounds = (uint32_t)sample_number(name, sample_argument(argc, argv, &i), 1, 1e9);
        else if (strcmp(name, "--seconds") == 0)
            seconds = sample_number(name, sample_argument(argc, argv, &i), 0, 1e6);
        else
            sample_die(SAMPLE_USAGE, "usage: %s [--bytes 16MiB] [--rounds 20] [--seconds S]",
                       argv[0]);
    }
    must(CU(cuInit)(0), "cuInit");
    must(CU(cuDeviceGet)(&device, 0), "cuDeviceGet");
    work_open(&work, device, bytes);
    while (round < rounds && (seconds <= 0 || sample_now() - start < seconds))
        work_round(&work, ++round);
    uint64_t used = work.count * 2 * sizeof(uint32_t);

    work_close(&work, device);
    printf("ok rounds=%u bytes=%llu seconds=%.3f\n", round, (unsigned long long)used,
           sample_now() - start);
    return 0;
}
