/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.h: the memory of this process that other processes have open (CUDA IPC). Each of them
 * has one end of a line, a pair of sockets. It keeps that end open for as long as it has the
 * memory mapped, so the memory stays in place until then. When the program frees the memory, the
 * line ends for reading at the other side: nobody opens the memory anew then.
 */
#ifndef GS_RUNTIME_RANGE_SHARES_H
#define GS_RUNTIME_RANGE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/range/range.h"

struct gs_share;

/* Begins a share of the allocation with that token, in the range, with one more process. The
 * other end of its line is in *theirs, the caller's. *error: 0; or, with NULL, -ENOENT: it is
 * freed; -EIO: out of memory or descriptors. Client thread, between gs_handover_begin() and _end(). */
struct gs_share *gs_share_begin(struct gs_range *range, const uint8_t token[16], int *theirs,
                                int *error);

/* Ends it: the other process did not get it. Client thread. */
void gs_share_end(struct gs_share *share);

/* Ends the shares whose other side has closed its end, or has died. Client thread. */
void gs_shares_look(void);

/* True if another process has memory of this one open. Client thread. */
bool gs_shares_any(void);

/* True if another process has ever opened memory of this one: it will open more. Any thread. */
bool gs_shares_begun(void);

/* True for a moment after memory that was shared has been freed, or has become the program's alone:
 * the daemon's figures do not know of it yet, so an allocation that seems too large may fit soon.
 * Any thread. */
bool gs_shares_unsettled(void);

/* Under gs_memory_lock: the program has freed the allocation with that token, or (NULL) the whole
 * range. Tells those that have it open. */
void gs_shares_freed(const struct gs_range *range, const uint8_t *token);

void gs_shares_after_fork(void);

#endif
