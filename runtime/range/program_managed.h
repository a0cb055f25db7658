/* SPDX-License-Identifier: Apache-2.0
 *
 * program_managed.h: ranges of managed memory that the program made itself. The driver keeps its
 * pages; gpushare counts them, and sends them to the host and back with the program's turns.
 *
 * There may be more such memory than the device has. Chunks that do not fit into the demand are
 * *loose*: the driver brings their pages in when the program touches them. Only this program is
 * slowed by that, since they are sent away as well when its turn ends.
 */
#pragma once

#include "runtime/range/range.h"
#include "runtime/range/spans.h"

/* The additional parts of a range of the program's managed memory. Under gs_memory_lock. */
struct gs_program_managed {
    bool lent;  /* of a pool, or a variable: not ended by cuMemFree */
    bool moved; /* by gpushare: the driver knows our last prefetch, not the program's */
    const void *library;         /* the library whose variable it is; NULL: none */
    struct gs_spans read_mostly; /* 1: cuMemAdvise said so */
    struct gs_spans stays_host;  /* 1: its preferred location is not the device */
    struct gs_spans prefetched;  /* the program's last prefetch: its location */
};

/* An empty range for the program's memory at address, in no list. NULL: out of host memory. */
struct gs_range *gs_program_managed_new(struct gs_device *device, CUdeviceptr address,
                                        uint64_t bytes);

/* Forgets the advice of the program for it. */
void gs_program_managed_clear(struct gs_program_managed *theirs);

/* Frees what the range has allocated for itself, but not the range. */
void gs_program_managed_end(struct gs_range *range);

/* The following under gs_memory_lock. */

/* Adds the chunks that have room to the demand; the others are loose. */
void gs_program_managed_count(struct gs_range *range);

/* Makes at least so many bytes of the device's demand loose, or all that it can. Returns the
 * bytes. */
uint64_t gs_program_managed_loosen(struct gs_device *device, uint64_t bytes);

/* Makes all chunks loose that are counted and not on the device. */
void gs_program_managed_loosen_absent(struct gs_range *range);

/* A turn begins: loose chunks that were sent away are counted if there is room for them (count),
 * or left to the driver. */
void gs_program_managed_recount(struct gs_device *device, bool count);

/* The next loose chunk that was not sent away; NULL: none. */
struct gs_range *gs_program_managed_next_loose(const struct gs_device *device, uint32_t *chunk);
