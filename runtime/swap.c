/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.c: the pipeline that moves chunks: a ring of jobs for each context in use. On the way
 * out a job is hashed, its changed blocks are copied, its memory is released; on the way in
 * memory is made, and filled. Each call tops the ring up, waits for the oldest job, and settles
 * it.
 *
 * State: the movers (of gs_context), client thread only. The client thread is the only one that
 * changes a live chunk's state: it chooses chunks under gs_memory_lock and works on them
 * without it. While anything is under way the gate is closed, so that a range can end, but its
 * chunks are disposed of by this thread (gs_range_dispose settles first). Invariants: jobs of
 * one ring go one way; a chunk is `moving` exactly while a job has it.
 */
#include "runtime/swap.h"

#include <stdlib.h>

#include "runtime/backend.h"
#include "runtime/driver.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/runtime.h"
#include "runtime/swap_job.h"

#define DROPPED     64u            /* host copies given back at a time */
#define RING        64u            /* jobs */
#define PUSHES      8u             /* attempts: a failure may have been that call's alone */
#define AHEAD_BYTES (384ull << 20) /* chosen, and being hashed: so that the bus never waits */
#define QUEUE_BYTES (192ull << 20) /* of these, copies queued */

struct gs_mover {
    struct gs_device *device;
    struct gs_context *context;
    CUstream copies, hashes; /* hashing must not wait for copies */
    unsigned first, count, queued;
    uint64_t bytes, queued_bytes;
    bool out;
    uint64_t (*results)[GS_HASH_MOST][2];
    CUdeviceptr results_there;
    struct gs_job jobs[RING];
};

/* --- movers --- */

