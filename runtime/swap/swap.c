/* SPDX-License-Identifier: Apache-2.0
 *
 * swap.c: the pipeline that moves chunks: a ring of jobs for each context in use (swap_mover.h).
 * On the way out a chunk is hashed, its changed blocks are copied, and its memory is released. On
 * the way in memory is made and filled. Each call fills the ring up, waits for the oldest job,
 * and settles it.
 *
 * The movers are the only state; client thread only. While anything is under way the gate is
 * closed. A range can end meanwhile, but its chunks are disposed of by this thread
 * (gs_range_dispose settles first). Invariant: all jobs of a ring go in one direction.
 */
#include "runtime/swap/swap.h"

#include <poll.h>

#include "runtime/range/backend.h"
#include "runtime/range/handover.h"
#include "runtime/swap/common.h"
#include "runtime/swap/match.h"
#include "runtime/range/vmm.h"

#define DROPPED     64u            /* host copies that are released at a time */
#define AHEAD_BYTES (768ull << 20) /* chosen, and being hashed, so that the bus never waits */
#define QUEUE_BYTES (192ull << 20) /* the part of them whose copies are queued */
#define SMALL       (64ull << 20)  /* the copy of a larger chunk takes longer than 1 ms */

#define NEWS_PAUSE_NS 50000
#define NEWS_MOST     64 /* looks for news while one chunk comes in */

/* --- failing --- */

/* In a broken context every call of the program gives a sticky error. A single failed call may
 * have failed for reasons of its own. */
static bool context_is_broken(struct gs_context *context, CUresult result)
{
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
        result == CUDA_ERROR_INVALID_VALUE ||
        result == CUDA_ERROR_INVALID_CONTEXT) /* none was current: says nothing */
        return false;
    for (unsigned i = 0; i < 3; i++)
        if (gs_driver.cuCtxSynchronize() == CUDA_SUCCESS)
            return false;
    atomic_store_explicit(&context->broken, true, memory_order_relaxed);
    return true;
}

/* No context is left with which anything could be saved: the gate may open, and every call will
 * report the error. */
static bool device_is_broken(struct gs_device *device)
{
    const struct gs_context *context = gs_context_for(device);
    const bool broken =
        context == NULL || atomic_load_explicit(&context->broken, memory_order_relaxed);

    GS_HOLD_MEMORY;
    device->broken |= broken;
    return broken;
}

/* A copy failed: everything under way stays where it was, and a sound context takes over from a
 * broken one. If there is none, nothing is left to save, and the memory on the card is released. */
static void abandon_mover(struct gs_mover *mover, CUresult result)
{
    bool broken;

    gs_log("moving memory %s: CUresult %d", mover->out ? "out" : "in", result);
    (void)GS_TRY_AGAIN(gs_driver.cuStreamSynchronize(mover->copies));
    gs_mover_end_hashing(mover);
    broken = context_is_broken(mover->context, result) && device_is_broken(mover->device);
    while (mover->count != 0) {
        struct gs_job *job = gs_mover_job(mover, 0);
        const bool handed_over = !mover->out && job->chunk->descriptor != 0;
        uint8_t state = job->chunk->state;

        if (broken && mover->out)
            state = GS_CHUNK_ABSENT;
        else if (broken && !handed_over)
            state = GS_CHUNK_RESIDENT;
        /* in: the memory made for the chunk is released, the host copy is good. And memory with
         * another program's bytes must not reach a context that may come after the broken ones */
        if (broken == mover->out || handed_over)
            gs_backend_of(job->range)->remove(job->range, job->index);
        gs_mover_settle(job, state);
        gs_mover_drop_first(mover);
    }
}

/* --- hashes --- */

/* The chunk has memory, which nothing changes until the job ends. */
static void begin_hashing(struct gs_mover *mover, struct gs_job *job)
{
    const uint64_t slot = (uint64_t)(job - mover->jobs);
    const uint64_t blocks = (job->bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES;
    CUstream const stream = mover->hashes[slot % GS_HASH_STREAMS];

    gs_vmm_open(job->range, job->index); /* if that fails, so will the copy */
    if (gs_backend_of(job->range)->send != NULL || mover->results == NULL ||
        mover->context->hash == NULL || blocks > GS_HASH_MOST)
        return;
    job->hashes_there = mover->results_there + slot * sizeof mover->results[0];
    if (gs_hash_queue(mover->context, job->address, job->bytes, job->hashes_there, stream) !=
        CUDA_SUCCESS)
        return; /* it is copied without hashes */
    job->hashes = mover->results[slot];
    job->stage = GS_JOB_HASHING;
    job->marked = gs_mover_mark(&job->hashed, stream) == CUDA_SUCCESS;
}

/* --- out --- */

/* under the lock: takes host copies of chunks that are on the device, up to DROPPED, of which *bytes
 * become fewer */
static unsigned take_copies(const struct gs_device *device, uint64_t *bytes, bool changing,
                            struct gs_host_block **taken)
{
    unsigned count = 0;

    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count && range->life == GS_RANGE_LIVE; i++) {
            struct gs_chunk *chunk = &range->chunks[i];

            if (chunk->state != GS_CHUNK_RESIDENT || chunk->moving || chunk->host == NULL ||
                (changing && !chunk->changes))
                continue;
            if (count == DROPPED || *bytes == 0)
                return count;
            *bytes -= gs_smaller(*bytes, chunk->host->bytes);
            taken[count++] = chunk->host;
            chunk->host = NULL;
        }
    return count;
}

