/* SPDX-License-Identifier: Apache-2.0
 *
 * match.c: finds the missing chunk for memory that was handed over with contents in it.
 *
 * Nobody is believed: this process hashes the memory itself, with its own secret, and compares the
 * hashes with those of its host copies. So programs need not agree about anything, and memory that
 * holds anything else is copied over, as if it had not been looked at. State: in the mover.
 */
#include "runtime/swap/match.h"
#include "runtime/range/handover.h"
#include "runtime/range/vmm.h"

#define PATIENCE 16u /* pieces without a match, after which only some are looked at ... */
#define LOOK     16u /* ... one of so many */

bool gs_match_is_likely(const struct gs_mover *mover)
{
    return mover->match.misses < PATIENCE;
}

bool gs_match_is_due(struct gs_mover *mover)
{
    return gs_match_is_likely(mover) || ++mover->match.passed % LOOK == 0;
}

/* under the lock: the chunk lacks memory, which may be that of the job */
static bool chunk_suits(const struct gs_range *range, uint32_t index, const struct gs_job *job)
{
    const struct gs_chunk *chunk = &range->chunks[index];

    return chunk->state == GS_CHUNK_HOST && !chunk->moving && !chunk->adrift &&
           gs_range_chunk_bytes(range, index) == job->bytes;
}

/* The best place for the memory; range NULL: where it is. */
struct found {
    struct gs_range *range;
    uint32_t index;
    unsigned equal; /* blocks */
};

/* under the lock */
static void look_at_range(struct gs_range *range, const struct gs_job *job, struct found *best)
{
    unsigned wanted;

    if (range->life != GS_RANGE_LIVE || range->pinned || !gs_range_is_needed(range) ||
        !gs_handover_suits(range) || !gs_handover_serves(range, job->chunk->network))
        return;
    for (uint32_t i = 0; i < range->chunk_count; i++) {
        const unsigned equal =
            chunk_suits(range, i, job)
                ? gs_chunk_equal_blocks(&range->chunks[i], job->bytes, job->hashes, &wanted)
                : 0;

        if (equal > best->equal)
            *best = (struct found){range, i, equal};
    }
}

/* Finds the place, and makes its chunk the job's own if it is another: that is under way then. */
static struct found find_place(const struct gs_job *job)
{
    struct gs_device *device = job->range->device;
    struct found best = {NULL, 0, 0};
    unsigned wanted;

    GS_HOLD_MEMORY;
    best.equal = gs_chunk_equal_blocks(job->chunk, job->bytes, job->hashes, &wanted);
    if (best.equal < wanted || wanted == 0) /* a chunk of zeros needs none of it */
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            look_at_range(range, job, &best);
    if (best.range != NULL) {
        best.range->chunks[best.index].moving = true;
        best.range->moving++;
        device->sweep.cursor = best.range; /* what comes next is probably behind it */
    }
    return best;
}

/* --- places --- */

static void swap_memory(struct gs_chunk *chunk, struct gs_chunk *other)
{
    const struct gs_chunk had = *chunk;

    chunk->handle = other->handle;
    chunk->sendable = other->sendable;
    chunk->network = other->network;
    chunk->descriptor = other->descriptor;
    other->handle = had.handle;
    other->sendable = had.sendable;
    other->network = had.network;
    other->descriptor = had.descriptor;
}

static void put_job(struct gs_job *job, struct gs_range *range, uint32_t index)
{
    job->range = range;
    job->chunk = &range->chunks[index];
    job->index = index;
    job->address = gs_range_chunk_address(range, index);
}

/* --- a chunk that another job has --- */

/* under the lock: whether the memory of the one job may be the chunk's of the other */
static bool job_serves(const struct gs_job *job, const struct gs_job *by)
{
    return job->range->life == GS_RANGE_LIVE && gs_handover_suits(job->range) &&
           gs_handover_serves(job->range, by->chunk->network);
}

/* Which of the two has more blocks of the chunk that the other job is for. */
static bool serves_better(const struct gs_job *job, const struct gs_job *other)
{
    unsigned wanted;

    return gs_chunk_equal_blocks(other->chunk, job->bytes, job->hashes, &wanted) >
           gs_chunk_equal_blocks(other->chunk, job->bytes, other->hashes, &wanted);
}

/* Chunks are chosen before it is known what came for them: a job whose copies are not queued yet may
 * have the chunk that this memory is best for, which is then no other job's. NULL: there is none. */
static struct gs_job *find_job(struct gs_mover *mover, const struct gs_job *job, unsigned least)
{
    for (unsigned i = mover->queued; i < mover->count; i++) {
        struct gs_job *other = gs_mover_job(mover, i);
        unsigned wanted;

        if (other->stage == GS_JOB_HASHING && other->bytes == job->bytes && other->marked &&
            GS_WITH_MEMORY(job_serves(other, job) && job_serves(job, other)) &&
            gs_chunk_equal_blocks(other->chunk, job->bytes, job->hashes, &wanted) > least &&
            gs_driver.cuEventSynchronize(other->hashed) == CUDA_SUCCESS &&
            serves_better(job, other))
            return other;
    }
    return NULL;
}

static CUresult swap_jobs(struct gs_job *job, struct gs_job *other)
{
    struct gs_range *const range = job->range;
    const uint32_t index = job->index;
    CUresult result;

    if (gs_vmm_unmap(job->range, job->index) != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* both serve where they are */
    if (gs_vmm_unmap(other->range, other->index) != CUDA_SUCCESS)
        return gs_vmm_map(job->range, job->index);
    swap_memory(job->chunk, other->chunk);
    put_job(job, other->range, other->index);
    put_job(other, range, index);
    result = gs_vmm_map(job->range, job->index);
    return result == CUDA_SUCCESS ? gs_vmm_map(other->range, other->index) : result;
}

/* --- a chunk that no job has --- */

static void let_go(struct gs_range *range, uint32_t index)
{
    GS_WITH_MEMORY(range->chunks[index].moving = false; range->moving--);
}

static CUresult move_job(struct gs_job *job, struct gs_range *range, uint32_t index)
{
    if (gs_vmm_unmap(job->range, job->index) != CUDA_SUCCESS) {
        let_go(range, index);
        return CUDA_SUCCESS; /* it serves where it is */
    }
    swap_memory(job->chunk, &range->chunks[index]);
    let_go(job->range, job->index);
    put_job(job, range, index);
    return gs_vmm_map(range, index);
}

CUresult gs_match_job(struct gs_mover *mover, struct gs_job *job)
{
    const struct found best = find_place(job);
    struct gs_job *other = find_job(mover, job, best.equal);

    if (best.equal != 0 || other != NULL)
        mover->match.misses = 0;
    else if (mover->match.misses < PATIENCE)
        mover->match.misses++;
    if (other != NULL && best.range != NULL)
        let_go(best.range, best.index);
    if (other != NULL)
        return swap_jobs(job, other);
    return best.range != NULL ? move_job(job, best.range, best.index) : CUDA_SUCCESS;
}
