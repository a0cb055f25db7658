/* SPDX-License-Identifier: Apache-2.0
 *
 * host.c: host blocks: huge-page friendly anonymous memory, touched by several threads,
 * registered with the driver.
 *
 * State: how many bytes there are, were last refused, and may be. Client thread only (and the
 * one that disposes of a range, while the client thread does not move memory).
 */
#include "runtime/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/driver.h"
#include "runtime/log.h"

#define FLOOR_BYTES   (512ull << 20) /* of available host memory that stays untouched */
#define TOUCH_STEP    (8ull << 20) /* one thread more for each of these, up to TOUCH_THREADS */
#define TOUCH_THREADS 4

static uint64_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");

    if (file == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            kib = strtoull(line + 13, NULL, 10);
            break;
        }
    fclose(file);
    return kib != 0 ? kib * 1024 : UINT64_MAX;
}

struct span {
    char *from;
    uint64_t bytes;
};

static void *touch(void *argument)
{
    const struct span *span = argument;

    for (uint64_t at = 0; at < span->bytes; at += 4096)
        *(volatile char *)(span->from + at) = 0;
    return NULL;
}

static void touch_all(char *memory, uint64_t bytes)
{
    const unsigned count =
        (unsigned)(bytes / TOUCH_STEP < TOUCH_THREADS ? bytes / TOUCH_STEP + 1 : TOUCH_THREADS);
    const uint64_t part = (bytes / count + 4095) & ~4095ull;
    struct span spans[TOUCH_THREADS];
    pthread_t ids[TOUCH_THREADS];
    bool running[TOUCH_THREADS] = {false};

    for (unsigned i = 0; i < count; i++) {
        const uint64_t from = part * i < bytes ? part * i : bytes;

        spans[i] = (struct span){memory + from, bytes - from < part ? bytes - from : part};
        running[i] = i + 1 < count && pthread_create(&ids[i], NULL, touch, &spans[i]) == 0;
        if (!running[i])
            touch(&spans[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (running[i])
            pthread_join(ids[i], NULL);
}

/* relaxed: plain counters, nothing else is published with them */
static _Atomic(uint64_t) used, refused, budget = UINT64_MAX;

uint64_t gs_host_used(void)
{
    return atomic_load_explicit(&used, memory_order_relaxed);
}

uint64_t gs_host_wanted(void)
{
    return gs_host_used() + atomic_load_explicit(&refused, memory_order_relaxed);
}

void gs_host_set_budget(uint64_t bytes)
{
    atomic_store_explicit(&budget, bytes, memory_order_relaxed);
}

void gs_host_after_fork(void)
{
    atomic_store(&used, 0);
    atomic_store(&refused, 0);
    atomic_store(&budget, UINT64_MAX);
}

struct gs_host_block *gs_host_get(uint64_t bytes)
{
    const uint64_t most = atomic_load_explicit(&budget, memory_order_relaxed);
    struct gs_host_block *block;
    void *memory;

    if (gs_host_used() + bytes > most) {
        atomic_store_explicit(&refused, bytes, memory_order_relaxed);
        gs_log("host memory is short: %llu bytes more would exceed the %llu of this process",
               (unsigned long long)bytes, (unsigned long long)most);
        return NULL;
    }
    if (available_bytes() < bytes + FLOOR_BYTES) {
        gs_log("host memory is short: %llu bytes would leave less than %llu",
               (unsigned long long)bytes, (unsigned long long)FLOOR_BYTES);
        return NULL;
    }
    block = calloc(1, sizeof *block);
    if (block == NULL)
        return NULL;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(block);
        return NULL;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes,
            MADV_DONTFORK); /* a forked child must not copy what the bus writes to */
    touch_all(memory, bytes);
    block->memory = memory;
    block->bytes = bytes;
    block->registered = gs_driver.cuMemHostRegister_v2(
                            memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
    atomic_fetch_add_explicit(&used, bytes, memory_order_relaxed);
    atomic_store_explicit(&refused, 0, memory_order_relaxed);
    return block;
}

void gs_host_put(struct gs_host_block *block)
{
    if (block == NULL)
        return;
    if (block->registered)
        gs_driver.cuMemHostUnregister(block->memory);
    munmap(block->memory, block->bytes);
    atomic_fetch_sub_explicit(&used, block->bytes, memory_order_relaxed);
    free(block);
}
