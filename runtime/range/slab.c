/* SPDX-License-Identifier: Apache-2.0
 *
 * slab.c: owns the pieces of slabs and the lists of slabs that have free pieces.
 *
 * Invariants: a piece is free (its bit is set), live (asked != 0), or retired (neither). A slab
 * is in the list of its class exactly while it has a free piece. Everything happens under
 * gs_memory_lock.
 */
#include "runtime/range/slab.h"

#define CLASSES (GS_SLAB_MAX_SHIFT - GS_SLAB_MIN_SHIFT + 1)

struct gs_slab {
    struct gs_range *range;
    struct gs_slab *next, **link; /* in its class list; link NULL: not in it */
    uint32_t shift, count, free_count;
    uint64_t free_bits[(GS_SLAB_BYTES >> GS_SLAB_MIN_SHIFT) / 64];
    uint32_t asked[]; /* bytes, by piece */
};

static struct gs_slab *lists[CLASSES] GS_ZERO_IN_CHILD;
static struct gs_slab *blank[CLASSES] GS_ZERO_IN_CHILD; /* without a range, all pieces free */

static uint32_t class_shift(uint64_t bytes)
{
    uint32_t shift = GS_SLAB_MIN_SHIFT;

    while ((1ull << shift) < bytes)
        shift++;
    return shift;
}

static void enlist_slab(struct gs_slab *slab)
{
    struct gs_slab **head = &lists[slab->shift - GS_SLAB_MIN_SHIFT];

    slab->next = *head;
    if (slab->next != NULL)
        slab->next->link = &slab->next;
    slab->link = head;
    *head = slab;
}

static void delist_slab(struct gs_slab *slab)
{
    if (slab->link == NULL)
        return;
    *slab->link = slab->next;
    if (slab->next != NULL)
        slab->next->link = slab->link;
    slab->link = NULL;
}

static CUdeviceptr take_piece(struct gs_slab *slab, uint64_t bytes)
{
    uint32_t word = 0, index;

    while (slab->free_bits[word] == 0)
        word++;
    index = word * 64 + (uint32_t)__builtin_ctzll(slab->free_bits[word]);
    slab->free_bits[word] &= slab->free_bits[word] - 1;
    slab->asked[index] = (uint32_t)bytes;
    if (--slab->free_count == 0)
        delist_slab(slab);
    return slab->range->node.base + ((uint64_t)index << slab->shift);
}

uint64_t gs_slab_piece_bytes(uint64_t bytes)
{
    return 1ull << class_shift(bytes);
}

CUdeviceptr gs_slab_take(const struct gs_device *device, CUcontext context,
                         const struct gs_pool *pool, uint64_t bytes)
{
    struct gs_slab *slab = lists[class_shift(bytes) - GS_SLAB_MIN_SHIFT];

    for (; slab != NULL; slab = slab->next)
        if (slab->range->device == device && slab->range->context == context &&
            slab->range->pool == pool)
            return take_piece(slab, bytes);
    return 0;
}

bool gs_slab_make(struct gs_range *range, uint64_t bytes)
{
    const uint32_t shift = class_shift(bytes), count = (uint32_t)(GS_SLAB_BYTES >> shift);
    struct gs_slab **spare = &blank[shift - GS_SLAB_MIN_SHIFT], *slab = *spare;

    *spare = NULL;
    if (slab == NULL) {
        slab = calloc(1, sizeof *slab + count * sizeof slab->asked[0]);
        if (slab == NULL)
            return false;
        for (uint32_t i = 0; i < count; i++)
            slab->free_bits[i / 64] |= 1ull << (i % 64);
    }
    slab->range = range;
    slab->shift = shift;
    slab->count = slab->free_count = count;
    range->slab = slab;
    enlist_slab(slab);
    return true;
}

bool gs_slab_piece(const struct gs_range *range, CUdeviceptr address, CUdeviceptr *base,
                   uint64_t *bytes)
{
    const uint32_t index = (uint32_t)((address - range->node.base) >> range->slab->shift);

    *base = range->node.base + ((uint64_t)index << range->slab->shift);
    *bytes = range->slab->asked[index];
    return address - *base < *bytes;
}

enum gs_slab_state gs_slab_state(const struct gs_range *range, CUdeviceptr address)
{
    const struct gs_slab *slab = range->slab;
    const uint32_t index = (uint32_t)((address - range->node.base) >> slab->shift);

    if (slab->asked[index] != 0)
        return GS_SLAB_LIVE;
    return (slab->free_bits[index / 64] >> index % 64 & 1) != 0 ? GS_SLAB_FREE
                                                                : GS_SLAB_RETIRED;
}

bool gs_slab_retire(struct gs_range *range, CUdeviceptr address)
{
    CUdeviceptr base;
    uint64_t bytes;

    if (!gs_slab_piece(range, address, &base, &bytes) || base != address)
        return false;
    range->slab->asked[(address - range->node.base) >> range->slab->shift] = 0;
    return true;
}

bool gs_slab_put(struct gs_range *range, CUdeviceptr address)
{
    struct gs_slab *slab = range->slab;
    const uint32_t index = (uint32_t)((address - range->node.base) >> slab->shift);

    slab->free_bits[index / 64] |= 1ull << (index % 64);
    if (slab->free_count++ == 0)
        enlist_slab(slab);
    if (slab->free_count < slab->count)
        return false;
    delist_slab(slab);
    return true;
}

void gs_slab_revive(struct gs_range *range, CUdeviceptr address, uint64_t bytes)
{
    range->slab->asked[(address - range->node.base) >> range->slab->shift] = (uint32_t)bytes;
}

uint64_t gs_slab_asked(const struct gs_slab *slab)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < slab->count; i++)
        sum += slab->asked[i];
    return sum;
}

void gs_slab_free(struct gs_slab *slab)
{
    struct gs_slab **spare;

    if (slab == NULL)
        return;
    delist_slab(slab);
    spare = &blank[slab->shift - GS_SLAB_MIN_SHIFT];
    if (slab->free_count == slab->count && *spare == NULL)
        *spare = slab;
    else
        free(slab);
}
