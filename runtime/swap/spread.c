/* SPDX-License-Identifier: Apache-2.0
 *
 * spread.c: which chunks change places so that what lies beyond the card is spread (spread.h).
 *
 * The chunks that are used about as much as those beyond the card are cut into groups, range after
 * range. Each group shall have one chunk beyond the card: one in GROUP is as
 * much as the bus brings while the card's own memory of the group is worked on, so more than that
 * need not be spread. Where less lies beyond the card the groups are larger. No state.
 */
#include "runtime/swap/spread.h"

#include "runtime/base/config.h"
#include "runtime/range/chunk.h"
#include "runtime/range/range.h"

#define GROUP 16u /* chunks: the card's memory is some 20 times as fast as the bus */
#define ALIKE 1.4 /* times as much use, or a part of it; its square is below 2 (placement.c) */

struct even_use {
    double low, high; /* uses of a byte */
};

struct group {
    uint32_t count, beyond;
    struct gs_exchange_chunk over, on_card; /* of each kind one, near the middle */
};

/* Chunks of other sizes are left alone: an exchange needs two that are of one. */
static bool is_grain(const struct gs_range *range, uint32_t index)
{
    const uint8_t state = range->chunks[index].state;

    return (state == GS_CHUNK_OVER || state == GS_CHUNK_RESIDENT) &&
           gs_range_chunk_bytes(range, index) == gs_runtime.config.grain &&
           gs_exchange_is_free(range, index);
}

static double density_of(const struct gs_range *range, uint32_t index)
{
    return (double)range->chunks[index].heat / (double)gs_runtime.config.grain;
}

/* The use that chunks beyond the card have in the mean. False: there are none, or none is used. */
static bool find_use(const struct gs_device *device, struct even_use *use)
{
    double sum = 0;
    uint64_t count = 0;

    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++)
            if (range->chunks[i].state == GS_CHUNK_OVER && is_grain(range, i)) {
                sum += density_of(range, i);
                count++;
            }
    if (sum <= 0)
        return false;
    use->low = sum / (double)count / ALIKE;
    use->high = sum / (double)count * ALIKE;
    return true;
}

static bool is_in(const struct gs_range *range, uint32_t index, const struct even_use *use)
{
    return is_grain(range, index) && density_of(range, index) >= use->low &&
           density_of(range, index) <= use->high;
}

/* Chunks of a group; 0: nothing lies beyond the card. Powers of two, so that a little more or less
 * there does not make new groups of all. */
static uint32_t group_size(const struct gs_device *device, const struct even_use *use)
{
    uint64_t all = 0, beyond = 0;
    uint32_t size = GROUP;

    for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++)
            if (is_in(range, i, use)) {
                all++;
                beyond += range->chunks[i].state == GS_CHUNK_OVER;
            }
    while (beyond != 0 && size * beyond < all)
        size *= 2;
    return beyond != 0 ? size : 0;
}

static void add_chunk(struct group *group, struct gs_range *range, uint32_t index,
                      uint32_t size)
{
    const bool beyond = range->chunks[index].state == GS_CHUNK_OVER;
    struct gs_exchange_chunk *one = beyond ? &group->over : &group->on_card;

    if (one->range == NULL || group->count <= size / 2)
        *one = (struct gs_exchange_chunk){range, index, gs_range_chunk_bytes(range, index),
                                          range->chunks[index].heat};
    group->count++;
    group->beyond += beyond;
}

bool gs_spread_choose(const struct gs_device *device, struct gs_exchange_chunk *beyond,
                      struct gs_exchange_chunk *on_card)
{
    struct group group = {0};
    struct even_use use;
    uint32_t most = 1, size = find_use(device, &use) ? group_size(device, &use) : 0;

    *beyond = *on_card = (struct gs_exchange_chunk){.range = NULL};
    for (struct gs_range *range = device->ranges; range != NULL && size != 0;
         range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++) {
            if (!is_in(range, i, &use))
                continue;
            add_chunk(&group, range, i, size);
            if (group.count < size)
                continue;
            if (group.beyond == 0)
                *on_card = group.on_card;
            if (group.beyond > most) {
                most = group.beyond;
                *beyond = group.over;
            }
            group = (struct group){0};
        }
    return beyond->range != NULL && on_card->range != NULL;
}
