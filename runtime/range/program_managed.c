/* SPDX-License-Identifier: Apache-2.0
 *
 * program_managed.c: the backend of the program's own managed memory, and the count of it.
 *
 * A prefetch does not move memory that is read-mostly: it makes a second copy. So that advice is
 * taken back before a chunk leaves and given again afterwards; other advice stays as it is.
 * Chunks whose preferred location is the host are not brought in. State: in the ranges and
 * devices, under gs_memory_lock; driver calls are made without it.
 */
#include "runtime/range/program_managed.h"
#include "runtime/range/backend.h"
#include "runtime/range/managed.h"

#define STEP_BYTES (64ull << 10) /* unit in which bytes are counted */

struct gs_range *gs_program_managed_new(struct gs_device *device, CUdeviceptr address,
                                        uint64_t bytes)
{
    const uint64_t reserved = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    struct gs_range *range = gs_range_new(device, reserved, GS_CHUNK_BYTES);

    if (range == NULL)
        return NULL;
    range->theirs = calloc(1, sizeof *range->theirs);
    if (range->theirs == NULL) {
        free(range);
        return NULL;
    }
    range->node.base = address;
    return range;
}

void gs_program_managed_clear(struct gs_program_managed *theirs)
{
    gs_spans_clear(&theirs->read_mostly);
    gs_spans_clear(&theirs->stays_host);
    gs_spans_clear(&theirs->prefetched);
}

void gs_program_managed_end(struct gs_range *range)
{
    if (range->theirs == NULL)
        return;
    gs_program_managed_clear(range->theirs);
    free(range->theirs);
    range->theirs = NULL;
}

/* The bytes of a chunk that are the program's; the last chunk may be longer. */
static uint64_t bytes_of(const struct gs_range *range, uint32_t chunk)
{
    const uint64_t from = chunk * range->chunk_bytes,
                   bytes = gs_range_chunk_bytes(range, chunk);

    return range->node.size - from < bytes ? range->node.size - from : bytes;
}

/* --- what is counted; under the lock --- */

static bool count_chunk(struct gs_range *range, uint32_t chunk)
{
    struct gs_accounts *accounts = &range->device->accounts;
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk),
                   room = gs_device_room(range->device);

    if (bytes > room || accounts->demand > room - bytes)
        return false;
    accounts->demand += bytes;
    accounts->managed += bytes;
    return true;
}

void gs_program_managed_count(struct gs_range *range)
{
    for (uint32_t i = 0; i < range->chunk_count; i++)
        if (!count_chunk(range, i)) {
            range->chunks[i].state = GS_CHUNK_LOOSE;
            range->device->accounts.loose += gs_range_chunk_bytes(range, i);
        }
}

static uint64_t loosen_chunk(struct gs_range *range, uint32_t chunk)
{
    struct gs_accounts *accounts = &range->device->accounts;
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);
    const uint8_t state = range->chunks[chunk].state;

    accounts->demand -= bytes;
    accounts->managed -= bytes;
    accounts->loose += bytes;
    *(state == GS_CHUNK_RESIDENT ? &accounts->resident : &accounts->missing) -= bytes;
    range->chunks[chunk].state = state == GS_CHUNK_HOST ? GS_CHUNK_AWAY : GS_CHUNK_LOOSE;
    return bytes;
}

uint64_t gs_program_managed_loosen(struct gs_device *device, uint64_t bytes)
{
    uint64_t loosened = 0;

    if (device->accounts.managed == 0)
        return 0;
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0;
             i < range->chunk_count && range->theirs != NULL && range->life == GS_RANGE_LIVE;
             i++) {
            if (loosened >= bytes)
                return loosened;
            if (!range->chunks[i].moving && gs_chunk_is_counted(&range->chunks[i]))
                loosened += loosen_chunk(range, i);
        }
    return loosened;
}

