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

/* One step on every device. stopped: the gate is closed and the GPU at rest; may_leave: and
 * memory is worth saving (the process goes on); news: a descriptor that becomes readable when
 * the daemon has something to say, or -1. True: there may be more to do at once. */
bool gs_moving_step(uint64_t now, bool stopped, bool may_leave, int news);

/* The gate is open: all that moved has arrived. */
void gs_moving_arrived(void);

/* Makes ready what host memory may be needed, and gives back what is not needed any more
 * (needed: somebody waits for the device). Nothing moves now. Returns ns until there is more to
 * do. */
uint64_t gs_moving_keep_host(uint64_t now, bool needed);

#endif
