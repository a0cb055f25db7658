/* SPDX-License-Identifier: Apache-2.0
 *
 * hostmem.h: how much memory this machine has left.
 */
#ifndef GS_LOCKD_BASE_HOSTMEM_H
#define GS_LOCKD_BASE_HOSTMEM_H

#include <stdint.h>

/* Bytes that can be had without swapping (MemAvailable); UINT64_MAX when it cannot be read. */
uint64_t lockd_host_available(void);
/* The same from a text in the form of /proc/meminfo. */
uint64_t lockd_host_parse(const char *meminfo);

#endif
