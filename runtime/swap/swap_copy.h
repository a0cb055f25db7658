/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_copy.h: one chunk under way, between swap.c, swap_mover.c (what, in which order) and
 * swap_copy.c (its bytes). Nobody else includes it.
 */
#ifndef GS_RUNTIME_SWAP_SWAP_COPY_H
#define GS_RUNTIME_SWAP_SWAP_COPY_H

#include "runtime/swap/kernels.h"
#include "runtime/host/host.h"
#include "runtime/range/range.h"

enum gs_job_stage {
    GS_JOB_CHOSEN,  /* out: nothing is known about it */
    GS_JOB_HASHING, /* out: its hashes are on their way */
    GS_JOB_COPYING, /* its copies have been queued */
};

struct gs_job {
    struct gs_range *range;
    struct gs_chunk *chunk;
    uint32_t index;
    enum gs_job_stage stage;
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t copied;          /* bytes that cross the bus */
    uint64_t skipped;         /* out: blocks whose contents are given up (discard.h) */
    bool zero;                /* out: nothing but zeros in it, or nothing that is kept */
    CUevent hashed, done;     /* of the job's place in the ring; kept */
    bool marked;              /* HASHING: `hashed` is behind the kernel */
    bool compares;            /* out: the host copy's hashes are those of what it holds */
    uint64_t (*hashes)[2];    /* host memory that the device writes; NULL: no hashing (more than
                                 GS_HASH_MOST blocks, say) */
    CUdeviceptr hashes_there; /* their address on the device */
};

/* Queues the copies of what has changed since the host copy was made (the hashes, if there are
 * any, have arrived). CUDA_ERROR_OUT_OF_MEMORY: no host memory. Copies that were queued before
 * an error may still be under way. */
CUresult gs_job_copy_out(struct gs_job *job, CUstream stream);

/* The copies have arrived: the host copy is good from now on. */
void gs_job_copied_out(struct gs_job *job);

/* Queues the copies to the chunk's memory, which has been mapped. */
CUresult gs_job_copy_in(struct gs_job *job, CUstream stream);

#endif
