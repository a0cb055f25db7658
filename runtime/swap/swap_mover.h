/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_mover.h: a mover is a ring of jobs in one context. Shared by swap.c (what is done with the
 * jobs) and swap_mover.c (which chunks they are for, and when they end). No other file includes
 * it. Client thread.
 */
#pragma once

#include "runtime/swap/swap_copy.h"

#define GS_MOVER_RING 64u /* jobs */
#define GS_HASH_STREAMS                                                                        \
    8u /* a chunk of 20 MiB keeps 10 processors busy for 0.14 ms; an H200 has 132 */

struct gs_mover {
    struct gs_device *device;
    struct gs_context *context;
    CUstream copies;
    CUstream hashes[GS_HASH_STREAMS]; /* hashing must not wait for copies */
    unsigned first, count, queued;
    uint64_t bytes, queued_bytes;
    unsigned heard; /* looks for news since the oldest job became the oldest */
    struct {
        unsigned misses; /* pieces one after the other that held nothing of use: match.c */
        unsigned passed; /* pieces since then */
    } match;
    bool out;
    uint64_t (*results)[GS_HASH_MOST][2];
    CUdeviceptr results_there;
    struct gs_job jobs[GS_MOVER_RING];
};

/* The i-th job, counted from the oldest. */
static inline struct gs_job *gs_mover_job(struct gs_mover *mover, unsigned i)
{
    return &mover->jobs[(mover->first + i) % GS_MOVER_RING];
}

/* Makes a context of the device current, and prepares its mover. NULL: there is none, and no
 * context is current. */
struct gs_mover *gs_mover_enter(struct gs_device *device);
void gs_mover_leave(void);

/* Adds a job for one more chunk that may go in the mover's direction, with at most limit bytes
 * on the way in. blind: what memory that comes with it holds will not be looked at. False: there is
 * none. */
bool gs_mover_choose(struct gs_mover *mover, uint64_t limit, bool blind);

/* Under gs_memory_lock: no other program is known to hold it; or it has no contents. */
static inline bool gs_chunk_is_alone(const struct gs_chunk *chunk)
{
    return chunk->host == NULL || chunk->host->held == 0;
}

/* Under gs_memory_lock: starts to choose among all of the device's ranges again. */
void gs_mover_look_anew(const struct gs_mover *mover);

/* Records the event behind the work that the stream has so far; makes the event if it is NULL. */
CUresult gs_mover_mark(CUevent *event, CUstream stream);

/* Waits for all hashing, known or not. */
CUresult gs_mover_end_hashing(const struct gs_mover *mover);

/* Waits for the hashes of the job, if they are on their way: for the kernel, which reads the chunk until
 * it ends, whether its result is known or not. */
CUresult gs_mover_await_hashes(const struct gs_mover *mover, const struct gs_job *job);

/* Ends the job; `state` is the new state of its chunk. */
void gs_mover_settle(struct gs_job *job, uint8_t state);

/* Takes the oldest job, which is settled, out of the ring. */
void gs_mover_drop_first(struct gs_mover *mover);
