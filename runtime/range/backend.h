/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h: the ways to have movable device memory behind an address that stays: physical
 * memory that is mapped and unmapped (vmm.c), for drivers without that managed memory whose
 * pages are sent to and fro (managed.c), and the managed memory that programs make themselves
 * (program_managed.c).
 */
#ifndef GS_RUNTIME_RANGE_BACKEND_H
#define GS_RUNTIME_RANGE_BACKEND_H

#include "runtime/range/range.h"

struct gs_backend {
    /* Addresses for a range of cuMemAlloc's that has none: node.base. */
    CUresult (*reserve)(struct gs_range *range);
    /* The reverse; no chunk of it is on the device. A context is current. */
    void (*give_back)(struct gs_range *range);

    /* Memory for a chunk that is not on the device; on error nothing is left behind. The caller
     * sets the state. */
    CUresult (*place)(struct gs_range *range, uint32_t chunk);
    /* All chunks of a range that has no memory yet. Returns how many of them, from the first
     * on, are in place. */
    uint32_t (*place_all)(struct gs_range *range);
    /* The reverse, for one chunk. Nothing on the GPU may use it any more. */
    void (*remove)(struct gs_range *range, uint32_t chunk);

    /* Queues the chunk's way to the host; place() brings what is there back. NULL: contents are
     * the caller's, who copies them (swap_copy.c). */
    CUresult (*send)(struct gs_range *range, uint32_t chunk, CUstream stream);
};

extern const struct gs_backend gs_vmm_backend, gs_managed_backend, gs_program_managed_backend;

static inline const struct gs_backend *gs_backend_of(const struct gs_range *range)
{
    if (range->theirs != NULL)
        return &gs_program_managed_backend;
    return range->own == NULL && range->device->managed ? &gs_managed_backend : &gs_vmm_backend;
}

#endif
