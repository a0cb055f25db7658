/* SPDX-License-Identifier: Apache-2.0
 *
 * openings.c: owns the memory of other processes that is open here: a list, and the tree of its
 * addresses, under gs_memory_lock.
 *
 * Invariants: an opening is in the tree exactly while it is OPEN, and in the list until it is
 * freed, so that a forked child finds every lifeline. An opening that is NEW or CLOSING belongs
 * to a thread. Of those that are not CLOSING no two have the same token and context. Any thread.
 */
#include "runtime/memory/openings.h"

#include <poll.h>

#include "runtime/memory/stream_position.h"
#include "runtime/range/vmm.h"

#define PAUSE_NS  500000 /* while another thread opens the same */
#define KEPT_MOST 32
#define KEEP_NS   250000000ull
#define LOOK_NS   10000000ull /* from look to look whether what is kept was freed */

static struct gs_range_tree tree GS_ZERO_IN_CHILD;
static struct gs_opening *openings GS_ZERO_IN_CHILD;
static unsigned kept_count GS_ZERO_IN_CHILD;
static uint64_t next_id = 1ull << 62; /* far from those of ranges */

const struct gs_opening *gs_openings_at(CUdeviceptr address)
{
    return (const struct gs_opening *)gs_range_tree_find(&tree, address);
}

bool gs_openings_any(void)
{
    return openings != NULL;
}

bool gs_openings_of(const uint8_t exporter[16])
{
    GS_HOLD_MEMORY;
    const struct gs_opening *each;

    for (each = openings; each != NULL; each = each->next)
        if (memcmp(each->exporter, exporter, sizeof each->exporter) == 0)
            break;
    return each != NULL;
}

static uint64_t bytes_of(const struct gs_opening *opening, uint32_t chunk)
{
    const uint64_t from = chunk * opening->chunk_bytes;

    return opening->bytes - from < opening->chunk_bytes ? opening->bytes - from
                                                        : opening->chunk_bytes;
}

/* --- mapping --- */

static void unmap_chunks(struct gs_opening *opening, uint32_t count)
{
    if (opening->mapped == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        gs_vmm_unmap_at(opening->mapped + i * opening->chunk_bytes, bytes_of(opening, i));
    gs_driver.cuMemAddressFree(opening->mapped, opening->bytes);
    opening->mapped = 0;
}

void gs_opening_drop(struct gs_opening *opening)
{
    for (uint32_t i = 0; i < opening->got; i++)
        gs_vmm_release(opening->handles[i]);
    free(opening->handles);
    opening->handles = NULL;
    opening->got = opening->chunk_count = 0;
    gs_own_fd_close(&opening->lifeline); /* last: after this the memory may move */
}

/* Makes it accessible to the device that opens it, and to its own if the process sees that
 * device. */
static CUresult set_access(const struct gs_opening *opening)
{
    CUmemAccessDesc access[2];
    size_t count = 1;
    int devices = 0;

    access[0] = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = opening->device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access[1] = access[0];
    gs_driver.cuDeviceGetCount(&devices);
    for (int i = 0; i < devices && count == 1; i++) {
        CUuuid uuid;

        if (i != opening->device->ordinal &&
            gs_driver.cuDeviceGetUuid_v2(&uuid, i) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, opening->uuid, sizeof opening->uuid) == 0)
            access[count++].location.id = i;
    }
    return gs_driver.cuMemSetAccess(opening->mapped, opening->bytes, access, count);
}

