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

/* Takes NULL. */
void gs_host_put(struct gs_host_block *block);

#endif
