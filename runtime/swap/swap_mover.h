/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_mover.h: a mover is a ring of jobs in one context. Between swap.c (what is done with
 * them) and swap_mover.c (which chunks they are, and when they end). Nobody else includes it.
 * Client thread.
 */
#ifndef GS_RUNTIME_SWAP_SWAP_MOVER_H
#define GS_RUNTIME_SWAP_SWAP_MOVER_H

#include "runtime/base/device.h"
#include "runtime/swap/swap_copy.h"

#define GS_MOVER_RING 64u /* jobs */

struct gs_mover {
    struct gs_device *device;
    struct gs_context *context;
    CUstream copies, hashes; /* hashing must not wait for copies */
    unsigned first, count, queued;
    uint64_t bytes, queued_bytes;
    unsigned heard; /* looks at news since the oldest job is the oldest */
    bool out;
    uint64_t (*results)[GS_HASH_MOST][2];
    CUdeviceptr results_there;
    struct gs_job jobs[GS_MOVER_RING];
};

/* The i-th job from the oldest on. */
static inline struct gs_job *gs_mover_job(struct gs_mover *mover, unsigned i)
{
    return &mover->jobs[(mover->first + i) % GS_MOVER_RING];
}

/* Makes a context of the device current, and its mover ready; NULL: there is none (and nothing
 * is current). */
struct gs_mover *gs_mover_enter(struct gs_device *device);
void gs_mover_leave(void);

/* Takes one more chunk that may go the mover's way, of at most limit bytes on the way in.
 * False: there is none. */
bool gs_mover_choose(struct gs_mover *mover, uint64_t limit);

/* Under gs_memory_lock: chooses among all of the device's ranges again. */
void gs_mover_look_anew(const struct gs_mover *mover);

/* Records the event, which is made if it is NULL, behind what the stream has so far. */
CUresult gs_mover_mark(CUevent *event, CUstream stream);

/* The job ends; state: its chunk's from now on. */
void gs_mover_settle(struct gs_job *job, uint8_t state);

/* The oldest job, settled, leaves the ring. */
void gs_mover_drop_first(struct gs_mover *mover);

#endif
