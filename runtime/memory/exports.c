/* SPDX-License-Identifier: Apache-2.0
 *
 * exports.c: makes handles for other processes, and finds the memory behind a handle.
 *
 * State: in the ranges (struct gs_export), and the number of this process, under gs_memory_lock;
 * the time of the first handle (atomic). Any thread.
 */
#include "runtime/memory/exports.h"

#include <sys/random.h>

#include "runtime/range/over.h"
#include "runtime/range/shares.h"
#include "runtime/range/slab.h"

/* ns; UINT64_MAX: a process has asked for a handle. Relaxed */
static _Atomic(uint64_t) unasked_since GS_ZERO_IN_CHILD;
static uint8_t number[16] GS_ZERO_IN_CHILD; /* of this process; zeros: it has made no handle */

/* Under the lock: base and size of the allocation there; false: it can have no handle. What the
 * daemon has put beyond the card comes back (swap/beyond.c). With overcommit it may stay there. */
static bool allocation_at(const struct gs_range *range, CUdeviceptr address, CUdeviceptr *base,
                          uint64_t *bytes)
{
    if (range == NULL || range->own != NULL || range->pool != NULL || range->theirs != NULL ||
        (range->over != 0 && gs_over_is_on(range->device)) || range->device->managed)
        return false;
    *base = range->node.base;
    *bytes = range->node.size;
    return range->slab == NULL || gs_slab_piece(range, address, base, bytes);
}

static struct gs_export *export_of(const struct gs_range *range, CUdeviceptr base)
{
    struct gs_export *export = range->exports;

    while (export != NULL && export->base != base)
        export = export->next;
    return export;
}

static bool fill_random(uint8_t bytes[16])
{
    return getrandom(bytes, 16, GRND_NONBLOCK) == 16;
}

/* NULL: no memory, or no random bytes. errno is kept. */
static struct gs_export *new_export(uint8_t number_of_process[16])
{
    struct gs_export *export = calloc(1, sizeof *export);
    GS_KEEP_ERRNO;

    if (export != NULL && (!fill_random(export->token) || !fill_random(number_of_process))) {
        free(export);
        export = NULL;
    }
    return export;
}

/* Under the lock. fresh: the number of this process, unless it has a number. */
static void fill_handle(struct gs_ipc_handle *handle, const struct gs_export *export,
                        const uint8_t fresh[16])
{
    static const uint8_t none[sizeof number];

    if (memcmp(number, none, sizeof number) == 0)
        memcpy(number, fresh, sizeof number);
    *handle = (struct gs_ipc_handle){.magic = "", .pid = (int32_t)getpid()};
    memcpy(handle->magic, GS_IPC_MAGIC, sizeof handle->magic);
    memcpy(handle->token, export->token, sizeof handle->token);
    memcpy(handle->exporter, number, sizeof handle->exporter);
}

CUresult gs_exports_handle(CUdeviceptr address, struct gs_ipc_handle *handle, bool *ours)
{
    uint8_t fresh_number[16] = {0};
    struct gs_export *fresh = new_export(fresh_number), *export = NULL;
    CUdeviceptr base = 0;
    uint64_t bytes = 0, never = 0;
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = gs_range_at(address);
    *ours = allocation_at(range, address, &base, &bytes);
    if (*ours)
        export = export_of(range, base);
    if (*ours && export == NULL && fresh != NULL) {
        export = fresh;
        fresh = NULL;
        export->base = base;
        export->bytes = bytes;
        export->next = range->exports;
        range->exports = export;
    }
    if (export != NULL)
        fill_handle(handle, export, fresh_number);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(fresh);
    if (export == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_compare_exchange_strong_explicit(&unasked_since, &never, gs_now(),
                                            memory_order_relaxed, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static bool find_in(struct gs_range *range, const uint8_t token[16], struct gs_exported *found)
{
    for (struct gs_export *export = range->exports; export != NULL; export = export->next)
        if (export->base != 0 && memcmp(export->token, token, sizeof export->token) == 0) {
            *found = (struct gs_exported){range, range->id, export->base, export->bytes};
            return true;
        }
    return false;
}

bool gs_exports_find(const uint8_t token[16], bool opens, struct gs_exported *found)
{
    struct gs_device *device;
    bool there = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; !there && (device = gs_device_at(i)) != NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL && !there;
             range = range->next)
            there = range->life == GS_RANGE_LIVE && find_in(range, token, found);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (there && opens)
        atomic_store_explicit(&unasked_since, UINT64_MAX, memory_order_relaxed);
    return there;
}

struct gs_share *gs_exports_share(const struct gs_exported *found, const uint8_t token[16],
                                  int *theirs, int *error)
{
    struct gs_share *share = gs_share_new(token, theirs);
    struct gs_range *range = found->range;
    struct gs_exported there;
    bool lives;

    *error = -EIO;
    if (share == NULL)
        return NULL;
    *error = 0;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    lives = range->life == GS_RANGE_LIVE && find_in(range, share->token, &there);
    if (lives) {
        gs_range_share(range);
        gs_share_link(share, range);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (lives)
        return share;
    gs_share_free(share); /* the program has freed the memory */
    close(*theirs);
    *error = -ENOENT;
    return NULL;
}

void gs_exports_unshare(struct gs_share *share)
{
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_share_unlink(share);
    range = gs_range_at(share->base);
    if (range != NULL && range->id == share->id && range->pin.shares != 0) /* not freed */
        gs_range_unshare(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_log("memory at %#llx is open in one process less", (unsigned long long)share->base);
    gs_share_free(share);
}

void gs_exports_number(uint8_t exporter[16])
{
    GS_WITH_MEMORY(memcpy(exporter, number, sizeof number));
}

uint64_t gs_exports_unasked_since(void)
{
    const uint64_t since = atomic_load_explicit(&unasked_since, memory_order_relaxed);

    return since == UINT64_MAX ? 0 : since;
}

void gs_exports_end(struct gs_range *range, CUdeviceptr base)
{
    struct gs_export *export = export_of(range, base);

    if (export == NULL)
        return;
    export->base = 0; /* it stays on the list: see struct gs_range */
    gs_shares_freed(range, export->token);
}
