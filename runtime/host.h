/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: host memory for what is not on the device.
 */
#ifndef GS_RUNTIME_HOST_H
#define GS_RUNTIME_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct gs_host_block {
    void *memory;
    uint64_t bytes;
    bool registered; /* page-locked for the bus's full rate; without it copies are slower, not
                        wrong */
};

/* bytes of host memory, touched and registered with the current context. NULL: the machine is
 * short of memory (a floor is kept free, so that this never wakes the OOM killer). Client
 * thread. */
struct gs_host_block *gs_host_get(uint64_t bytes);

/* Bytes of host memory that this process has from gs_host_get(); any thread. */
uint64_t gs_host_used(void);
/* ... that it would have if it had got all it asked for since it last got something; any
 * thread. */
uint64_t gs_host_wanted(void);
/* The most it may have from now on, bytes; UINT64_MAX: no limit. What it has already is not
 * taken away. Any thread. */
void gs_host_set_budget(uint64_t bytes);

void gs_host_after_fork(void);

/* Takes NULL. */
void gs_host_put(struct gs_host_block *block);

#endif
