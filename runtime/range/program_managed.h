/* SPDX-License-Identifier: Apache-2.0
 *
 * program_managed.h: ranges of managed memory that the program made itself. The driver keeps its
 * pages; gpushare counts them, and sends them to the host and back with the program's turns.
 *
 * Such memory may be more than there is on the device. Chunks that find no place in the demand
 * are *loose*: the driver brings their pages in as the program touches them, and nobody but this
 * program suffers from that, since they are sent away as well when its turn ends.
 */
#ifndef GS_RUNTIME_RANGE_PROGRAM_MANAGED_H
#define GS_RUNTIME_RANGE_PROGRAM_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/range/range.h"
#include "runtime/range/spans.h"

/* The additional parts of a range of the program's managed memory. Under gs_memory_lock. */
struct gs_program_managed {
    bool lent;  /* a pool's, or a variable: cuMemFree is not what ends it */
    bool moved; /* gpushare has: the driver knows of our prefetches, not the program's */
    const void *library;         /* whose variable it is; NULL: none */
    struct gs_spans read_mostly; /* 1: cuMemAdvise said so */
    struct gs_spans stays_host;  /* 1: its preferred location is not the device */
    struct gs_spans prefetched;  /* the program's last prefetch: its location */
};

/* An empty range for the program's memory at address, in no list. NULL: out of host memory. */
struct gs_range *gs_program_managed_new(struct gs_device *device, CUdeviceptr address,
                                        uint64_t bytes);

/* Forgets the advice of the program for it. */
void gs_program_managed_clear(struct gs_program_managed *theirs);

/* Frees what the range has allocated for itself, and not the range. */
void gs_program_managed_end(struct gs_range *range);

/* Bytes of a chunk that are the program's: the last one may be longer than that. */
uint64_t gs_program_managed_bytes(const struct gs_range *range, uint32_t chunk);

/* The following under gs_memory_lock. */

/* Adds to the demand what has room there; the rest is loose. */
void gs_program_managed_count(struct gs_range *range);

/* At least so many bytes of the device's demand become loose, or all that can. Returns bytes. */
uint64_t gs_program_managed_loosen(struct gs_device *device, uint64_t bytes);

/* All that is counted and not on the device becomes loose. */
void gs_program_managed_loosen_absent(struct gs_range *range);

/* A turn begins: what is loose and was sent away is counted if there is room for it (count), or
 * left to the driver. */
void gs_program_managed_recount(struct gs_device *device, bool count);

/* The next loose chunk that was not sent away; NULL: none. */
struct gs_range *gs_program_managed_next_loose(const struct gs_device *device, uint32_t *chunk);

#endif