/* Releases so many bytes of host copies of chunks that are on the device; changing: only of those that
 * change, whose copies are of little use there. */
static void drop_copies(struct gs_device *device, uint64_t bytes, bool changing)
{
    struct gs_host_block *taken[DROPPED];
    unsigned count;

    do {
        count = GS_WITH_MEMORY(take_copies(device, &bytes, changing, taken));
        for (unsigned i = 0; i < count; i++)
            gs_host_put(taken[i]); /* may make the spill file shorter: not under the lock */
    } while (count == DROPPED);
}

static void keep_from(struct gs_mover *mover, unsigned first)
{
    gs_mover_end_hashing(mover); /* their hashing may still run */
    while (mover->count > first) {
        struct gs_job *job = gs_mover_job(mover, mover->count - 1);

        gs_mover_settle(job, job->chunk->state);
        mover->bytes -= job->bytes;
        if (job->stage == GS_JOB_COPYING) {
            mover->queued--;
            mover->queued_bytes -= job->bytes;
        }
        mover->count--;
    }
}

/* While a copy engine has copies to the host in its queue, cuMemSetAccess takes any process 1 ms (H200),
 * in which 50 MiB are copied: the next program would map small chunks more slowly than they leave. So
 * the queue runs empty before the copies of each of them, and while one is copied, the last leaves. */
static bool is_small(const struct gs_job *job)
{
    return job->bytes < SMALL && gs_backend_of(job->range)->send == NULL;
}

/* Queues the copies of the oldest job that has none queued yet. *kept: the host has no place for
 * it. */
static CUresult queue_out(struct gs_mover *mover, bool *kept)
{
    struct gs_job *job = gs_mover_job(mover, mover->queued);
    CUresult result = gs_mover_await_hashes(mover, job);

    if (result == CUDA_SUCCESS && mover->queued != 0 && is_small(job))
        result = gs_driver.cuStreamSynchronize(mover->copies);
    if (job->chunk->host == NULL)
        drop_copies(mover->device, job->bytes, true);
    job->stage = GS_JOB_COPYING;
    mover->queued++;
    mover->queued_bytes += job->bytes;
    if (result == CUDA_SUCCESS)
        result = gs_job_copy_out(job, mover->copies);
    if (result == CUDA_SUCCESS && job->copied != 0)
        result = gs_mover_mark(&job->done, mover->copies);
    /* the host, or the spill file, has no room for the chunk: it stays, and so do the chunks that
     * were chosen after it */
    *kept = result == CUDA_ERROR_OUT_OF_MEMORY &&
            (job->chunk->host == NULL || job->chunk->host->memory == NULL);
    if (*kept)
        keep_from(mover, mover->queued - 1);
    else if (result != CUDA_SUCCESS)
        abandon_mover(mover, result);
    return result;
}

static CUresult retire_out(struct gs_mover *mover)
{
    struct gs_job *job = gs_mover_job(mover, 0);
    const CUresult result =
        job->copied != 0 ? gs_driver.cuEventSynchronize(job->done) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS) {
        abandon_mover(mover, result);
        return result;
    }
    gs_job_copied_out(job);
    if (!gs_handover_give(job->range, job->index))
        gs_backend_of(job->range)->remove(job->range, job->index);
    gs_job_count(job, true);
    gs_mover_settle(job, GS_CHUNK_HOST);
    gs_mover_drop_first(mover);
    return CUDA_SUCCESS;
}

/* --- in --- */

/* Gives the newest job's chunk memory: memory that another program handed over, which may be looked
 * at, or new memory. The bytes in hand and those under way are together at most `room`. */
