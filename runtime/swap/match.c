/* SPDX-License-Identifier: Apache-2.0
 *
 * match.c: finds the missing chunk for memory that was handed over with contents in it.
 *
 * Nobody is believed: this process hashes the memory itself, with its own secret, and compares the
 * hashes with those of its host copies. So programs need not agree about anything, and memory that
 * holds anything else is copied over, as if it had not been looked at. State: in the mover.
 *
 * Chunks are chosen before it is known what comes for them. Memory that holds nothing of use must not
 * keep the chunk of a piece that comes later: that piece would take the next one's, and so on to the
 * last.
 */
#include "runtime/swap/match.h"
#include "runtime/range/handover.h"
#include "runtime/range/vmm.h"

#define PATIENCE 16u /* pieces without a match, after which only some are looked at ... */
#define LOOK     16u /* ... one of so many ... */
#define BEGIN    4u  /* ... and the first of each turn: what others may hold leaves first */

void gs_match_begin(struct gs_mover *mover)
{
    if (mover->match.misses > PATIENCE - BEGIN)
        mover->match.misses = PATIENCE - BEGIN;
}

bool gs_match_is_likely(const struct gs_mover *mover)
{
    return mover->match.misses < PATIENCE;
}

bool gs_match_is_due(struct gs_mover *mover)
{
    return gs_match_is_likely(mover) || ++mover->match.passed % LOOK == 0;
}

/* blocks that the chunk of the one job has in the memory of the other */
static unsigned count_equal(const struct gs_job *job, const struct gs_job *memory_of)
{
    unsigned wanted;

    return gs_chunk_equal_blocks(job->chunk, job->bytes, memory_of->hashes, &wanted);
}

/* --- a chunk that no job has --- */

struct place {
    struct gs_range *range; /* NULL: none */
    uint32_t index;
    unsigned equal; /* blocks */
};

/* under the lock: the chunk lacks memory, which may be that of the job */
static bool chunk_suits(const struct gs_range *range, uint32_t index, const struct gs_job *job)
{
    const struct gs_chunk *chunk = &range->chunks[index];

    return chunk->state == GS_CHUNK_HOST && !chunk->moving && !chunk->adrift &&
           gs_range_chunk_bytes(range, index) == job->bytes;
}

/* The chunk of which the job's memory holds most, and more than that many blocks; spare: one that
 * others do not hold, else the last, whose memory comes last. It is under way then. */
static struct place find_place(const struct gs_job *job, unsigned least, bool spare)
{
    struct gs_device *device = job->range->device;
    struct place best = {NULL, 0, least};

    GS_HOLD_MEMORY;
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next) {
        if (range->life != GS_RANGE_LIVE || range->pinned || !gs_range_is_needed(range) ||
            !gs_handover_suits(range) || !gs_handover_serves(range, job->chunk->network))
            continue;
        for (uint32_t i = 0; i < range->chunk_count; i++) {
            unsigned wanted, equal;

            if (!chunk_suits(range, i, job))
                continue;
            equal = spare ? 0
                          : gs_chunk_equal_blocks(&range->chunks[i], job->bytes, job->hashes,
                                                  &wanted);
            if (spare
                    ? best.range == NULL || !gs_chunk_is_alone(&best.range->chunks[best.index])
                    : equal > best.equal)
                best = (struct place){range, i, equal};
        }
    }
    if (best.range != NULL) {
        best.range->chunks[best.index].moving = true;
        best.range->moving++;
    }
    return best;
}

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

/* --- a chunk that another job has --- */

/* under the lock: whether the memory of the one job may be the chunk's of the other */
static bool job_serves(const struct gs_job *job, const struct gs_job *by)
{
    return job->range->life == GS_RANGE_LIVE && gs_handover_suits(job->range) &&
           gs_handover_serves(job->range, by->chunk->network);
}

/* The job with which to change chunks, whose hashes are known and whose copies are not queued yet.
 * *gain: more blocks than that are equal then; in and out. NULL: there is none. */
static struct gs_job *find_job(struct gs_mover *mover, const struct gs_job *job, int *gain)
{
    struct gs_job *best = NULL;

    for (unsigned i = mover->queued; i < mover->count; i++) {
        struct gs_job *other = gs_mover_job(mover, i);
        int more;

        if (other->stage != GS_JOB_HASHING || other->bytes != job->bytes ||
            !GS_WITH_MEMORY(job_serves(other, job) && job_serves(job, other)))
            continue;
        more = (int)(count_equal(other, job) + count_equal(job, other)) -
               (int)(count_equal(other, other) + count_equal(job, job));
        if (more > *gain) {
            *gain = more;
            best = other;
        }
    }
    return best;
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

/* --- all --- */

static CUresult match_job(struct gs_mover *mover, struct gs_job *job)
{
    const unsigned equal = count_equal(job, job);
    const struct place best = find_place(job, equal, false);
    int gain = best.range != NULL ? (int)(best.equal - equal) : 0;
    struct gs_job *other = find_job(mover, job, &gain);

    if (equal != 0 || gain != 0)
        mover->match.misses = 0;
    else if (mover->match.misses < PATIENCE)
        mover->match.misses++;
    if (other != NULL && best.range != NULL)
        let_go(best.range, best.index);
    if (other != NULL)
        return swap_jobs(job, other);
    return best.range != NULL ? move_job(job, best.range, best.index) : CUDA_SUCCESS;
}

CUresult gs_match_jobs(struct gs_mover *mover)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = mover->queued; i < mover->count && result == CUDA_SUCCESS; i++)
        result = gs_mover_await_hashes(mover, gs_mover_job(mover, i));
    for (unsigned i = mover->queued; i < mover->count && result == CUDA_SUCCESS; i++)
        if (gs_mover_job(mover, i)->stage == GS_JOB_HASHING)
            result = match_job(mover, gs_mover_job(mover, i));
    /* memory that holds nothing of use leaves a chunk that others hold */
    for (unsigned i = mover->queued; i < mover->count && result == CUDA_SUCCESS; i++) {
        struct gs_job *job = gs_mover_job(mover, i);
        struct place spare;

        if (job->stage != GS_JOB_HASHING || gs_chunk_is_alone(job->chunk) ||
            count_equal(job, job) != 0)
            continue;
        spare = find_place(job, 0, true);
        if (spare.range != NULL)
            result = move_job(job, spare.range, spare.index);
    }
    return result;
}
