/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_copy.c: copies the bytes of one chunk: decides which of its blocks must cross the bus, and
 * in what pieces. No state. Client thread only.
 */
#include "runtime/swap/swap_copy.h"
#include "runtime/range/backend.h"
#include "runtime/range/host_file.h"
#include "runtime/range/host_memory.h"
#include "runtime/swap/common.h"

_Static_assert(GS_LARGE_CHUNK_BYTES <= GS_HASH_MOST * GS_BLOCK_BYTES, "they are hashed");

static unsigned blocks_of(uint64_t bytes)
{
    return (unsigned)((bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES);
}

static uint64_t block_from(const struct gs_job *job, unsigned block)
{
    const uint64_t from = block * GS_BLOCK_BYTES;

    return from < job->bytes ? from : job->bytes;
}

static bool is_zero(const uint64_t *hash)
{
    return (hash[0] | hash[1]) == 0;
}

static bool is_same(const uint64_t *hash, const uint64_t *other)
{
    return hash[0] == other[0] && hash[1] == other[1];
}

/* --- the file --- */

static CUresult through_file(const struct gs_job *job, uint64_t from, uint64_t bytes, bool out,
                             CUstream stream)
{
    const struct gs_host_block *host = job->chunk->host;
    char *buffer = gs_host_file_buffer();

    for (uint64_t at = 0; at < bytes; at += GS_HOST_FILE_PIECE) {
        const uint64_t piece =
            bytes - at < GS_HOST_FILE_PIECE ? bytes - at : GS_HOST_FILE_PIECE;
        const uint64_t offset = host->offset + from + at;
        const CUdeviceptr address = job->address + from + at;
        int error = out ? 0 : gs_host_file_move(offset, buffer, piece, false);
        CUresult result = CUDA_SUCCESS;

        if (error == 0)
            result = out ? gs_driver.cuMemcpyDtoHAsync_v2(buffer, address, piece, stream)
                         : gs_driver.cuMemcpyHtoDAsync_v2(address, buffer, piece, stream);
        if (error == 0 && result == CUDA_SUCCESS)
            result = gs_driver.cuStreamSynchronize(stream);
        if (result != CUDA_SUCCESS)
            return result;
        if (error == 0 && out)
            error = gs_host_file_move(offset, buffer, piece, true);
        if (error != 0) {
            gs_log("the spill file: %s", strerror(-error));
            return CUDA_ERROR_OUT_OF_MEMORY; /* an error of the spill file: tried again later */
        }
    }
    return CUDA_SUCCESS;
}

/* --- common memory --- */

/* While one half of the stage is copied to the card, the other is filled. */
static CUresult through_stage(const struct gs_job *job, uint64_t from, uint64_t bytes,
                              CUstream stream)
{
    const char *source = job->chunk->host->memory + from;
    const uint64_t half = GS_COMMON_STAGE / 2;
    char *stage = gs_common_stage(), *buffer = stage;
    CUresult result = CUDA_SUCCESS;

    if (stage == NULL)
        return gs_driver.cuMemcpyHtoDAsync_v2(job->address + from, source, bytes, stream);
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += half) {
        const uint64_t piece = bytes - at < half ? bytes - at : half;

        gs_host_copy(buffer, source + at, piece);
        if (at != 0) /* the other half is free then */
            result = gs_driver.cuStreamSynchronize(stream);
        if (result == CUDA_SUCCESS)
            result =
                gs_driver.cuMemcpyHtoDAsync_v2(job->address + from + at, buffer, piece, stream);
        buffer = buffer == stage ? stage + half : stage;
    }
    return result == CUDA_SUCCESS ? gs_driver.cuStreamSynchronize(stream) : result;
}

/* --- pieces --- */

static CUresult copy_piece(struct gs_job *job, uint64_t from, uint64_t bytes, bool out,
                           CUstream stream)
{
    struct gs_host_block *host = job->chunk->host;

    job->copied += bytes;
    if (host->memory == NULL)
        return through_file(job, from, bytes, out, stream);
    if (gs_host_needs_stage(host))
        return through_stage(job, from, bytes, stream); /* never out: gs_job_copy_out */
    return out ? gs_driver.cuMemcpyDtoHAsync_v2(host->memory + from, job->address + from, bytes,
                                                stream)
               : gs_driver.cuMemcpyHtoDAsync_v2(job->address + from, host->memory + from, bytes,
                                                stream);
}

enum need { COPY, CLEAR, ZERO, UNCHANGED, EQUAL }; /* the last three need nothing */

/* a bit for each of the first blocks: its contents are given up */
static bool has_bit(uint64_t mask, unsigned block)
{
    return block < 64 && (mask >> block & 1) != 0;
}

/* what a block of the chunk needs; any block, hashed or not */
static enum need need_out(const struct gs_job *job, unsigned block)
{
    const struct gs_host_block *host = job->chunk->host;

    if (has_bit(job->skipped, block) || (job->hashes != NULL && is_zero(job->hashes[block])))
        return ZERO;
    return job->compares && is_same(host->hashes[block], job->hashes[block]) ? UNCHANGED : COPY;
}

/* the block comes back as zeros */
static bool is_empty(const struct gs_chunk *chunk, unsigned block)
{
    return chunk->zero || has_bit(chunk->lost, block) ||
           (chunk->host->known && is_zero(chunk->host->hashes[block]));
}

static enum need need_in(const struct gs_job *job, unsigned block)
{
    const struct gs_host_block *host = job->chunk->host;

