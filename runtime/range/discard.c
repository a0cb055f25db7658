/* SPDX-License-Identifier: Apache-2.0
 *
 * discard.c: marks blocks whose contents the program has given up. State: in the chunks, under
 * gs_memory_lock. The addresses come from the program: they are looked up, never read.
 */
#include "runtime/range/discard.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/range/slab.h"

#define BLOCKS_MARKED 64u /* bits of a chunk's mask */

/* Under the lock: the live range that contains all of these bytes in one allocation; NULL: none. */
static struct gs_range *find_owner(uint64_t address, uint64_t bytes)
{
    struct gs_range *range = gs_range_at(address);
    CUdeviceptr base;
    uint64_t size;

    if (range == NULL || range->theirs != NULL || range->chunk_count == 0)
        return NULL; /* managed memory has no chunks of ours */
    base = range->node.base;
    size = range->node.size;
    if (range->slab != NULL && !gs_slab_piece(range, address, &base, &size))
        return NULL;
    return address - base < size && bytes <= size - (address - base) ? range : NULL;
}

/* The mask of the chunk's blocks from first to last (not included); at most BLOCKS_MARKED of
 * them. */
static uint64_t mask_of(uint64_t first, uint64_t last)
{
    const uint64_t below_last = last >= BLOCKS_MARKED ? UINT64_MAX : (UINT64_C(1) << last) - 1;

    return first >= BLOCKS_MARKED || first >= last ? 0
                                                   : below_last & ~((UINT64_C(1) << first) - 1);
}

static uint64_t marked_bytes(uint64_t mask, uint64_t chunk_bytes)
{
    const uint64_t blocks = (uint64_t)__builtin_popcountll(mask);
    const uint64_t last = chunk_bytes / GS_BLOCK_BYTES, rest = chunk_bytes % GS_BLOCK_BYTES;
    const bool partial = rest != 0 && last < BLOCKS_MARKED && (mask >> last & 1) != 0;

    return blocks * GS_BLOCK_BYTES - (partial ? GS_BLOCK_BYTES - rest : 0);
}

/* Under the lock. from, to: offsets in the range, both within this chunk. */
static uint64_t mark_chunk(struct gs_range *range, uint32_t index, uint64_t from, uint64_t to,
                           uint64_t stamp)
{
    struct gs_chunk *chunk = &range->chunks[index];
    const uint64_t start = index * range->chunk_bytes,
                   bytes = gs_range_chunk_bytes(range, index);
    const uint64_t low = from > start ? from - start : 0,
                   high = to - start < bytes ? to - start : bytes;
    const uint64_t first = (low + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES;
    const uint64_t last =
        high == bytes ? (bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES : high / GS_BLOCK_BYTES;
    const uint64_t mask = mask_of(first, last);

    if (mask == 0)
        return 0;
    if (chunk->discard_stamp != stamp) /* an older mask is no longer valid */
        chunk->discarded = 0;
    chunk->discard_stamp = stamp;
    chunk->discarded |= mask;
    return marked_bytes(mask, bytes);
}

static bool is_no_extent(uint64_t address, uint64_t bytes)
{
    return address == 0 || bytes == 0 || address + bytes < address || bytes > INT64_MAX;
}

int64_t gs_discard_mark(uint64_t address, uint64_t bytes)
{
    /* before the lock: no mark is newer than its stamp says */
    const uint64_t stamp = gs_gate_stamp();
    struct gs_range *range;
    uint64_t from, to, marked = 0;

    if (is_no_extent(address, bytes))
        return -EINVAL;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = find_owner(address, bytes);
    if (range != NULL && !range->pinned) {
        from = address - range->node.base;
        /* the bytes behind the end of an allocation, up to the end of its memory, belong to no
         * allocation */
        to = range->slab == NULL && from + bytes == range->node.size ? range->reserved
                                                                     : from + bytes;
        for (uint64_t i = from / range->chunk_bytes;
             i < range->chunk_count && i * range->chunk_bytes < to; i++)
            marked += mark_chunk(range, (uint32_t)i, from, to, stamp);
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return range == NULL ? -EFAULT : (int64_t)marked;
}

int64_t gs_discard_keep(uint64_t address, uint64_t bytes)
{
    struct gs_range *range;
    uint64_t from, to;

    if (is_no_extent(address, bytes))
        return -EINVAL;
    GS_HOLD_MEMORY;
    range = find_owner(address, bytes);
    from = range != NULL ? address - range->node.base : 0;
    to = from + bytes;
    for (uint64_t i = range != NULL ? from / range->chunk_bytes : 0;
         range != NULL && i < range->chunk_count && i * range->chunk_bytes < to; i++) {
        const uint64_t start = i * range->chunk_bytes, low = from > start ? from - start : 0;

        range->chunks[i].discarded &=
            ~mask_of(low / GS_BLOCK_BYTES, (to - start + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES);
    }
    return range == NULL ? -EFAULT : 0;
}

uint64_t gs_discard_now(const struct gs_chunk *chunk)
{
    return chunk->discarded != 0 && chunk->discard_stamp == gs_gate_closed_stamp()
               ? chunk->discarded
               : 0;
}
