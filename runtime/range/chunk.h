/* SPDX-License-Identifier: Apache-2.0
 *
 * chunk.h: the chunks of a range: their addresses, and whether the program can reach them.
 */
#pragma once

#include "runtime/range/range.h"

uint64_t gs_range_chunk_bytes(const struct gs_range *range, uint32_t chunk);
CUdeviceptr gs_range_chunk_address(const struct gs_range *range, uint32_t chunk);

/* The chunk has memory. */
static inline bool gs_chunk_is_there(const struct gs_chunk *chunk)
{
    return chunk->state == GS_CHUNK_RESIDENT || chunk->state == GS_CHUNK_OVER;
}

/* The chunk has memory, which is mapped at its address if its range has an address. */
static inline bool gs_chunk_is_mapped(const struct gs_chunk *chunk)
{
    return gs_chunk_is_there(chunk) && !chunk->adrift;
}

/* The following under gs_memory_lock. */

/* The range's chunks are mapped at its address when they are on the device. */
bool gs_range_is_mapped(const struct gs_range *range);

/* The program can reach the range. */
bool gs_range_is_needed(const struct gs_range *range);
