/* SPDX-License-Identifier: Apache-2.0
 *
 * moving.h: moves memory towards the targets. Client thread only.
 */
#pragma once

#include "runtime/base/base.h"

/* Of the time in which a program lacks memory in its turns and gets no more (moving.c): after it calls
 * fail with CUDA_ERROR_OUT_OF_MEMORY. */
#define GS_SHORT_LIMIT_NS 60000000000ull
/* ... after it what is missing goes beyond the card: if that is full (longer than others' memory takes
 * to become free once they have left), and if others have the room (longer than most kernels) */
#define GS_BEYOND_NS       5000000000ull
#define GS_BEYOND_LATER_NS 30000000000ull

/* Does one step on every device. stopped: the gate is closed and the GPU at rest. may_leave:
 * memory may move out, since the process goes on. news: a descriptor that becomes readable when
 * the daemon has sent something, or -1. True: there may be more to do at once. */
bool gs_moving_step(uint64_t now, bool stopped, bool may_leave, int news);

/* The gate is open: everything that was being moved has arrived. */
void gs_moving_arrived(void);

/* Prepares the host memory that may be needed, and releases the rest. needed: another program
 * waits for the device. quiet: nothing that was submitted runs, as far as is known; the driver would wait
 * for it to release registered memory. If that is never so, memory is released after 30 s. No memory moves now. Returns ns until there is more to do. */
uint64_t gs_moving_keep_host(uint64_t now, bool needed, bool quiet);
