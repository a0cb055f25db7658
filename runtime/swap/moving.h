/* SPDX-License-Identifier: Apache-2.0
 *
 * moving.h: moves memory towards the targets. Client thread only.
 */
#ifndef GS_RUNTIME_SWAP_MOVING_H
#define GS_RUNTIME_SWAP_MOVING_H

#include <stdbool.h>
#include <stdint.h>

/* Calls that wait for memory fail with CUDA_ERROR_OUT_OF_MEMORY after this time. */
#define GS_SHORT_LIMIT_NS 60000000000ull

/* Does one step on every device. stopped: the gate is closed and the GPU at rest. may_leave:
 * memory may move out, since the process goes on. news: a descriptor that becomes readable when
 * the daemon has sent something, or -1. True: there may be more to do at once. */
bool gs_moving_step(uint64_t now, bool stopped, bool may_leave, int news);

/* The gate is open: everything that was being moved has arrived. */
void gs_moving_arrived(void);

/* Prepares the host memory that may be needed, and releases the rest. needed: another program
 * waits for the device. No memory moves now. Returns ns until there is more to do. */
uint64_t gs_moving_keep_host(uint64_t now, bool needed);

#endif
