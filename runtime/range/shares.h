/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: the list of the memory of this process that other processes have open (CUDA IPC).
 * Each of them has one end of a line, a pair of sockets. It keeps that end open for as long as
 * it has the memory mapped, so the memory stays in place until then. When the program frees the
 * memory, the line ends for reading at the other side: nobody opens the memory anew then.
 * memory/exports.c begins and ends shares.
 */
#pragma once

#include "runtime/range/range.h"

struct gs_share {
    struct gs_share *next;
    struct gs_own_fd line; /* our end */
    CUdeviceptr base;      /* of the range */
    uint64_t id;           /* of the range; its address may be another range's by then */
    uint8_t token[16];     /* of the allocation */
};

/* Makes a share that is in no list; the other end of its line is in *theirs. NULL: out of memory or
 * descriptors. No thread forks meanwhile. */
struct gs_share *gs_share_new(const uint8_t token[16], int *theirs);
void gs_share_free(struct gs_share *share);

/* Under gs_memory_lock, client thread. */
void gs_share_link(struct gs_share *share, const struct gs_range *range);
void gs_share_unlink(struct gs_share *share);

/* A share whose other side has closed its end, or has died; NULL: none. Client thread. */
struct gs_share *gs_shares_ended(void);

/* True if another process has memory of this one open. Client thread. */
bool gs_shares_any(void);

/* True if another process has ever opened memory of this process: it will open more. Any thread. */
bool gs_shares_begun(void);

/* True for a moment after memory that was shared has been freed, or has become the program's
 * alone: the daemon's figures do not know of it yet, so an allocation that seems too large may
 * fit soon. Any thread. */
bool gs_shares_unsettled(void);

/* Under gs_memory_lock: the program has freed the allocation with that token, or (NULL) the whole
 * range. Tells those that have it open. */
void gs_shares_freed(const struct gs_range *range, const uint8_t *token);

void gs_shares_after_fork(void);
