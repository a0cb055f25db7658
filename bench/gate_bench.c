/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_bench.c: nanoseconds that the gate adds to a call, open gate, against the bare call of
 * the same driver function.
 *
 * Both sides run in one process, in turns, on one thread; the median of the rounds counts, in the
 * thread's own time, which other programs on its processor do not change. The driver is whatever
 * libcuda.so.1 is found: fake_driver.c here (its functions return at once, so that the difference
 * is the gate), or a real one. The function: cuStreamWaitEvent on an event that was never
 * recorded, which queues nothing.
 *
 *   gate_bench [--calls N] [--rounds N] [--json FILE] [--limit RATIO] [--memory BYTES]
 *
 * --limit: exit status 1 if a gated call costs more than so many bare ones, which holds however
 * busy the machine is. --memory: allocates so much before; with GPUSHARE_OVERCOMMIT, and more than
 * the card has, it shows what the gate costs while memory lies beyond the card.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cudaTypedefs.h>

#include "bench/median.h"
#include "runtime/base/libc_symbols.h"

#define MAX_ROUNDS 201

struct options {
    uint64_t calls;
    unsigned rounds;
    const char *json;
    double limit;
    uint64_t memory;
};

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double time_calls(PFN_cuStreamWaitEvent_v3020 function, CUevent event, uint64_t calls)
{
    const double start = now_ns();

    for (uint64_t i = 0; i < calls; i++)
        if (function(NULL, event, 0) != CUDA_SUCCESS)
            return -1;
    return (now_ns() - start) / (double)calls;
}

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (value == NULL)
            return -1;
        if (strcmp(argv[i], "--calls") == 0)
            options->calls = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            options->rounds = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            options->json = value;
        else if (strcmp(argv[i], "--limit") == 0)
            options->limit = strtod(value, NULL);
        else if (strcmp(argv[i], "--memory") == 0)
            options->memory = strtoull(value, NULL, 10);
        else
            return -1;
        i++;
    }
    return options->calls > 0 && options->rounds > 0 && options->rounds <= MAX_ROUNDS ? 0 : -1;
}

/* The usual way of a driver program. Everything by dlsym, so that libgpushare's door is the one
 * that answers. */
static CUevent prepare_event(void *driver)
{
    PFN_cuInit_v2000 init = (PFN_cuInit_v2000)dlsym(driver, "cuInit");
    PFN_cuDevicePrimaryCtxRetain_v7000 retain =
        (PFN_cuDevicePrimaryCtxRetain_v7000)dlsym(driver, "cuDevicePrimaryCtxRetain");
    PFN_cuCtxSetCurrent_v4000 set_current =
        (PFN_cuCtxSetCurrent_v4000)dlsym(driver, "cuCtxSetCurrent");
    PFN_cuEventCreate_v2000 create = (PFN_cuEventCreate_v2000)dlsym(driver, "cuEventCreate");
    CUcontext context;
    CUevent event;

    if (init == NULL || retain == NULL || set_current == NULL || create == NULL)
        return NULL;
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
        set_current(context) != CUDA_SUCCESS)
        return NULL;
    return create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : NULL;
}

static bool take_memory(void *driver, uint64_t bytes)
{
    PFN_cuMemAlloc_v3020 allocate = (PFN_cuMemAlloc_v3020)dlsym(driver, "cuMemAlloc_v2");
    CUdeviceptr memory;

    return bytes == 0 || (allocate != NULL && allocate(&memory, bytes) == CUDA_SUCCESS);
}

static int write_json(const struct options *options, double bare, double gated)
{
    FILE *file;

    if (options->json == NULL)
        return 0;
    file = fopen(options->json, "w");
    if (file == NULL) {
        perror(options->json);
        return -1;
    }
    fprintf(file,
            "{\"benchmark\": \"gate\", \"calls\": %llu, \"rounds\": %u, \"bare_ns\": %.3f, "
            "\"gated_ns\": %.3f, "
            "\"gate_ns\": %.3f, \"ratio\": %.4f}\n",
            (unsigned long long)options->calls, options->rounds, bare, gated, gated - bare,
            gated / bare);
    return fclose(file);
}

int main(int argc, char **argv)
{
    struct options options = {.calls = 1000000, .rounds = 21, .limit = 0};
    static double bare[MAX_ROUNDS], gated[MAX_ROUNDS];
    PFN_cuStreamWaitEvent_v3020 wrapped, real;
    double bare_ns, gated_ns;
    void *driver;
    CUevent event;

    if (read_options(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: gate_bench [--calls N] [--rounds N] [--json FILE] [--limit "
                        "RATIO] [--memory BYTES]\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    event = driver != NULL ? prepare_event(driver) : NULL;
    if (event == NULL) {
        fprintf(stderr, "gate_bench: no usable libcuda.so.1 (%s)\n",
                driver == NULL ? dlerror() : "no context");
        return 77;
    }
    if (!take_memory(driver, options.memory)) {
        fprintf(stderr, "gate_bench: no %llu bytes\n", (unsigned long long)options.memory);
        return 1;
    }
    gs_libc_symbols_init();
    wrapped = (PFN_cuStreamWaitEvent_v3020)dlsym(driver, "cuStreamWaitEvent");
    real = (PFN_cuStreamWaitEvent_v3020)gs_libc_dlsym(driver, "cuStreamWaitEvent");
    if (wrapped == real) {
        fprintf(stderr, "gate_bench: not routed: libgpushare.so.1 is not in front\n");
        return 1;
    }
    if (time_calls(real, event, 1000) < 0 || time_calls(wrapped, event, 1000) < 0) {
        fprintf(stderr, "gate_bench: the call fails\n");
        return 1;
    }
    for (unsigned i = 0; i < options.rounds; i++) {
        bare[i] = time_calls(real, event, options.calls);
        gated[i] = time_calls(wrapped, event, options.calls);
    }
    bare_ns = median_of(bare, options.rounds);
    gated_ns = median_of(gated, options.rounds);
    printf("gate: bare call %.2f ns, gated call %.2f ns, the gate %.2f ns, ratio %.3f\n",
           bare_ns, gated_ns, gated_ns - bare_ns, gated_ns / bare_ns);
    if (write_json(&options, bare_ns, gated_ns) != 0)
        return 1;
    return options.limit > 0 && gated_ns > options.limit * bare_ns;
}
