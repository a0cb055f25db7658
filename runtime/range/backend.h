/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h: the ways to keep movable device memory behind a constant address: physical memory
 * that is mapped and unmapped (vmm.c); for drivers without that, managed memory whose pages are
 * sent to the host and back (managed.c); and the managed memory that programs make themselves
 * (program_managed.c).
 */
#pragma once

#include "runtime/range/range.h"

struct gs_backend {
    /* Reserves addresses for a range of cuMemAlloc that has none: node.base. NULL: there are no
     * such ranges. */
    CUresult (*reserve)(struct gs_range *range);
    /* Releases them. No chunk of the range is on the device. A context is current. */
    void (*give_back)(struct gs_range *range);
    /* Does so for a range that the program has never had, without waiting for the program's work:
     * that may itself wait for the calling thread. touched: some of it was on the device. */
    void (*take_unused)(struct gs_range *range, bool touched);

    /* Gives memory to a chunk that is not on the device; on error nothing is left behind. The
     * caller sets the state. */
    CUresult (*place)(struct gs_range *range, uint32_t chunk);
    /* The same for all chunks of a range that has no memory yet. Returns how many of them, from
     * the first on, have memory. */
    uint32_t (*place_all)(struct gs_range *range);
    /* Takes one chunk's memory away. Nothing on the GPU may use it any more. */
    void (*remove)(struct gs_range *range, uint32_t chunk);

    /* Queues the sending of the chunk to the host; place() brings it back. NULL: the caller
     * copies the contents (swap_copy.c). */
    CUresult (*send)(struct gs_range *range, uint32_t chunk, CUstream stream);
};

extern const struct gs_backend gs_vmm_backend, gs_managed_backend, gs_program_managed_backend;

static inline const struct gs_backend *gs_backend_of(const struct gs_range *range)
{
    if (range->theirs != NULL)
        return &gs_program_managed_backend;
    return range->own == NULL && range->device->managed ? &gs_managed_backend : &gs_vmm_backend;
}