    if (is_empty(job->chunk, block))
        return job->hashes != NULL && is_zero(job->hashes[block]) ? ZERO : CLEAR;
    return job->hashes != NULL && host->known &&
                   is_same(host->hashes[block], job->hashes[block])
               ? EQUAL
               : COPY;
}

unsigned gs_chunk_equal_blocks(const struct gs_chunk *chunk, uint64_t bytes,
                               const uint64_t (*hashes)[2], unsigned *wanted)
{
    const unsigned count = blocks_of(bytes);
    unsigned equal = 0;

    *wanted = 0;
    for (unsigned i = 0; i < count; i++) {
        if (is_empty(chunk, i))
            continue;
        ++*wanted;
        equal += chunk->host->known && is_same(chunk->host->hashes[i], hashes[i]);
    }
    return equal;
}

/* Calls the driver once for each run of blocks that need the same. */
static CUresult by_runs(struct gs_job *job, bool out, CUstream stream)
{
    enum need (*const need_of)(const struct gs_job *, unsigned) = out ? need_out : need_in;
    const unsigned count = blocks_of(job->bytes);
    CUresult result = CUDA_SUCCESS;

    for (unsigned first = 0, end; first < count && result == CUDA_SUCCESS; first = end) {
        const enum need need = need_of(job, first);
        const uint64_t from = block_from(job, first);
        uint64_t bytes;

        for (end = first + 1; end < count && need_of(job, end) == need;)
            end++;
        bytes = block_from(job, end) - from;
        if (need == COPY)
            result = copy_piece(job, from, bytes, out, stream);
        else if (need == CLEAR)
            result = gs_driver.cuMemsetD8Async(job->address + from, 0, bytes, stream);
        job->saved.zero += need == CLEAR || need == ZERO ? bytes : 0;
        job->saved.unchanged += need == UNCHANGED ? bytes : 0;
        job->saved.equal += need == EQUAL ? bytes : 0;
    }
    return result;
}

CUresult gs_job_copy_out(struct gs_job *job, CUstream stream)
{
    const unsigned count = blocks_of(job->bytes);
    const struct gs_backend *backend = gs_backend_of(job->range);
    struct gs_host_block *host = job->chunk->host;
    unsigned changed = 0;

    job->copied = 0;
    job->saved = (struct gs_wire_saved){0};
    job->zero = true;
    if (backend->send != NULL) {
        job->copied = job->bytes;
        return backend->send(job->range, job->index, stream);
    }
    for (unsigned i = 0; i < count && job->zero; i++)
        job->zero =
            has_bit(job->skipped, i) || (job->hashes != NULL && is_zero(job->hashes[i]));
    if (job->zero) { /* the chunk needs no host memory at all */
        job->saved.zero = job->bytes;
        return CUDA_SUCCESS;
    }
    job->compares = job->hashes != NULL && host != NULL && host->known;
    for (unsigned block = 0; block < count; block++) /* that are not what the host has */
        changed += need_out(job, block) == COPY;
    if (job->compares)
        job->chunk->changes = changed > count / 2;
    if (host != NULL && host->common && changed != 0) { /* nobody can write common memory */
        gs_host_put(host);
        host = job->chunk->host = NULL;
        job->compares = false;
    }
    if (host == NULL)
        host = job->chunk->host = gs_host_get(job->bytes);
    if (host == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host->known = false; /* until all of the chunk has arrived */
    return by_runs(job, true, stream);
}

void gs_job_copied_out(struct gs_job *job)
{
    struct gs_host_block *host = job->chunk->host;

    if (gs_backend_of(job->range)->send != NULL) {
        job->chunk->zero = false;
        return; /* the chunk has no host memory of ours */
    }
    job->chunk->zero = job->zero;
    job->chunk->lost = job->skipped;
    if (job->zero) {
        gs_host_put(host);
        job->chunk->host = NULL;
        return;
    }
    if (job->hashes != NULL)
        memcpy(host->hashes, job->hashes, blocks_of(job->bytes) * sizeof host->hashes[0]);
    for (unsigned i = 0; job->hashes != NULL && i < blocks_of(job->bytes); i++)
        if (has_bit(job->skipped, i)) /* it comes back as zeros */
            memset(host->hashes[i], 0, sizeof host->hashes[i]);
    host->known = job->hashes != NULL;
    if (job->copied != 0) { /* other contents */
        host->found = host->stayed = false;
        host->offers = 0;
    } else {
        host->stayed = true;
    }
}

void gs_job_count(const struct gs_job *job, bool out)
{
    atomic_fetch_add_explicit(out ? &gs_counts.moved_out : &gs_counts.moved_in, job->copied,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&gs_counts.saved.equal, job->saved.equal, memory_order_relaxed);
    atomic_fetch_add_explicit(&gs_counts.saved.zero, job->saved.zero, memory_order_relaxed);
    atomic_fetch_add_explicit(&gs_counts.saved.unchanged, job->saved.unchanged,
                              memory_order_relaxed);
}

CUresult gs_job_copy_in(struct gs_job *job, CUstream stream)
{
    job->copied = 0;
    job->saved = (struct gs_wire_saved){0};
    if (job->chunk->state != GS_CHUNK_HOST)
        return CUDA_SUCCESS;
    if (gs_backend_of(job->range)->send != NULL) {
        job->copied = job->bytes; /* its contents came with its memory */
        return CUDA_SUCCESS;
    }
    return by_runs(job, false, stream);
}
