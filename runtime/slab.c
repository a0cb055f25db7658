/* SPDX-License-Identifier: Apache-2.0
 *
 * slab.c: owns the pieces of slabs and the lists of slabs that have free ones.
 *
 * Invariants: a piece is free (its bit is set), live (asked != 0), or retired (neither). A slab
 * is in the list of its class exactly while it has a free piece. Everything happens under
 * gs_memory_lock.
 */
#include "runtime/slab.h"

#include <stdlib.h>
#include <string.h>

#define CLASSES (GS_SLAB_MAX_SHIFT - GS_SLAB_MIN_SHIFT + 1)

struct gs_slab {
    struct gs_range *range;
    struct gs_slab *next, **link; /* in its class list; link NULL: not in it */
    uint32_t shift, count, free_count;
    uint64_t free_bits[(GS_SLAB_BYTES >> GS_SLAB_MIN_SHIFT) / 64];
    uint32_t asked[]; /* bytes, by piece */
};

static struct gs_slab *lists[CLASSES];

static uint32_t class_shift(uint64_t bytes)
{
    uint32_t shift = GS_SLAB_MIN_SHIFT;

    while ((1ull << shift) < bytes)
        shift++;
    return shift;
}

static void enlist(struct gs_slab *slab)
{
    struct gs_slab **head = &lists[slab->shift - GS_SLAB_MIN_SHIFT];

    slab->next = *head;
    if (slab->next != NULL)
        slab->next->link = &slab->next;
    slab->link = head;
    *head = slab;
}

static void delist(struct gs_slab *slab)
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
        delist(slab);
    return slab->range->node.base + ((uint64_t)index << slab->shift);
}

CUdeviceptr gs_slab_take(struct gs_device *device, CUcontext context, uint64_t bytes)
{
    struct gs_slab *slab = lists[class_shift(bytes) - GS_SLAB_MIN_SHIFT];

    for (; slab != NULL; slab = slab->next)
        if (slab->range->device == device && slab->range->context == context)
            return take_piece(slab, bytes);
    return 0;
}

bool gs_slab_make(struct gs_range *range, uint64_t bytes)
{
    const uint32_t shift = class_shift(bytes), count = (uint32_t)(GS_SLAB_BYTES >> shift);
    struct gs_slab *slab = calloc(1, sizeof *slab + count * sizeof slab->asked[0]);

    if (slab == NULL)
        return false;
    slab->range = range;
    slab->shift = shift;
    slab->count = slab->free_count = count;
    for (uint32_t i = 0; i < count; i++)
        slab->free_bits[i / 64] |= 1ull << (i % 64);
    range->slab = slab;
    enlist(slab);
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
        enlist(slab);
    if (slab->free_count < slab->count)
        return false;
    for (struct gs_slab *other = lists[slab->shift - GS_SLAB_MIN_SHIFT]; other != NULL;
         other = other->next)
        if (other != slab && other->range->device == range->device &&
            other->range->context == range->context) {
            delist(slab);
            return true;
        }
    return false; /* the last one stays for the next request */
}

struct gs_range *gs_slab_spare(const struct gs_device *device)
{
    for (unsigned i = 0; i < CLASSES; i++)
        for (struct gs_slab *slab = lists[i]; slab != NULL; slab = slab->next)
            if (slab->range->device == device && slab->free_count == slab->count) {
                delist(slab);
                return slab->range;
            }
    return NULL;
}

uint64_t gs_slab_spare_bytes(const struct gs_device *device)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < CLASSES; i++)
        for (const struct gs_slab *slab = lists[i]; slab != NULL; slab = slab->next)
            if (slab->range->device == device && slab->free_count == slab->count)
                bytes += slab->range->reserved;
    return bytes;
}

void gs_slab_free(struct gs_slab *slab)
{
    if (slab == NULL)
        return;
    delist(slab);
    free(slab);
}

void gs_slabs_after_fork(void)
{
    memset(lists, 0, sizeof lists);
}
