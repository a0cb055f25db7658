/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_copy.h: one chunk under way. Shared by swap.c, swap_mover.c (which chunks move, and in
 * which order) and swap_copy.c (the chunk's bytes). No other file includes it.
 */
#pragma once

#include "lockd/protocol/wire.h"
#include "runtime/swap/kernels.h"
#include "runtime/range/host.h"
#include "runtime/range/range.h"

enum gs_job_stage {
    GS_JOB_CHOSEN,  /* nothing is known about what its memory holds */
    GS_JOB_HASHING, /* its hashes are on their way; in: its memory comes from another program */
    GS_JOB_COPYING, /* its copies have been queued */
};

struct gs_job {
    struct gs_range *range;
    struct gs_chunk *chunk;
    uint32_t index;
    enum gs_job_stage stage;
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t copied;            /* bytes that cross the bus */
    struct gs_wire_saved saved; /* bytes that need not */
    uint64_t skipped;           /* out: blocks whose contents are given up (discard.h) */
    bool zero;                  /* out: it holds only zeros, or nothing that is kept */
    CUevent hashed, done;       /* the events of this place in the ring; kept from job to job */
    bool marked;                /* HASHING: `hashed` was recorded behind the kernel */
    bool compares;              /* out: the hashes of the host copy are valid */
    uint64_t (*hashes)[2];      /* of what its memory holds: host memory that the device writes;
                                 NULL: not hashed, for example because of more than GS_HASH_MOST
                                 blocks */
    CUdeviceptr hashes_there;   /* their address on the device */
};

/* Queues copies of the blocks that have changed since the host copy was made (if there are
 * hashes, they have arrived). CUDA_ERROR_OUT_OF_MEMORY: there is no host memory. Copies that
 * were queued before an error may still be under way. */
CUresult gs_job_copy_out(struct gs_job *job, CUstream stream);

/* The copies have arrived: the host copy is good from now on. */
void gs_job_copied_out(struct gs_job *job);

/* Queues the copies to the chunk's memory, which has been mapped. If there are hashes of what it
 * holds, they have arrived, and blocks that hold the chunk's bytes already are left as they are. */
CUresult gs_job_copy_in(struct gs_job *job, CUstream stream);

/* Counts what was copied, and what was not. */
void gs_job_count(const struct gs_job *job, bool out);

/* The number of blocks, zeros left out, of which the chunk has the contents that these hashes
 * describe, in their places. *wanted: of which it has contents. */
unsigned gs_chunk_equal_blocks(const struct gs_chunk *chunk, uint64_t bytes,
                               const uint64_t (*hashes)[2], unsigned *wanted);
