/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.c: owns the sorted tables of address ranges that memory is looked up in.
 * Invariants: the ranges of a table are disjoint and ascending; the table does not own them.
 * Threads: any, under sim.lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/sim.h"

size_t sim_ranges_after(const struct sim_ranges *ranges, CUdeviceptr address)
{
    size_t low = 0, high = ranges->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct sim_range *range = ranges->item[middle];
        if (range->start + range->size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct sim_range *sim_ranges_find(const struct sim_ranges *ranges, CUdeviceptr address)
{
    const size_t i = sim_ranges_after(ranges, address);

    return i < ranges->count && ranges->item[i]->start <= address ? ranges->item[i] : NULL;
}

bool sim_ranges_overlap(const struct sim_ranges *ranges, CUdeviceptr start, size_t size)
{
    const size_t i = sim_ranges_after(ranges, start);

    return i < ranges->count && ranges->item[i]->start < start + size;
}

int sim_ranges_insert(struct sim_ranges *ranges, struct sim_range *range)
{
    if (ranges->count == ranges->capacity) {
        const size_t capacity = ranges->capacity ? ranges->capacity * 2 : 64;
        struct sim_range **item = realloc(ranges->item, capacity * sizeof(struct sim_range *));
        if (!item)
            return -ENOMEM;
        ranges->item = item;
        ranges->capacity = capacity;
    }
    const size_t i = sim_ranges_after(ranges, range->start);
    memmove(&ranges->item[i + 1], &ranges->item[i],
            (ranges->count - i) * sizeof(struct sim_range *));
    ranges->item[i] = range;
    ranges->count++;
    return 0;
}

void sim_ranges_remove(struct sim_ranges *ranges, const struct sim_range *range)
{
    const size_t i = sim_ranges_after(ranges, range->start);

    if (i >= ranges->count || ranges->item[i] != range)
        return;
    ranges->count--;
    memmove(&ranges->item[i], &ranges->item[i + 1],
            (ranges->count - i) * sizeof(struct sim_range *));
}