void gs_program_managed_loosen_absent(struct gs_range *range)
{
    for (uint32_t i = 0; i < range->chunk_count; i++)
        if (range->chunks[i].state == GS_CHUNK_ABSENT) {
            range->device->accounts.demand -= gs_range_chunk_bytes(range, i);
            range->device->accounts.managed -= gs_range_chunk_bytes(range, i);
            range->device->accounts.loose += gs_range_chunk_bytes(range, i);
            range->chunks[i].state = GS_CHUNK_LOOSE;
        }
}

void gs_program_managed_recount(struct gs_device *device, bool count)
{
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count && range->theirs != NULL; i++) {
            struct gs_chunk *chunk = &range->chunks[i];

            if (chunk->state != GS_CHUNK_AWAY || range->life != GS_RANGE_LIVE)
                continue;
            chunk->state = GS_CHUNK_LOOSE;
            if (!count || !count_chunk(range, i))
                continue;
            chunk->state = GS_CHUNK_HOST;
            device->accounts.loose -= gs_range_chunk_bytes(range, i);
            device->accounts.missing += gs_range_chunk_bytes(range, i);
        }
}

struct gs_range *gs_program_managed_next_loose(const struct gs_device *device, uint32_t *chunk)
{
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count && range->theirs != NULL; i++)
            if (range->life == GS_RANGE_LIVE && range->chunks[i].state == GS_CHUNK_LOOSE) {
                *chunk = i;
                return range;
            }
    return NULL;
}

/* --- the backend --- */

/* The first part of [from, to) that is in the spans; takes the lock. */
static bool first_span(const struct gs_spans *spans, uint64_t from, uint64_t to,
                       struct gs_span *found)
{
    GS_HOLD_MEMORY;

    return gs_spans_first(spans, from, to, found);
}

static void advise_read_mostly(struct gs_range *range, uint32_t chunk, bool set)
{
    uint64_t from = gs_range_chunk_address(range, chunk);
    const uint64_t to = from + bytes_of(range, chunk);
    struct gs_span span;

    for (; first_span(&range->theirs->read_mostly, from, to, &span); from = span.to)
        gs_driver.cuMemAdvise(span.from, span.to - span.from,
                              set ? CU_MEM_ADVISE_SET_READ_MOSTLY
                                  : CU_MEM_ADVISE_UNSET_READ_MOSTLY,
                              range->device->ordinal);
}

/* Memory that was never sent away is brought in by the driver when the program touches it. */
static CUresult place_theirs(struct gs_range *range, uint32_t chunk)
{
    uint64_t from = gs_range_chunk_address(range, chunk);
    const uint64_t to = from + bytes_of(range, chunk);
    CUresult result = CUDA_SUCCESS;
    struct gs_span stays;

    if (range->chunks[chunk].state != GS_CHUNK_HOST)
        return CUDA_SUCCESS;
    while (from < to && result == CUDA_SUCCESS) {
        if (!first_span(&range->theirs->stays_host, from, to, &stays))
            stays = (struct gs_span){to, to, 0};
        if (stays.from > from)
            result = gs_managed_bring_in(range->device, from, stays.from - from);
        from = stays.to;
    }
    return result;
}

static uint32_t place_all_of_theirs(struct gs_range *range)
{
    return range->chunk_count; /* no page of it exists yet */
}

static CUresult send_theirs(struct gs_range *range, uint32_t chunk, CUstream stream)
{
    GS_WITH_MEMORY(range->theirs->moved = true);
    advise_read_mostly(range, chunk, false);
    return gs_driver.cuMemPrefetchAsync(gs_range_chunk_address(range, chunk),
                                        bytes_of(range, chunk), CU_DEVICE_CPU, stream);
}

/* The chunk has been sent (moving), or the whole range ends, and its advice with it. */
static void remove_theirs(struct gs_range *range, uint32_t chunk)
{
    if (range->chunks[chunk].moving)
        advise_read_mostly(range, chunk, true);
}

static void give_back_theirs(struct gs_range *range)
{
    if (!range->theirs->lent)
        gs_managed_backend.give_back(range);
}

const struct gs_backend gs_program_managed_backend = {.give_back = give_back_theirs,
                                                      .place = place_theirs,
                                                      .place_all = place_all_of_theirs,
                                                      .remove = remove_theirs,
                                                      .send = send_theirs};