static bool make_streams(struct gs_mover *mover)
{
    return (mover->copies != NULL ||
            gs_driver.cuStreamCreate(&mover->copies, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) &&
           (mover->hashes != NULL ||
            gs_driver.cuStreamCreate(&mover->hashes, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
}

/* The one that has something under way; else any. */
static struct gs_context *context_to_use(const struct gs_device *device)
{
    struct gs_context *context;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle != NULL && context->device == device && context->mover != NULL &&
            context->mover->count != 0)
            return context;
    return gs_context_for(device);
}

/* Makes a context of the device current, and its mover ready; NULL: there is none (and nothing
 * is current). */
static struct gs_mover *enter(struct gs_device *device)
{
    struct gs_context *context = context_to_use(device);
    struct gs_mover *mover;
    CUcontext popped;

    if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return NULL;
    if (context->mover == NULL)
        context->mover = calloc(1, sizeof *mover);
    mover = context->mover;
    if (mover != NULL && make_streams(mover)) {
        mover->device = device;
        mover->context = context;
        if (gs_kernels_ready(context) && mover->results == NULL)
            mover->results = gs_hash_results(RING, &mover->results_there);
        return mover;
    }
    gs_driver.cuCtxPopCurrent_v2(&popped);
    return NULL;
}

static void leave(void)
{
    CUcontext popped;

    gs_driver.cuCtxPopCurrent_v2(&popped);
}

static struct gs_job *job_at(struct gs_mover *mover, unsigned i)
{
    return &mover->jobs[(mover->first + i) % RING];
}

/* --- choosing --- */

/* Passes over the ranges: on the way out those go first that were out before, so that the same
 * ones go every time and their host copies are of use. */
enum sweep { OUT_AGAIN, OUT_ANY, SWEEPS };

static bool suits(const struct gs_chunk *chunk, bool out, unsigned sweep)
{
    if (chunk->moving || (chunk->state == GS_CHUNK_RESIDENT) != out)
        return false;
    return !out || sweep == OUT_ANY || chunk->host != NULL;
}

/* under the lock: the next chunk from the cursor on that may go, of at most limit bytes */
static struct gs_range *next_chunk(struct gs_device *device, bool out, uint64_t limit,
                                   uint32_t *index)
{
    for (; device->sweep < SWEEPS; device->sweep++, device->cursor = device->ranges)
        for (; device->cursor != NULL; device->cursor = device->cursor->next) {
            struct gs_range *range = device->cursor;

            if (range->life != GS_RANGE_LIVE || !gs_range_is_needed(range) || range->pinned)
                continue;
            for (uint32_t i = 0; i < range->chunk_count; i++)
                if (suits(&range->chunks[i], out, device->sweep) &&
                    (out || gs_range_chunk_bytes(range, i) <= limit)) {
                    *index = i;
                    return range;
                }
        }
    return NULL;
}

static bool choose(struct gs_mover *mover, uint64_t limit)
{
    struct gs_device *device = mover->device;
    struct gs_job *job = job_at(mover, mover->count);
    struct gs_range *range = NULL;
    uint32_t index = 0;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    /* what came up behind the cursor is found by starting anew, once */
    for (unsigned attempt = 0; attempt < 2 && range == NULL; attempt++) {
        range = next_chunk(device, mover->out, limit, &index);
        if (range == NULL) {
            device->cursor = device->ranges;
            device->sweep = mover->out ? OUT_AGAIN : OUT_ANY;
        }
    }
    if (range != NULL) {
        range->chunks[index].moving = true;
        range->moving++;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (range == NULL)
        return false;
    job->range = range;
    job->chunk = &range->chunks[index];
    job->index = index;
    job->stage = GS_JOB_CHOSEN;
    job->address = gs_range_chunk_address(range, index);
    job->bytes = gs_range_chunk_bytes(range, index);
    job->copied = 0;
    job->hashes = NULL;
    mover->count++;
    mover->bytes += job->bytes;
    return true;
}

/* The job ends; state: what its chunk is from now on. Chunk state and accounts change together:
 * a range that was freed meanwhile has been taken out of `missing` as it was at that moment
 * (range.c, end_life). */
static void settle(struct gs_job *job, uint8_t state)
{
    struct gs_device *device = job->range->device;
    bool needed;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    needed = job->range->life == GS_RANGE_LIVE && gs_range_is_needed(job->range);
    if (state != job->chunk->state && state == GS_CHUNK_RESIDENT) {
        device->resident += job->bytes;
        device->missing -= needed ? job->bytes : 0;
    } else if (job->chunk->state == GS_CHUNK_RESIDENT && state != GS_CHUNK_RESIDENT) {
        device->resident -= job->bytes;
        device->missing += needed ? job->bytes : 0;
    }
    job->chunk->state = state;
    job->chunk->moving = false;
    job->range->moving--;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

static void drop_first(struct gs_mover *mover)
{
    const struct gs_job *job = job_at(mover, 0);

    mover->bytes -= job->bytes;
    if (job->stage == GS_JOB_COPYING) {
        mover->queued--;
        mover->queued_bytes -= job->bytes;
    }
    mover->first = (mover->first + 1) % RING;
    mover->count--;
}

static bool have_event(CUevent *event)
{
    return *event != NULL ||
           gs_driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

static CUresult mark(CUevent *event, CUstream stream)
{
    if (!have_event(event)) {
        *event = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return gs_driver.cuEventRecord(*event, stream);
}

/* --- failing --- */

/* The program gets a sticky error from every call in that context. The error of one call may
 * have been that call's alone. */
static bool context_is_broken(struct gs_context *context, CUresult result)
{
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
        result == CUDA_ERROR_INVALID_VALUE ||
        result == CUDA_ERROR_INVALID_CONTEXT) /* none was current, which says nothing of it */
        return false;
    for (unsigned i = 0; i < 3; i++)
        if (gs_driver.cuCtxSynchronize() == CUDA_SUCCESS)
            return false;
    atomic_store_explicit(&context->broken, true, memory_order_relaxed);
    return true;
}

/* No context is left that could save anything: the gate may open, every call will say what
 * happened. */
static bool device_is_broken(struct gs_device *device)
{
    const struct gs_context *context = gs_context_for(device);
    const bool broken =
        context == NULL || atomic_load_explicit(&context->broken, memory_order_relaxed);

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    device->broken |= broken;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return broken;
}

/* A copy failed: everything under way stays where it was; a sound context takes over from a
 * broken one. With none there is nothing left to save, and the card is given back. */
static void abandon(struct gs_mover *mover, CUresult result)
{
    bool broken, idle = false;

    gs_log("moving memory %s: CUresult %d", mover->out ? "out" : "in", result);
    for (unsigned i = 0; i < 4 && !idle; i++)
        idle = gs_driver.cuStreamSynchronize(mover->copies) == CUDA_SUCCESS &&
               gs_driver.cuStreamSynchronize(mover->hashes) == CUDA_SUCCESS;
    broken = context_is_broken(mover->context, result) && device_is_broken(mover->device);
    while (mover->count != 0) {
        struct gs_job *job = job_at(mover, 0);
        uint8_t state = job->chunk->state;

        if (broken && mover->out)
            state = GS_CHUNK_ABSENT;
        else if (broken)
            state = GS_CHUNK_RESIDENT;
        if (broken ==
            mover->out) /* in: what was made for it goes again; the host copy is good */
            gs_backend_of(job->range)->remove(job->range, job->index);
        settle(job, state);
        drop_first(mover);
    }
}

/* --- out --- */

static void begin_hashing(struct gs_mover *mover, struct gs_job *job)
{
    const uint64_t slot = (uint64_t)(job - mover->jobs);
    const uint64_t blocks = (job->bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES;

    if (gs_backend_of(job->range)->send != NULL || mover->results == NULL ||
        mover->context->hash == NULL || blocks > GS_HASH_MOST)
        return;
    job->hashes_there = mover->results_there + slot * sizeof mover->results[0];
    if (gs_hash_queue(mover->context, job->address, job->bytes, job->hashes_there,
                      mover->hashes) != CUDA_SUCCESS)
        return; /* copied without */
    job->hashes = mover->results[slot];
    job->stage = GS_JOB_HASHING;
    job->marked = mark(&job->hashed, mover->hashes) == CUDA_SUCCESS;
}

/* The kernel reads the chunk until then, whatever is known of its result. */
static CUresult await_hashes(const struct gs_mover *mover, const struct gs_job *job)
{
    CUresult result = CUDA_SUCCESS;

    if (job->stage != GS_JOB_HASHING ||
        (job->marked && gs_driver.cuEventSynchronize(job->hashed) == CUDA_SUCCESS))
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < 4; i++) { /* one call's failure says nothing about the kernel */
        result = gs_driver.cuStreamSynchronize(mover->hashes);
        if (result == CUDA_SUCCESS)
            break;
    }
    return result;
}

/* The host, or the spill file, has no room for it: it stays, and so does what was chosen behind
 * it. */
static bool has_no_place(const struct gs_job *job, CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY &&
           (job->chunk->host == NULL || job->chunk->host->memory == NULL);
}

static void keep_from(struct gs_mover *mover, unsigned first)
{
    gs_driver.cuStreamSynchronize(mover->hashes); /* their hashes may still be on the way */
    while (mover->count > first) {
        struct gs_job *job = job_at(mover, mover->count - 1);

        settle(job, job->chunk->state);
        mover->bytes -= job->bytes;
        if (job->stage == GS_JOB_COPYING) {
            mover->queued--;
            mover->queued_bytes -= job->bytes;
        }
        mover->count--;
    }
}

/* Queues the copies of the oldest job that has none queued yet. *kept: it has no place. */
static CUresult queue_out(struct gs_mover *mover, bool *kept)
{
    struct gs_job *job = job_at(mover, mover->queued);
    CUresult result = await_hashes(mover, job);

    job->stage = GS_JOB_COPYING;
    mover->queued++;
    mover->queued_bytes += job->bytes;
    if (result == CUDA_SUCCESS)
        result = gs_job_copy_out(job, mover->copies);
    if (result == CUDA_SUCCESS && job->copied != 0)
        result = mark(&job->done, mover->copies);
    *kept = has_no_place(job, result);
    if (*kept)
        keep_from(mover, mover->queued - 1);
    else if (result != CUDA_SUCCESS)
        abandon(mover, result);
    return result;
}

static CUresult retire_out(struct gs_mover *mover)
{
    struct gs_job *job = job_at(mover, 0);
    const CUresult result =
        job->copied != 0 ? gs_driver.cuEventSynchronize(job->done) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS) {
        abandon(mover, result);
        return result;
    }
    gs_job_copied_out(job);
    gs_backend_of(job->range)->remove(job->range, job->index);
    atomic_fetch_add_explicit(&gs_runtime.moved_out, job->copied, memory_order_relaxed);
    settle(job, GS_CHUNK_HOST);
    drop_first(mover);
    return CUDA_SUCCESS;
}

/* --- in --- */

/* Makes memory for the job chosen last, and queues what belongs there. */
static CUresult queue_in(struct gs_mover *mover)
{
    struct gs_job *job = job_at(mover, mover->count - 1);
    CUresult result = gs_backend_of(job->range)->place(job->range, job->index);

    if (result != CUDA_SUCCESS) { /* nothing of it is under way: only this one goes back */
        settle(job, job->chunk->state);
        mover->bytes -= job->bytes;
        mover->count--;
        return result;
    }
    job->stage = GS_JOB_COPYING;
    mover->queued++;
    mover->queued_bytes += job->bytes;
    result = gs_job_copy_in(job, mover->copies);
    if (result == CUDA_SUCCESS)
        result = mark(&job->done, mover->copies);
    if (result != CUDA_SUCCESS)
        abandon(mover, result);
    return result;
}

static CUresult retire_in(struct gs_mover *mover)
{
    struct gs_job *job = job_at(mover, 0);
    const CUresult result = gs_driver.cuEventSynchronize(job->done);

    if (result != CUDA_SUCCESS) {
        abandon(mover, result);
        return result;
    }
    atomic_fetch_add_explicit(&gs_runtime.moved_in, job->copied, memory_order_relaxed);
    settle(job, GS_CHUNK_RESIDENT);
    drop_first(mover);
    return CUDA_SUCCESS;
}

/* --- settling --- */

/* Out: what has been queued is retired, the rest goes back to where it is. */
static void finish(struct gs_mover *mover)
{
    CUresult result = CUDA_SUCCESS;

    while (mover->queued != 0 && result == CUDA_SUCCESS)
        result = mover->out ? retire_out(mover) : retire_in(mover);
    if (mover->count != 0)
        keep_from(mover, 0);
}

static void settle_device(const struct gs_device *device)
{
    struct gs_context *context;
    CUcontext popped;
    bool pushed;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++) {
        if (context->handle == NULL || context->mover == NULL || context->mover->count == 0 ||
            (device != NULL && context->device != device))
            continue;
        pushed = false;
        for (unsigned attempt = 0; attempt < PUSHES && !pushed; attempt++)
            pushed = gs_driver.cuCtxPushCurrent_v2(context->handle) == CUDA_SUCCESS;
        finish(context->mover); /* a driver may want a current context for that */
        if (pushed)
            gs_driver.cuCtxPopCurrent_v2(&popped);
    }
}

void gs_swap_settle(void)
{
    settle_device(NULL);
}

bool gs_swap_is_under_way(const struct gs_device *device, bool out)
{
    const struct gs_context *context;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle != NULL && context->device == device && context->mover != NULL &&
            context->mover->count != 0 && context->mover->out == out)
            return true;
    return false;
}

/* The mover, entered, going that way with nothing under way the other. */
static struct gs_mover *enter_for(struct gs_device *device, bool out)
{
    struct gs_mover *mover = enter(device);

    if (mover == NULL)
        return NULL;
    if (mover->count == 0 || mover->out != out) {
        finish(mover);
        mover->out = out;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        device->cursor = device->ranges;
        device->sweep = out ? OUT_AGAIN : OUT_ANY;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
    return mover;
}

/* --- the two ways --- */

enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess)
{
    struct gs_mover *mover = enter_for(device, true);
    CUresult result = CUDA_SUCCESS;
    bool moved, kept = false;

    if (mover == NULL)
        return GS_SWAP_SHORT;
    while (mover->bytes < excess && mover->bytes < AHEAD_BYTES && mover->count < RING &&
           choose(mover, 0))
        begin_hashing(mover, job_at(mover, mover->count - 1));
    while (mover->queued < mover->count && mover->queued_bytes < QUEUE_BYTES &&
           result == CUDA_SUCCESS)
        result = queue_out(mover, &kept);
    moved = mover->count != 0;
    if (moved)
        result = retire_out(mover);
    leave();
    if (moved && result == CUDA_SUCCESS)
        return GS_SWAP_MOVED;
    if (kept)
        return GS_SWAP_KEPT;
    return result == CUDA_SUCCESS ? GS_SWAP_NOTHING : GS_SWAP_SHORT;
}

enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, uint64_t *lacking)
{
    struct gs_mover *mover = enter_for(device, false);
    CUresult result = CUDA_SUCCESS;
    uint64_t bytes;
    bool moved;

    *lacking = 0;
    if (mover == NULL)
        return GS_SWAP_SHORT;
    while (mover->bytes < QUEUE_BYTES && mover->count < RING && result == CUDA_SUCCESS &&
           mover->bytes < room && choose(mover, room - mover->bytes)) {
        bytes = job_at(mover, mover->count - 1)->bytes;
        result = queue_in(mover);
        *lacking = result != CUDA_SUCCESS ? bytes : 0;
    }
    moved = mover->count != 0;
    if (moved)
        moved = retire_in(mover) == CUDA_SUCCESS;
    leave();
    if (*lacking != 0 && !moved)
        gs_log("copying in: CUresult %d, %llu bytes lacking", result,
               (unsigned long long)*lacking);
    if (moved)
        return GS_SWAP_MOVED;
    return result == CUDA_SUCCESS ? GS_SWAP_NOTHING : GS_SWAP_SHORT;
}

/* under the lock: takes up to DROPPED host copies of what is on the device */
static unsigned take_copies(const struct gs_device *device, struct gs_host_block **taken)
{
    unsigned count = 0;

    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count && range->life == GS_RANGE_LIVE; i++) {
            struct gs_chunk *chunk = &range->chunks[i];

            if (chunk->state != GS_CHUNK_RESIDENT || chunk->moving || chunk->host == NULL)
                continue;
            if (count == DROPPED)
                return count;
            taken[count++] = chunk->host;
            chunk->host = NULL;
        }
    return count;
}

void gs_swap_drop_copies(struct gs_device *device)
{
    struct gs_host_block *taken[DROPPED];
    unsigned count;

    do {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        count = take_copies(device, taken);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        for (unsigned i = 0; i < count; i++)
            gs_host_put(taken[i]); /* may make the spill file shorter: not under the lock */
    } while (count == DROPPED);
}