static CUresult map_opening(struct gs_opening *opening)
{
    CUresult result = gs_driver.cuMemAddressReserve(&opening->mapped, opening->bytes, 0, 0, 0);
    uint32_t mapped = 0;

    if (result != CUDA_SUCCESS) {
        opening->mapped = 0;
        return result;
    }
    while (result == CUDA_SUCCESS && mapped < opening->chunk_count) {
        result = gs_driver.cuMemMap(opening->mapped + mapped * opening->chunk_bytes,
                                    bytes_of(opening, mapped), 0, opening->handles[mapped], 0);
        mapped += result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        result = set_access(opening);
    if (result != CUDA_SUCCESS) {
        gs_log("memory of another process cannot be mapped: CUresult %d", result);
        unmap_chunks(opening, mapped);
    }
    return result;
}

/* Of a NEW or CLOSING opening. */
static void end_opening(struct gs_opening *opening)
{
    struct gs_opening **at = &openings;

    unmap_chunks(opening, opening->chunk_count);
    gs_opening_drop(opening);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    while (*at != opening)
        at = &(*at)->next;
    *at = opening->next;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(opening);
}

/* Under the lock: the opening with the same token and context that is not CLOSING. */
static struct gs_opening *find_same(const struct gs_opening *like)
{
    struct gs_opening *each = openings;

    while (each != NULL &&
           (each->state == GS_OPENING_CLOSING || each->context != like->context ||
            memcmp(each->token, like->token, sizeof each->token) != 0))
        each = each->next;
    return each;
}

/* --- keeping --- */

/* The exporter lives, and has not freed the memory. */
static bool is_alive(const struct gs_opening *opening)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    GS_KEEP_ERRNO;
    struct pollfd polled = {gs_own_fd(&opening->lifeline), POLLIN, 0};
    const bool alive = polled.fd >= 0 && poll(&polled, 1, 0) == 0;

    return alive;
}

