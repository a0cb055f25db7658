/* SPDX-License-Identifier: Apache-2.0
 *
 * chunk.c: whether the chunks of a range are mapped and needed. No state.
 */
#include "runtime/range/chunk.h"
#include "runtime/range/owners.h"

uint64_t gs_range_chunk_bytes(const struct gs_range *range, uint32_t chunk)
{
    const uint64_t from = chunk * range->chunk_bytes;

    return range->reserved - from < range->chunk_bytes ? range->reserved - from
                                                       : range->chunk_bytes;
}

CUdeviceptr gs_range_chunk_address(const struct gs_range *range, uint32_t chunk)
{
    return range->node.base + chunk * range->chunk_bytes;
}

bool gs_range_is_mapped(const struct gs_range *range)
{
    return range->own == NULL || range->own->mapped;
}

bool gs_range_is_needed(const struct gs_range *range)
{
    return range->own == NULL || (range->own->mapped && range->own->accessible);
}
