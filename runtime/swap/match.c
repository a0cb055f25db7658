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

bool gs_match_is_due(struct gs_mover *mover)
{
    return mover->match.misses < PATIENCE || ++mover->match.passed % LOOK == 0;
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

static void let_go(struct gs_range *range, uint32_t index)
{
    GS_WITH_MEMORY(range->chunks[index].moving = false; range->moving--);
}

static CUresult move_job(struct gs_job *job, struct gs_range *range, uint32_t index)
{
    struct gs_chunk *from = job->chunk, *to = &range->chunks[index];

    if (gs_vmm_unmap(job->range, job->index) != CUDA_SUCCESS) {
        let_go(range, index);
        return CUDA_SUCCESS; /* it serves where it is */
    }
    to->handle = from->handle;
    to->sendable = from->sendable;
    to->network = from->network;
    to->descriptor = from->descriptor;
    from->descriptor = 0;
    let_go(job->range, job->index);
    job->range = range;
    job->chunk = to;
    job->index = index;
    job->address = gs_range_chunk_address(range, index);
    return gs_vmm_map(range, index);
}

CUresult gs_match_job(struct gs_mover *mover, struct gs_job *job)
{
    const struct found best = find_place(job);

    if (best.equal != 0)
        mover->match.misses = 0;
    else if (mover->match.misses < PATIENCE)
        mover->match.misses++;
    return best.range != NULL ? move_job(job, best.range, best.index) : CUDA_SUCCESS;
}
