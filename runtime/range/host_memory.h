/* SPDX-License-Identifier: Apache-2.0
 *
 * host_memory.h: the memory that the machine has left, and allocation of it. No state.
 */
#pragma once

#include "runtime/base/base.h"

#define GS_HOST_FLOOR (512ull << 20) /* bytes of the remaining memory that stay untouched */

/* Bytes that can be taken without swapping: MemAvailable, or the remainder of the process's
 * cgroups if that is less. UINT64_MAX: not known. */
uint64_t gs_host_left(void);
/* The same for memory that the process maps, which its own limits (ulimit -v, -d) bound as well. */
uint64_t gs_host_available(void);

/* Bytes that its own limits alone leave; UINT64_MAX: it has none. */
uint64_t gs_host_limits(void);

/* Maps bytes of anonymous memory, with huge pages if there are any. Several threads touch every
 * page, on the NUMA node (-1: any) as far as that has memory. Forked children do not get it.
 * NULL: there is no such memory. */
char *gs_host_map(uint64_t bytes, int node);
/* Copies, by several threads if it is much; source NULL: only touches the memory. */
void gs_host_copy(char *memory, const char *source, uint64_t bytes);
void gs_host_unmap(char *memory, uint64_t bytes);
