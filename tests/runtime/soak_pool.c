/* SPDX-License-Identifier: Apache-2.0
 *
 * soak_pool.c: blocks in stream order for soak.c: allocated and freed on any of the thread's
 * streams, from the default pool and from one of the thread's own.
 *
 * A block that another stream allocated is filled there, and the main stream waits for that;
 * one that another stream frees is first overwritten there, behind the main stream's work:
 * memory that is handed out too early shows as a wrong byte of its next owner.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/runtime/soak.h"

#define GARBAGE 0xA7

static CUstream any_stream(struct soak_thread *thread)
{
    const size_t which = soak_below(thread, SOAK_STREAMS + 1);

    return which < SOAK_STREAMS && thread->others[which] != NULL ? thread->others[which]
                                                                 : thread->stream;
}

/* What `to` runs next comes behind what `from` has. */
static void join_streams(struct soak_thread *thread, CUstream from, CUstream to)
{
    if (from == to)
        return;
    if (thread->event != NULL &&
        soak_ok(thread, cuEventRecord(thread->event, from), "cuEventRecord") &&
        soak_ok(thread, cuStreamWaitEvent(to, thread->event, 0), "cuStreamWaitEvent"))
        return;
    if (!soak_wait_dry(thread, from)) {
        fprintf(stderr, "soak: a stream cannot be waited for\n");
        _exit(1);
    }
}

void soak_pool_begin(struct soak_thread *thread)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)thread->device}};
    uint64_t threshold = soak_below(thread, 2) == 0 ? 0 : UINT64_MAX;

    for (unsigned i = 0; i < SOAK_STREAMS; i++)
        if (!soak_ok(thread, cuStreamCreate(&thread->others[i], CU_STREAM_NON_BLOCKING),
                     "cuStreamCreate"))
            thread->others[i] = NULL;
    if (!soak_ok(thread, cuEventCreate(&thread->event, CU_EVENT_DISABLE_TIMING),
                 "cuEventCreate"))
        thread->event = NULL;
    if (!soak_ok(thread, cuMemPoolCreate(&thread->pool, &props), "cuMemPoolCreate"))
        thread->pool = NULL;
    else
        soak_ok(
            thread,
            cuMemPoolSetAttribute(thread->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
            "cuMemPoolSetAttribute");
}

bool soak_pool_allocate(struct soak_thread *thread, struct soak_block *block, size_t bytes)
{
    const CUstream stream = any_stream(thread);
    CUresult result;

    block->pooled = thread->pool != NULL && soak_below(thread, 2) == 0;
    result = block->pooled
                 ? cuMemAllocFromPoolAsync(&block->device, bytes, thread->pool, stream)
                 : cuMemAllocAsync(&block->device, bytes, stream);
    if (!soak_ok(thread, result, "cuMemAllocAsync"))
        return false;
    block->ordered = true;
    if (block->pooled)
        thread->pool_used += bytes;
    soak_ok(thread, cuMemsetD8Async(block->device, GARBAGE, bytes, stream), "cuMemsetD8Async");
    join_streams(thread, stream, thread->stream);
    return true;
}

bool soak_pool_free(struct soak_thread *thread, const struct soak_block *block)
{
    const CUstream stream = any_stream(thread);
    CUresult result;

    join_streams(thread, thread->stream, stream);
    soak_ok(thread, cuMemsetD8Async(block->device, GARBAGE, block->bytes, stream),
            "cuMemsetD8Async");
    result = cuMemFreeAsync(block->device, stream);
    if (block->pooled && result == CUDA_SUCCESS)
        thread->pool_used -= block->bytes;
    return soak_ok(thread, result, "cuMemFreeAsync");
}

/* what the thread's own pool says, and now and then a trim */
void soak_pool_look(struct soak_thread *thread)
{
    uint64_t used = 0, reserved = 0;

    if (thread->pool == NULL)
        return;
    if (soak_below(thread, 4) == 0)
        soak_ok(thread, cuMemPoolTrimTo(thread->pool, soak_below(thread, 8u << 20)),
                "cuMemPoolTrimTo");
    if (!soak_ok(thread,
                 cuMemPoolGetAttribute(thread->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used),
                 "cuMemPoolGetAttribute") ||
        !soak_ok(thread,
                 cuMemPoolGetAttribute(thread->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                       &reserved),
                 "cuMemPoolGetAttribute"))
        return;
    if (used == thread->pool_used && reserved >= used)
        return;
    fprintf(
        stderr,
        "soak[%d] seed %llu operation %llu: the pool says %llu used of %llu, must be %llu\n",
        (int)getpid(), (unsigned long long)thread->config->seed,
        (unsigned long long)thread->operations, (unsigned long long)used,
        (unsigned long long)reserved, (unsigned long long)thread->pool_used);
    _exit(1);
}

void soak_pool_end(struct soak_thread *thread)
{
    if (thread->pool != NULL) /* while some of its memory is still the program's */
        soak_ok(thread, cuMemPoolDestroy(thread->pool), "cuMemPoolDestroy");
}
