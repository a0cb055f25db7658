/* SPDX-License-Identifier: Apache-2.0
 *
 * disposable.c: a program that keeps device memory it does not need, as a framework's allocator
 * does, and may give it back when it is asked to (gpushare.h). For disposable_bench.py; the
 * worker with PyTorch, disposable_worker.py, takes the same lines.
 *
 *   take LIVE CACHE   bytes that it needs, and that it keeps without need: {}
 *   help N            1: it frees the second when memory is to leave; 0: it does not: {}
 *   turn              writes all that it needs, with the cache as scratch memory: {"ns": N}
 *
 * Each line is answered by a line of JSON. Ends with 0 at the end of input, 1 after an error.
 * A lock keeps a callback from freeing what a turn is using.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

#include "runtime/client/gpushare.h"

static struct {
    pthread_mutex_t lock;
    CUcontext context;
    CUdeviceptr live, cache; /* cache 0: it was given back */
    size_t live_bytes, cache_bytes;
    unsigned char value;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void must_succeed(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "disposable: %s: CUresult %d\n", what, (int)result);
    exit(1);
}

static void give_back(void *unused)
{
    (void)unused;
    if (pthread_mutex_trylock(&self.lock) != 0)
        return; /* it is in use: it has to move this time */
    must_succeed(cuCtxSetCurrent(self.context), "cuCtxSetCurrent");
    if (self.cache != 0)
        must_succeed(cuMemFree(self.cache), "cuMemFree");
    self.cache = 0;
    pthread_mutex_unlock(&self.lock);
}

static void take_memory(size_t live, size_t cache)
{
    self.live_bytes = live;
    self.cache_bytes = cache;
    must_succeed(cuMemAlloc(&self.live, live), "cuMemAlloc");
    must_succeed(cuMemAlloc(&self.cache, cache), "cuMemAlloc");
    must_succeed(cuMemsetD8(self.live, 1, live), "cuMemsetD8");
    must_succeed(cuMemsetD8(self.cache, 2, cache), "cuMemsetD8");
    puts("{}");
}

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void take_turn(void)
{
    const long long from = now_ns();

    pthread_mutex_lock(&self.lock);
    if (self.cache == 0)
        must_succeed(cuMemAlloc(&self.cache, self.cache_bytes), "cuMemAlloc");
    self.value++;
    must_succeed(cuMemsetD8(self.live, self.value, self.live_bytes), "cuMemsetD8");
    must_succeed(cuMemsetD8(self.cache, self.value, self.cache_bytes), "cuMemsetD8");
    must_succeed(cuCtxSynchronize(), "cuCtxSynchronize");
    pthread_mutex_unlock(&self.lock);
    printf("{\"ns\": %lld}\n", now_ns() - from);
}

static bool obey_line(const char *line)
{
    unsigned long long live, cache;
    int help;

    if (sscanf(line, "take %llu %llu", &live, &cache) == 2) { // NOLINT(cert-err34-c)
        take_memory(live, cache);
    } else if (sscanf(line, "help %d", &help) == 1) { // NOLINT(cert-err34-c)
        gpushare_on_pressure(help != 0 ? give_back : NULL, NULL);
        puts("{}");
    } else if (strcmp(line, "turn\n") == 0) {
        take_turn();
    } else {
        return false;
    }
    return true;
}

int main(void)
{
    char line[128];

    setvbuf(stdout, NULL, _IOLBF, 0);
    must_succeed(cuInit(0), "cuInit");
    must_succeed(cuDevicePrimaryCtxRetain(&self.context, 0), "cuDevicePrimaryCtxRetain");
    must_succeed(cuCtxSetCurrent(self.context), "cuCtxSetCurrent");
    while (fgets(line, sizeof line, stdin) != NULL)
        if (!obey_line(line))
            return 1;
    return 0;
}
