/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_mover.c: owns the movers: makes them ready in a context, chooses chunks for them, and
 * ends their jobs.
 *
 * State: the movers (of gs_context), client thread only. The client thread is the only one that
 * changes a live chunk's state: it chooses chunks under gs_memory_lock and works on them
 * without it. Invariant: a chunk is `moving` exactly while a job has it.
 */
#include "runtime/swap/swap_mover.h"
#include "runtime/range/discard.h"
#include "runtime/range/handover.h"
#include "runtime/range/vmm.h"

static bool make_stream(CUstream *stream)
{
    return *stream != NULL ||
           gs_driver.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

/* Returns the context that has something under way, or else any. */
static struct gs_context *context_to_use(const struct gs_device *device)
{
    struct gs_context *context;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++)
        if (context->handle != NULL && context->device == device && context->mover != NULL &&
            context->mover->count != 0)
            return context;
    return gs_context_for(device);
}

struct gs_mover *gs_mover_enter(struct gs_device *device)
{
    struct gs_context *context = context_to_use(device);
    struct gs_mover *mover;
    bool made;

    if (context == NULL || gs_driver.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return NULL;
    if (context->mover == NULL)
        context->mover = calloc(1, sizeof *mover);
    mover = context->mover;
    made = mover != NULL && make_stream(&mover->copies);
    for (unsigned i = 0; i < GS_HASH_STREAMS && made; i++)
        made = make_stream(&mover->hashes[i]);
    if (made) {
        mover->device = device;
        mover->context = context;
        if (gs_kernels_ready(context) && mover->results == NULL)
            mover->results = gs_hash_results(GS_MOVER_RING, &mover->results_there);
        return mover;
    }
    gs_context_pop();
    return NULL;
}

void gs_mover_leave(void)
{
    gs_context_pop();
}

/* --- choosing --- */

/* Passes over the ranges. Chunks whose contents other programs may hold go first, both ways: so memory
 * that is handed over comes to chunks that it serves before it must be used for others. On the way out
 * the rest of those that were out before is next, so that the same ones go every time and their
 * host copies are of use; what changes from turn to turn goes last. On the way in memory that nobody
 * looks at, new memory too, goes first to chunks that others do not hold. */
enum sweep { FIRST, SECOND, THIRD, ANY, SWEEPS };

struct wanted {
    bool out;
    uint64_t most;  /* in: bytes */
    uint64_t exact; /* in: the bytes of memory that was handed over; 0: there is none */
    bool blind;     /* in: nobody looks at that memory */
};

static bool chunk_suits(const struct gs_range *range, uint32_t index,
                        const struct wanted *wanted, unsigned sweep)
{
    const struct gs_chunk *chunk = &range->chunks[index];
    const uint64_t bytes = gs_range_chunk_bytes(range, index);

    if (chunk->moving || chunk->adrift || (chunk->state == GS_CHUNK_RESIDENT) != wanted->out ||
        chunk->state == GS_CHUNK_LOOSE || chunk->state == GS_CHUNK_AWAY ||
        chunk->state == GS_CHUNK_OVER)
        return false;
    if (wanted->out)
        return sweep == ANY ||
               (sweep == FIRST ? !gs_chunk_is_alone(chunk)
                               : !chunk->changes && (sweep == THIRD || chunk->host != NULL));
    if (bytes > wanted->most || (sweep == FIRST && gs_chunk_is_alone(chunk) != wanted->blind))
        return false;
    return wanted->exact == 0 || (bytes == wanted->exact && chunk->state == GS_CHUNK_HOST &&
                                  gs_handover_suits(range));
}

/* under the lock: the next chunk from the cursor on that may move */
static struct gs_range *next_chunk(struct gs_device *device, const struct wanted *wanted,
                                   uint32_t *index)
{
    for (; device->sweep.pass < SWEEPS;
         device->sweep.pass++, device->sweep.cursor = device->ranges)
        for (; device->sweep.cursor != NULL;
             device->sweep.cursor = device->sweep.cursor->next) {
            struct gs_range *range = device->sweep.cursor;

            if (range->life != GS_RANGE_LIVE || !gs_range_is_needed(range) || range->pinned)
                continue;
            for (uint32_t i = 0; i < range->chunk_count; i++)
                if (chunk_suits(range, i, wanted, device->sweep.pass)) {
                    *index = i;
                    return range;
                }
        }
    return NULL;
}

void gs_mover_look_anew(const struct gs_mover *mover)
{
    mover->device->sweep.cursor = mover->device->ranges;
    mover->device->sweep.pass = FIRST;
}

/* under the lock: from the cursor on, then from the start, where others may have appeared */
static struct gs_range *find_chunk(const struct gs_mover *mover, const struct wanted *wanted,
                                   uint32_t *index)
{
    struct gs_range *range = NULL;

    if (mover->device->sweep.exact != wanted->exact ||
        mover->device->sweep.blind != wanted->blind)
        gs_mover_look_anew(mover);
    mover->device->sweep.exact = wanted->exact;
    mover->device->sweep.blind = wanted->blind;
    for (unsigned attempt = 0; attempt < 2 && range == NULL; attempt++) {
        range = next_chunk(mover->device, wanted, index);
        if (range == NULL)
            gs_mover_look_anew(mover);
    }
    return range;
}

/* under the lock: a chunk for a piece in hand, if there is one for any of them; else any */
static struct gs_range *find_incoming(const struct gs_mover *mover, struct wanted *wanted,
                                      uint32_t *index)
{
    struct gs_range *range = NULL;
    uint64_t bytes, last = 0;

    for (unsigned i = 0; range == NULL && (bytes = gs_handover_bytes(mover->device, i)) != 0;
         i++) {
        wanted->exact = bytes;
        if (bytes != last)
            range = find_chunk(mover, wanted, index);
        last = bytes;
    }
    wanted->exact = 0;
    wanted->blind = true;
    return range != NULL ? range : find_chunk(mover, wanted, index);
}

bool gs_mover_choose(struct gs_mover *mover, uint64_t limit, bool blind)
{
    struct wanted wanted = {.out = mover->out, .most = limit, .blind = blind};
    struct gs_job *job = gs_mover_job(mover, mover->count);
    struct gs_range *range;
    uint64_t skipped = 0;
    uint32_t index = 0;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range =
        mover->out ? find_chunk(mover, &wanted, &index) : find_incoming(mover, &wanted, &index);
    if (range != NULL) {
        range->chunks[index].moving = true;
        skipped = mover->out ? gs_discard_now(&range->chunks[index]) : 0;
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
    job->skipped = skipped;
    job->hashes = NULL;
    mover->count++;
    mover->bytes += job->bytes;
    return true;
}

/* Chunk state and accounts change together: a range that was freed meanwhile has been taken out
 * of `missing` as it was at that moment (gs_range_end_life). */
void gs_mover_settle(struct gs_job *job, uint8_t state)
{
    struct gs_device *device = job->range->device;
    bool needed;

    if (state == GS_CHUNK_RESIDENT)
        gs_vmm_close(job->range, job->index);
    GS_HOLD_MEMORY;
    needed = job->range->life == GS_RANGE_LIVE && gs_range_is_needed(job->range);
    if (state != job->chunk->state && state == GS_CHUNK_RESIDENT) {
        device->accounts.resident += job->bytes;
        device->accounts.missing -= needed ? job->bytes : 0;
    } else if (job->chunk->state == GS_CHUNK_RESIDENT && state != GS_CHUNK_RESIDENT) {
        device->accounts.resident -= job->bytes;
        device->accounts.missing += needed ? job->bytes : 0;
    }
    job->chunk->state = state;
    job->chunk->moving = false;
    job->range->moving--;
}

void gs_mover_drop_first(struct gs_mover *mover)
{
    const struct gs_job *job = gs_mover_job(mover, 0);

    mover->heard = 0;
    mover->bytes -= job->bytes;
    if (job->stage == GS_JOB_COPYING) {
        mover->queued--;
        mover->queued_bytes -= job->bytes;
    }
    mover->first = (mover->first + 1) % GS_MOVER_RING;
    mover->count--;
}

CUresult gs_mover_end_hashing(const struct gs_mover *mover)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < GS_HASH_STREAMS; i++) {
        const CUresult ended = GS_TRY_AGAIN(gs_driver.cuStreamSynchronize(mover->hashes[i]));

        result = ended != CUDA_SUCCESS ? ended : result;
    }
    return result;
}

CUresult gs_mover_await_hashes(const struct gs_mover *mover, const struct gs_job *job)
{
    if (job->stage != GS_JOB_HASHING ||
        (job->marked && gs_driver.cuEventSynchronize(job->hashed) == CUDA_SUCCESS))
        return CUDA_SUCCESS;
    return gs_mover_end_hashing(mover); /* one call's failure says nothing about the kernel */
}

CUresult gs_mover_mark(CUevent *event, CUstream stream)
{
    if (*event == NULL &&
        gs_driver.cuEventCreate(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        *event = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return gs_driver.cuEventRecord(*event, stream);
}