/* A CLOSING opening, which no work uses any more, stays mapped. False: it is to be ended. */
static bool keep_opening(struct gs_opening *opening)
{
    bool kept, first;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    kept = opening->tells && kept_count < KEPT_MOST && find_same(opening) == NULL;
    first = kept && kept_count == 0;
    if (kept) {
        opening->state = GS_OPENING_KEPT;
        opening->kept_at = gs_now();
        kept_count++;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (first) /* later openings are seen in the looks that follow */
        gs_worker_wake_soon();
    return kept;
}

/* Under the lock. */
static void take_kept(struct gs_opening *opening, enum gs_opening_state state)
{
    opening->state = state;
    kept_count--;
}

/* What is kept, as it is polled without the lock. */
struct kept {
    uint64_t ids[KEPT_MOST];
    struct pollfd polled[KEPT_MOST];
    unsigned count;
};

static void list_kept(struct kept *kept)
{
    kept->count = 0;
    GS_HOLD_MEMORY;
    for (const struct gs_opening *each = openings; each != NULL; each = each->next)
        if (each->state == GS_OPENING_KEPT) {
            kept->ids[kept->count] = each->id;
            kept->polled[kept->count++] = (struct pollfd){
                atomic_load_explicit(&each->lifeline.number, memory_order_relaxed) - 1, POLLIN,
                0};
        }
}

/* Under the lock: it is in the list, and nothing has come over its lifeline. */
static bool was_quiet(const struct kept *kept, const struct gs_opening *opening)
{
    unsigned i = 0;

    while (i < kept->count && kept->ids[i] != opening->id)
        i++;
    return i == kept->count || kept->polled[i].revents == 0;
}

/* An opening that is to be unmapped, CLOSING from now on; NULL: none. */
static struct gs_opening *take_over(const struct kept *kept, uint64_t now, bool all)
{
    GS_HOLD_MEMORY;
    struct gs_opening *each;

    for (each = openings; each != NULL; each = each->next)
        if (each->state == GS_OPENING_KEPT &&
            (all || now >= each->kept_at + KEEP_NS || !was_quiet(kept, each)))
            break;
    if (each != NULL)
        take_kept(each, GS_OPENING_CLOSING);
    return each;
}

void gs_openings_let_go(void)
{
    const struct kept none = {.count = 0};
    struct gs_opening *opening;

    while ((opening = take_over(&none, 0, true)) != NULL)
        gs_own_fd_close(&opening->lifeline);
}

uint64_t gs_openings_tend(uint64_t now, bool all)
{
    struct gs_opening *opening;
    struct kept kept;

    list_kept(&kept);
    if (kept.count == 0)
        return UINT64_MAX;
    if (!all)
        poll(kept.polled, kept.count, 0);
    while ((opening = take_over(&kept, now, all)) != NULL)
        end_opening(opening);
    GS_HOLD_MEMORY;
    return kept_count != 0 ? LOOK_NS : UINT64_MAX;
}

/* --- opening --- */

enum known { NEW, OPEN, UNDER_WAY, KEPT };

/* Adds a reference, or puts the new opening into the list, or makes a kept one NEW, which is
 * *opening then. */
static enum known begin_open(struct gs_opening *fresh, struct gs_opening **opening,
                             CUdeviceptr *address)
{
    enum known known;
    struct gs_opening *same;

    *opening = fresh;
    GS_HOLD_MEMORY;
    same = find_same(fresh);
    if (same == NULL) {
        known = NEW;
        fresh->next = openings;
        openings = fresh;
    } else if (same->state == GS_OPENING_NEW) {
        known = UNDER_WAY;
    } else if (same->state == GS_OPENING_KEPT) {
        known = KEPT;
        take_kept(same, GS_OPENING_NEW);
        *opening = same;
    } else {
        known = OPEN;
        same->references++;
        *address = same->node.base;
    }
    return known;
}

/* NULL: out of memory, or no context (*result). */
static struct gs_opening *new_opening(const struct gs_ipc_handle *like,
                                      struct gs_device *device, CUresult *result)
{
    struct gs_opening *fresh = calloc(1, sizeof *fresh);

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (fresh == NULL)
        return NULL;
    fresh->device = device;
    memcpy(fresh->token, like->token, sizeof fresh->token);
    memcpy(fresh->exporter, like->exporter, sizeof fresh->exporter);
    *result = gs_driver.cuCtxGetCurrent(&fresh->context);
    if (*result == CUDA_SUCCESS)
        return fresh;
    free(fresh);
    return NULL;
}

CUresult gs_openings_open(const struct gs_ipc_handle *like, struct gs_device *device,
                          int (*get)(const void *context, struct gs_opening *opening),
                          const void *context, CUdeviceptr *address, int *error)
{
    struct gs_opening *opening, *fresh;
    enum known known;
    CUresult result;

    *error = 0;
    fresh = new_opening(like, device, &result);
    if (fresh == NULL)
        return result;
    while ((known = begin_open(fresh, &opening, address)) == UNDER_WAY)
        gs_pause(PAUSE_NS); /* the other thread's wait is bounded */
    if (known != NEW)
        free(fresh);
    if (known == OPEN)
        return CUDA_SUCCESS;
    if (known == KEPT && !is_alive(opening)) {
        unmap_chunks(opening, opening->chunk_count);
        gs_opening_drop(opening);
        known = NEW;
    }
    if (known == NEW) {
        *error = get(context, opening);
        result = *error == 0 ? map_opening(opening) : CUDA_ERROR_MAP_FAILED;
    }
    if (result != CUDA_SUCCESS) {
        end_opening(opening);
        return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_MAP_FAILED;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    opening->node.base = opening->mapped + opening->offset;
    opening->node.size = opening->size;
    opening->state = GS_OPENING_OPEN;
    opening->references = 1;
    opening->id = next_id++;
    gs_range_tree_insert(&tree, &opening->node);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    *address = opening->node.base;
    return CUDA_SUCCESS;
}

/* --- closing --- */

CUresult gs_openings_close(CUdeviceptr address, bool *ours)
{
    struct gs_opening *opening;
    bool last = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    opening = (struct gs_opening *)gs_range_tree_find(&tree, address);
    *ours = opening != NULL;
    if (opening != NULL && opening->node.base != address)
        opening = NULL;
    else if (opening != NULL)
        last = --opening->references == 0;
    if (last) {
        gs_range_tree_remove(&tree, address);
        opening->state = GS_OPENING_CLOSING;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (opening == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!last)
        return CUDA_SUCCESS;
    /* work that was submitted may still use it */
    if (gs_synchronize_context(opening->context) != CUDA_SUCCESS || !keep_opening(opening))
        end_opening(opening);
    return CUDA_SUCCESS;
}

static struct gs_opening *take_of_context(CUcontext context)
{
    GS_HOLD_MEMORY;
    struct gs_opening *opening;

    for (opening = openings; opening != NULL; opening = opening->next)
        if (opening->context == context &&
            (opening->state == GS_OPENING_OPEN || opening->state == GS_OPENING_KEPT))
            break;
    if (opening != NULL && opening->state == GS_OPENING_KEPT)
        take_kept(opening, GS_OPENING_CLOSING);
    else if (opening != NULL) {
        gs_range_tree_remove(&tree, opening->node.base);
        opening->state = GS_OPENING_CLOSING;
    }
    return opening;
}

void gs_openings_context_ended(CUcontext context)
{
    struct gs_opening *opening;

    while ((opening = take_of_context(context)) != NULL)
        end_opening(opening);
}

void gs_openings_after_fork(void)
{
    for (struct gs_opening *each = openings; each != NULL; each = each->next)
        gs_own_fd_close(&each->lifeline); /* the parent's alone; its books are left to it */
}