static CUresult begin_in(struct gs_mover *mover, uint64_t room, bool looks)
{
    struct gs_job *job = gs_mover_job(mover, mover->count - 1);
    CUresult result;

    if (job->chunk->state == GS_CHUNK_HOST && gs_handover_place(job->range, job->index)) {
        if (looks)
            begin_hashing(mover, job);
        return CUDA_SUCCESS;
    }
    gs_handover_shrink(mover->device, room - mover->bytes);
    result = gs_backend_of(job->range)->place(job->range, job->index);
    if (result != CUDA_SUCCESS) { /* nothing of it is under way: this job alone is taken back */
        gs_mover_settle(job, job->chunk->state);
        mover->bytes -= job->bytes;
        mover->count--;
        if (context_is_broken(mover->context, result))
            device_is_broken(mover->device);
    }
    return result;
}

/* Queues the copies of the oldest job that has none queued yet. */
static CUresult queue_in(struct gs_mover *mover)
{
    struct gs_job *job = gs_mover_job(mover, mover->queued);
    CUresult result = gs_vmm_open(job->range, job->index);

    job->stage = GS_JOB_COPYING;
    mover->queued++;
    mover->queued_bytes += job->bytes;
    if (result == CUDA_SUCCESS)
        result = gs_job_copy_in(job, mover->copies);
    if (result == CUDA_SUCCESS)
        result = gs_mover_mark(&job->done, mover->copies);
    if (result != CUDA_SUCCESS)
        abandon_mover(mover, result);
    return result;
}

static CUresult retire_in(struct gs_mover *mover)
{
    struct gs_job *job = gs_mover_job(mover, 0);
    const CUresult result = gs_driver.cuEventSynchronize(job->done);

    if (result != CUDA_SUCCESS) {
        abandon_mover(mover, result);
        return result;
    }
    gs_job_count(job, false);
    gs_common_came(job);
    gs_mover_settle(job, GS_CHUNK_RESIDENT);
    gs_mover_drop_first(mover);
    return CUDA_SUCCESS;
}

/* Waits for the oldest copy. False: news came meanwhile, perhaps of more room; chunks that can
 * be mapped now should not wait. */
static bool await_in(struct gs_mover *mover, int news)
{
    const struct gs_job *job = gs_mover_job(mover, 0);
    const struct timespec pause = {0, NEWS_PAUSE_NS};
    struct pollfd polled = {news, POLLIN, 0};

    if (GS_WITH_MEMORY(mover->device->accounts.missing) <= mover->bytes ||
        mover->bytes >= QUEUE_BYTES || mover->count == GS_MOVER_RING ||
        mover->heard == NEWS_MOST)
        return true;
    while (gs_driver.cuEventQuery(job->done) == CUDA_ERROR_NOT_READY)
        if (ppoll(&polled, 1, &pause, NULL) > 0) {
            mover->heard++;
            return false;
        }
    return true;
}

/* --- settling --- */

/* Settles all jobs. On the way out those with queued copies are completed, and the others stay
 * where they are. */
static void finish_mover(struct gs_mover *mover)
{
    CUresult result = CUDA_SUCCESS;

    while (mover->queued != 0 && result == CUDA_SUCCESS)
        result = mover->out ? retire_out(mover) : retire_in(mover);
    if (mover->count != 0)
        keep_from(mover, 0);
}

void gs_swap_settle(void)
{
    struct gs_context *context;
    bool pushed;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++) {
        if (context->handle == NULL || context->mover == NULL || context->mover->count == 0)
            continue;
        pushed = gs_context_push(context->handle) == CUDA_SUCCESS;
        finish_mover(context->mover); /* a driver may want a current context for that */
        if (pushed)
            gs_context_pop();
    }
}

