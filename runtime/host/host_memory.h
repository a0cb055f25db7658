/* SPDX-License-Identifier: Apache-2.0
 *
 * host_memory.h: how much memory the machine has, and getting pieces of it. No state.
 */
#ifndef GS_RUNTIME_HOST_HOST_MEMORY_H
#define GS_RUNTIME_HOST_HOST_MEMORY_H

#include <stdint.h>

#define GS_HOST_FLOOR (512ull << 20) /* bytes of what is left that stay untouched */

/* Bytes that can be taken without swapping: MemAvailable, or what the process's cgroups leave,
 * where that is less. UINT64_MAX: not known. */
uint64_t gs_host_left(void);
/* The same for memory that the process maps, which its own limits (ulimit -v, -d) bound too. */
uint64_t gs_host_available(void);

/* bytes of anonymous memory, by huge pages where there are any, every page touched by several
 * threads, on the NUMA node (-1: any) as far as it has some. Forked children do not get it.
 * NULL: no. */
char *gs_host_map(uint64_t bytes, int node);
void gs_host_unmap(char *memory, uint64_t bytes);

#endif
