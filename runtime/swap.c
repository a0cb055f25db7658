/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.c: copies chunks between device and host and maps or unmaps them.
 *
 * No state of its own. The client thread is the only one that changes a live chunk's state; it
 * collects its chunks under gs_memory_lock and works on them without it (a range is disposed of
 * by the client thread itself while the gate is closed, and one that somebody else disposes of
 * is not LIVE and so not collected).
 */
#include "runtime/swap.h"

#include "runtime/driver.h"
#include "runtime/host.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/runtime.h"
#include "runtime/vmm.h"

struct job {
    struct gs_range *range;
    struct gs_chunk *chunk;
    uint32_t index;
    CUdeviceptr address;
    uint64_t bytes;
    bool copied;
};

/* Chunks of live ranges, up to a step and to limit bytes: resident ones (out; those with a host
 * block first, so that the same ones go every time), or the others (in). */
static unsigned collect(struct gs_device *device, bool out, uint64_t limit, struct job *jobs)
{
    uint64_t sum = 0;
    unsigned count = 0;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (int pass = out ? 0 : 1; pass < 2; pass++)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next) {
            if (range->life != GS_RANGE_LIVE || !gs_range_is_needed(range) || range->pinned)
                continue;
            for (uint32_t i = 0; i < range->chunk_count && count < GS_SWAP_STEP_CHUNKS; i++) {
                struct gs_chunk *chunk = &range->chunks[i];
                const uint64_t bytes = gs_range_chunk_bytes(range, i);

                if ((chunk->state == GS_CHUNK_RESIDENT) != out ||
                    (out && (chunk->host != NULL) != (pass == 0)))
                    continue;
                if (out ? sum >= limit : sum + bytes > limit)
                    break;
                jobs[count++] = (struct job){.range = range,
                                             .chunk = chunk,
                                             .index = i,
                                             .address = gs_range_chunk_address(range, i),
                                             .bytes = bytes};
                sum += bytes;
            }
        }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return count;
}

static struct gs_context *enter_context(struct gs_device *device)
{
    struct gs_context *context = gs_context_for(device);
    CUcontext popped;

    if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return NULL;
    if (context->stream != NULL ||
        gs_driver.cuStreamCreate(&context->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        return context;
    context->stream = NULL;
    gs_driver.cuCtxPopCurrent_v2(&popped);
    return NULL;
}

static void leave_context(void)
{
    CUcontext popped;

    gs_driver.cuCtxPopCurrent_v2(&popped);
}

/* A context with a sticky error has lost its memory's contents by itself; the program gets that
 * error from every call. */
static bool is_broken(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
           result != CUDA_ERROR_INVALID_VALUE;
}

/* Chunk state and accounts change together: a range that is freed meanwhile has been taken out
 * of `missing` as it was at that moment (memory.c, end_life). */
static void settle(const struct job *job, uint8_t state)
{
    struct gs_device *device = job->range->device;
    const bool live = job->range->life == GS_RANGE_LIVE;

    job->chunk->state = state;
    if (state == GS_CHUNK_RESIDENT) {
        device->resident += job->bytes;
        device->missing -= live ? job->bytes : 0;
    } else {
        device->resident -= job->bytes;
        device->missing += live ? job->bytes : 0;
    }
}

/* The error of one call may have been that call's alone; a broken context fails every one. */
static bool context_is_broken(struct gs_device *device, CUresult result)
{
    if (!is_broken(result))
        return false;
    for (unsigned i = 0; i < 3; i++)
        if (gs_driver.cuCtxSynchronize() == CUDA_SUCCESS)
            return false;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    device->broken = true; /* the gate may open: every call will say what happened */
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return true;
}

static unsigned start_copies_out(struct job *jobs, unsigned count, CUstream stream,
                                 CUresult *result)
{
    unsigned started = 0;

    *result = CUDA_SUCCESS;
    for (; started < count; started++) {
        struct job *job = &jobs[started];

        if (job->chunk->host == NULL)
            job->chunk->host = gs_host_get(job->bytes);
        if (job->chunk->host == NULL)
            break;
        *result = gs_driver.cuMemcpyDtoHAsync_v2(job->chunk->host->memory, job->address,
                                                 job->bytes, stream);
        if (*result != CUDA_SUCCESS)
            break;
    }
    return started;
}

enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess)
{
    struct job jobs[GS_SWAP_STEP_CHUNKS];
    const unsigned count = collect(device, true, excess, jobs);
    struct gs_context *context;
    CUresult result, finished;
    uint64_t moved = 0;
    unsigned started;
    bool broken;

    if (count == 0)
        return GS_SWAP_NOTHING;
    context = enter_context(device);
    if (context == NULL)
        return GS_SWAP_SHORT;
    started = start_copies_out(jobs, count, context->stream, &result);
    finished = gs_driver.cuStreamSynchronize(context->stream);
    if (finished != CUDA_SUCCESS)
        result = finished;
    broken = context_is_broken(device, result);
    if (broken)
        started = count; /* give the card back; there is nothing left to save */
    else if (finished != CUDA_SUCCESS)
        started = 0;
    for (unsigned i = 0; i < started; i++) {
        gs_vmm_remove(jobs[i].range, jobs[i].index);
        moved += jobs[i].bytes;
    }
    leave_context();
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; i < started; i++)
        settle(&jobs[i], broken ? GS_CHUNK_ABSENT : GS_CHUNK_HOST);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    atomic_fetch_add_explicit(&gs_runtime.moved_out, moved, memory_order_relaxed);
    if (result != CUDA_SUCCESS)
        gs_log("copying out: CUresult %d", result);
    return started != 0 ? GS_SWAP_MOVED : GS_SWAP_SHORT;
}