void gs_swap_dispose(struct gs_range *range)
{
    if (range->moving != 0) /* freed meanwhile; only the client thread can see this */
        gs_swap_settle();
    gs_range_dispose(range);
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

/* Enters the mover for this direction, when nothing is under way in the other one. */
static struct gs_mover *enter_for(struct gs_device *device, bool out)
{
    struct gs_mover *mover = gs_mover_enter(device);

    if (mover == NULL)
        return NULL;
    if (mover->count == 0 || mover->out != out) {
        finish_mover(mover);
        mover->out = out;
        gs_match_begin(mover);
        GS_WITH_MEMORY(gs_mover_look_anew(mover));
    }
    return mover;
}

/* --- the two directions --- */

static bool may_queue_out(struct gs_mover *mover)
{
    if (mover->queued == mover->count)
        return false;
    return is_small(gs_mover_job(mover, mover->queued)) ? mover->queued < 2
                                                        : mover->queued_bytes < QUEUE_BYTES;
}

enum gs_swap_result gs_swap_out(struct gs_device *device, uint64_t excess)
{
    struct gs_mover *mover = enter_for(device, true);
    CUresult result = CUDA_SUCCESS;
    bool moved, kept = false;

    if (mover == NULL)
        return GS_SWAP_SHORT;
    while (mover->bytes < excess && mover->bytes < AHEAD_BYTES &&
           mover->count < GS_MOVER_RING && gs_mover_choose(mover, 0, false))
        begin_hashing(mover, gs_mover_job(mover, mover->count - 1));
    while (result == CUDA_SUCCESS && may_queue_out(mover))
        result = queue_out(mover, &kept);
    moved = mover->count != 0;
    if (moved)
        result = retire_out(mover);
    gs_mover_leave();
    if (moved && result == CUDA_SUCCESS)
        return GS_SWAP_MOVED;
    if (kept)
        return GS_SWAP_KEPT;
    return result == CUDA_SUCCESS ? GS_SWAP_NOTHING : GS_SWAP_SHORT;
}

enum gs_swap_result gs_swap_in(struct gs_device *device, uint64_t room, int news,
                               uint64_t *lacking)
{
    struct gs_mover *mover = enter_for(device, false);
    CUresult result = CUDA_SUCCESS;
    CUresult queued;
    uint64_t bytes, ahead;
    bool moved;

    *lacking = 0;
    if (mover == NULL)
        return GS_SWAP_SHORT;
    /* Memory that has come may hold what is needed, and be done at once: more of it at a time. Its
     * hashes are waited for, and to run them a card may have to change to this program's context
     * each time: so several pieces are taken together. If all is copied anyway, pieces are taken
     * while others are copied: to map a piece takes the driver 1 ms (H200) while the other program
     * copies. */
    ahead = gs_handover_in_hand(device) != 0 ? AHEAD_BYTES : QUEUE_BYTES;
    if (ahead == AHEAD_BYTES && gs_match_is_likely(mover) && mover->bytes > QUEUE_BYTES)
        ahead = 0;
    while (mover->bytes < ahead && mover->count < GS_MOVER_RING && result == CUDA_SUCCESS &&
           mover->bytes < room) {
        const bool looks = gs_handover_in_hand(device) != 0 && gs_match_is_due(mover);

        if (!gs_mover_choose(mover, room - mover->bytes, !looks))
            break;
        bytes = gs_mover_job(mover, mover->count - 1)->bytes;
        result = begin_in(mover, room, looks);
        *lacking = result != CUDA_SUCCESS ? bytes : 0;
    }
    if (mover->queued < mover->count && (queued = gs_match_jobs(mover)) != CUDA_SUCCESS) {
        result = queued;
        *lacking = gs_mover_job(mover, mover->queued)->bytes;
        abandon_mover(mover, result);
    }
    while (mover->queued < mover->count) {
        bytes = gs_mover_job(mover, mover->queued)->bytes;
        if ((queued = queue_in(mover)) != CUDA_SUCCESS) {
            result = queued;
            *lacking = bytes;
        }
    }
    moved = mover->count != 0;
    if (moved && await_in(mover, *lacking == 0 ? news : -1))
        moved = retire_in(mover) == CUDA_SUCCESS;
    gs_mover_leave();
    if (*lacking != 0 && !moved)
        gs_log("copying in: CUresult %d, %llu bytes missing", result,
               (unsigned long long)*lacking);
    if (moved)
        return GS_SWAP_MOVED;
    return result == CUDA_SUCCESS ? GS_SWAP_NOTHING : GS_SWAP_SHORT;
}

bool gs_swap_fill(struct gs_range *range, uint32_t index)
{
    const struct gs_mover *mover = gs_mover_enter(range->device);
    struct gs_job job = {.range = range,
                         .chunk = &range->chunks[index],
                         .index = index,
                         .address = gs_range_chunk_address(range, index),
                         .bytes = gs_range_chunk_bytes(range, index)};
    CUresult result, finished;

    if (mover == NULL)
        return false;
    result = gs_vmm_open(range, index);
    if (result == CUDA_SUCCESS)
        result = gs_job_copy_in(&job, mover->copies);
    finished = gs_driver.cuStreamSynchronize(mover->copies); /* some copies may be under way */
    gs_vmm_close(range, index);
    gs_mover_leave();
    return result == CUDA_SUCCESS && finished == CUDA_SUCCESS;
}

void gs_swap_drop_copies(struct gs_device *device)
{
    gs_common_drop_stage();
    drop_copies(device, UINT64_MAX, false);
}
