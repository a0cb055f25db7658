/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h: counts what was routed. Always counted (relaxed atomics, at look-ups only, never at a
 * gated call); names and objects are kept for GPUSHARE_STATS.
 */
#pragma once

#include "runtime/base/base.h"

/* A look-up through cuGetProcAddress was answered. */
void gs_stats_lookup(void);

/* The caller, an address in the object that asked, looked up the driver function of this row
 * (below GS_ROW_COUNT). substituted: it got our wrapper. */
void gs_stats_routed(unsigned row, void *caller, bool substituted);

/* A name that we cover was found, but not in the libcuda that we know (another copy, another
 * namespace). */
void gs_stats_escaped(void);

/* A wrapper was called that was not found by look-up (linked or patched imports). */
void gs_stats_called(void);

/* True if a driver function was found that is in another libcuda than the one we know. */
bool gs_stats_any_escaped(void);

/* True if any call or look-up reached us. */
bool gs_stats_any(void);

/* Writes the counters as JSON (docs/guide.md, "GPUSHARE_STATS") to path. calls: the number of
 * passes through the gate. 0 or -errno. */
int gs_stats_write(const char *path, uint64_t calls);
