/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: what the benchmarks' programs that use a card share. No state.
 */
#include "bench/card.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define COPY_BYTES (64ull << 20) /* of each copy that measures a ceiling */
#define TOUCHERS   4

void check(CUresult result, const char *what)
{
    const char *name = "?";

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s (%d)\n", what, name, result);
    exit(1);
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void rest_ns(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

    nanosleep(&time, NULL);
}

CUdevice open_device(unsigned how)
{
    CUdevice device;
    CUcontext context;

    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxSetFlags(device, how), "cuDevicePrimaryCtxSetFlags");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    return device;
}

/* --- the bus --- */

struct lane { /* one direction */
    CUstream stream;
    CUdeviceptr device;
    char *host;
};

struct touched {
    char *from;
    uint64_t bytes;
};

static void *touch_memory(void *argument)
{
    const struct touched *part = argument;

    for (uint64_t at = 0; at < part->bytes; at += 4096)
        part->from[at] = 1;
    return NULL;
}

static char *host_memory(uint64_t bytes)
{
    struct touched parts[TOUCHERS];
    pthread_t threads[TOUCHERS];
    char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (host == MAP_FAILED) {
        perror("host memory to measure the bus with");
        exit(1);
    }
    madvise(host, bytes, MADV_HUGEPAGE);
    for (unsigned i = 0; i < TOUCHERS; i++) {
        parts[i] = (struct touched){host + bytes / TOUCHERS * i, bytes / TOUCHERS};
        if (pthread_create(&threads[i], NULL, touch_memory, &parts[i]) != 0) {
            fputs("no thread to touch host memory with\n", stderr);
            exit(1);
        }
    }
    for (unsigned i = 0; i < TOUCHERS; i++)
        pthread_join(threads[i], NULL);
    check(cuMemHostRegister(host, bytes, CU_MEMHOSTREGISTER_PORTABLE), "cuMemHostRegister");
    return host;
}

static void queue_copies(struct lane *lane, bool in, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += COPY_BYTES) {
        const uint64_t part = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;

        if (in)
            check(cuMemcpyHtoDAsync(lane->device + at, lane->host + at, part, lane->stream),
                  "copy to the card");
        else
            check(cuMemcpyDtoHAsync(lane->host + at, lane->device + at, part, lane->stream),
                  "copy from the card");
    }
}

/* Seconds of one pass, each way where there is a lane for it. */
static double time_pass(struct lane *in, struct lane *out, uint64_t bytes)
{
    const uint64_t start = now_ns();

    if (out != NULL)
        queue_copies(out, false, bytes);
    if (in != NULL)
        queue_copies(in, true, bytes);
    if (out != NULL)
        check(cuStreamSynchronize(out->stream), "cuStreamSynchronize");
    if (in != NULL)
        check(cuStreamSynchronize(in->stream), "cuStreamSynchronize");
    return (double)(now_ns() - start) / 1e9;
}

/* Bytes a second of the best of three passes: what the bus can do. */
static double measure_rate(struct lane *in, struct lane *out, uint64_t bytes)
{
    double best = 0;

    for (unsigned pass = 0; pass < 3; pass++) {
        const double seconds = time_pass(in, out, bytes);

        if ((double)bytes / seconds > best)
            best = (double)bytes / seconds;
    }
    return in != NULL && out != NULL ? 2 * best : best;
}

static void lane_open(struct lane *lane, uint64_t bytes)
{
    check(cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuMemAlloc(&lane->device, bytes), "cuMemAlloc");
    lane->host = host_memory(bytes);
}

static void lane_close(struct lane *lane, uint64_t bytes)
{
    check(cuMemHostUnregister(lane->host), "cuMemHostUnregister");
    munmap(lane->host, bytes);
    check(cuMemFree(lane->device), "cuMemFree");
    check(cuStreamDestroy(lane->stream), "cuStreamDestroy");
}

struct bus measure_bus(uint64_t bytes)
{
    struct lane lanes[2];
    struct bus bus;

    for (unsigned i = 0; i < 2; i++)
        lane_open(&lanes[i], bytes);
    bus.h2d = measure_rate(&lanes[0], NULL, bytes);
    bus.d2h = measure_rate(NULL, &lanes[1], bytes);
    bus.duplex = measure_rate(&lanes[0], &lanes[1], bytes);
    for (unsigned i = 0; i < 2; i++)
        lane_close(&lanes[i], bytes);
    return bus;
}

void time_duplex(uint64_t bytes, unsigned passes, uint64_t rest, double *seconds)
{
    struct lane lanes[2];

    for (unsigned i = 0; i < 2; i++)
        lane_open(&lanes[i], bytes);
    for (unsigned pass = 0; pass < passes; pass++) {
        rest_ns(rest);
        seconds[pass] = time_pass(&lanes[0], &lanes[1], bytes);
    }
    for (unsigned i = 0; i < 2; i++)
        lane_close(&lanes[i], bytes);
}
