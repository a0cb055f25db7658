/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_copy.h: one chunk under way. Shared by swap.c, swap_mover.c (which chunks move, and in
 * which order) and swap_copy.c (the chunk's bytes). No other file includes it.
 */
#ifndef GS_RUNTIME_SWAP_SWAP_COPY_H
#define GS_RUNTIME_SWAP_SWAP_COPY_H

#include "runtime/swap/kernels.h"
#include "runtime/host/host.h"
#include "runtime/range/range.h"

enum gs_job_stage {
    GS_JOB_CHOSEN,  /* out: nothing is known about its contents */
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
    bool zero;                /* out: it holds only zeros, or nothing that is kept */
    CUevent hashed, done;     /* the events of this place in the ring; kept from job to job */
    bool marked;              /* HASHING: `hashed` was recorded behind the kernel */
    bool compares;            /* out: the hashes of the host copy are valid */
    uint64_t (*hashes)[2];    /* host memory that the device writes; NULL: not hashed, for
                                 example because of more than GS_HASH_MOST blocks */
    CUdeviceptr hashes_there; /* their address on the device */
};

/* Queues copies of the blocks that have changed since the host copy was made (if there are
 * hashes, they have arrived). CUDA_ERROR_OUT_OF_MEMORY: there is no host memory. Copies that
 * were queued before an error may still be under way. */
CUresult gs_job_copy_out(struct gs_job *job, CUstream stream);

/* The copies have arrived: the host copy is good from now on. */
void gs_job_copied_out(struct gs_job *job);

/* Queues the copies to the chunk's memory, which has been mapped. */
CUresult gs_job_copy_in(struct gs_job *job, CUstream stream);

#endif