/* maps the job's chunk and starts its copy */
static CUresult start_copy_in(struct job *job, CUstream stream)
{
    CUresult result = gs_vmm_place(job->range, job->index);

    if (result != CUDA_SUCCESS || job->chunk->state != GS_CHUNK_HOST)
        return result;
    job->copied = true;
    result = gs_driver.cuMemcpyHtoDAsync_v2(job->address, job->chunk->host->memory, job->bytes,
                                            stream);
    if (result != CUDA_SUCCESS)
        gs_vmm_remove(job->range, job->index);
    return result;
}

enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, uint64_t *lacking)
{
    struct job jobs[GS_SWAP_STEP_CHUNKS];
    const unsigned count = collect(device, false, room, jobs);
    CUresult result = CUDA_SUCCESS, finished;
    uint64_t moved = 0, copied = 0;
    struct gs_context *context;
    unsigned started;
    bool broken;

    *lacking = 0;
    if (count == 0)
        return GS_SWAP_NOTHING;
    context = enter_context(device);
    if (context == NULL)
        return GS_SWAP_SHORT;
    for (started = 0; started < count; started++) {
        result = start_copy_in(&jobs[started], context->stream);
        if (result != CUDA_SUCCESS)
            break;
    }
    finished = gs_driver.cuStreamSynchronize(context->stream);
    broken = context_is_broken(device, finished);
    for (unsigned i = 0; i < started; i++) {
        if (finished != CUDA_SUCCESS && jobs[i].copied && !broken) {
            gs_vmm_remove(jobs[i].range, jobs[i].index); /* the host copy is still good */
            continue;
        }
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        settle(&jobs[i], GS_CHUNK_RESIDENT);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        moved += jobs[i].bytes;
        copied += jobs[i].copied ? jobs[i].bytes : 0;
    }
    leave_context();
    atomic_fetch_add_explicit(&gs_runtime.moved_in, copied, memory_order_relaxed);
    if (started < count) {
        for (unsigned i = started; i < count; i++)
            *lacking += jobs[i].bytes;
        gs_log("copying in: CUresult %d, %llu bytes lacking", result,
               (unsigned long long)*lacking);
        return moved != 0 ? GS_SWAP_MOVED : GS_SWAP_SHORT;
    }
    return moved != 0 ? GS_SWAP_MOVED : GS_SWAP_SHORT;
}
