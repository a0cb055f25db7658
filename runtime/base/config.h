/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h: the one runtime object of the process: configuration, counters, and what the parts of
 * the library share.
 *
 * Threads: the constructor writes the configuration, and the first call of the driver. Counters
 * are relaxed atomics.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GS_OVERCOMMIT_AUTO UINT64_MAX
/* Small grains let a kernel wait for the card and for the bus at once (range/over.h), large grains
 * cost less in hand-offs. */
#define GS_GRAIN_BYTES (8ull << 20)
#define GS_GRAIN_LEAST (2ull << 20)
#define GS_GRAIN_MOST  (128ull << 20)

struct gs_config {
    bool disabled;      /* GPUSHARE_DISABLE=1: doors substitute nothing */
    bool strict;        /* GPUSHARE_STRICT=1: an ABI we do not know is refused instead of passed
                           through */
    bool native_memory; /* GPUSHARE_MEMORY=native: cuMemAlloc stays the driver's own (legacy IPC
                           works; never moved) */
    bool managed_memory;   /* GPUSHARE_MEMORY=managed: cuMemAlloc gives managed memory */
    uint64_t device_limit; /* GPUSHARE_DEVICE_LIMIT, bytes; 0: none */
    bool overcommit_set;   /* GPUSHARE_OVERCOMMIT; else it is the daemon's setting */
    uint64_t overcommit;   /* bytes beyond the card; GS_OVERCOMMIT_AUTO */
    bool placed_once;      /* memory beyond the card stays there */
    uint64_t grain;        /* bytes of a chunk where there is overcommit */
    const char *stats;     /* GPUSHARE_STATS: a file to write counters to at exit; NULL: none */
};

struct gs_runtime {
    struct gs_config config;
    _Atomic(uint64_t) uncovered; /* look-ups of functions in an ABI that we do not know */
    /* Something that this program does on the GPU is not covered: its memory does not move.
     * Release, and acquire before memory is moved. */
    _Atomic(bool) partial;
};
extern struct gs_runtime gs_runtime;

/* A forked child has counts of its own. */
struct gs_counts {
    _Atomic(uint64_t) moved_out, moved_in; /* bytes */
    struct {
        _Atomic(uint64_t) equal, zero, unchanged;
    } saved;                             /* bytes that need not be copied (wire.h) */
    _Atomic(uint64_t) given, taken_over; /* bytes handed over (handover.h) */
    _Atomic(uint64_t) exchanged;         /* bytes that have changed places (swap/placement.h) */
    _Atomic(uint64_t) switches; /* times the memory came back after it was (partly) out */
};
extern struct gs_counts gs_counts;

/* Reads the environment; again: at the first call of the driver. */
void gs_config_read(struct gs_config *config, bool again);
