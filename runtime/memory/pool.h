/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: the memory pools whose memory we move: those on a device, for this process alone.
 *
 * The program holds the driver's own handle of each pool. So calls that we do not serve
 * (allocation nodes of graphs, export, questions about access) can go to the driver, whose pool
 * stays empty. Pools that can be exported, of the host, or of managed memory are the driver's
 * alone.
 */
#pragma once

#include "runtime/memory/stream_position.h"
#include "runtime/range/range.h"

/* The pool behind a handle if it is one of ours; NULL: the driver's alone. Any thread. */
struct gs_pool *gs_pool_of(CUmemoryPool handle);

/* The driver has just made a pool with these properties: it is ours if we can serve it. */
void gs_pool_created(CUmemoryPool handle, const CUmemPoolProps *props);
void gs_pool_destroyed(CUmemoryPool handle);

/* As cuMemAllocFromPoolAsync: the memory may be used behind everything that the stream has run
 * so far. */
CUresult gs_pool_allocate(struct gs_pool *pool, uint64_t bytes,
                          const struct gs_stream_position *position, CUdeviceptr *address);

/* Attributes that we answer; *ours is false for the others. The driver has accepted the value,
 * or has given its own (for an amount, the bytes that its pool holds itself). */
void gs_pool_attribute_set(struct gs_pool *pool, CUmemPool_attribute attribute,
                           const void *value);
void gs_pool_attribute_get(struct gs_pool *pool, CUmemPool_attribute attribute, void *value);

/* Releases unused memory of the pool, down to keep bytes. */
void gs_pool_trim(struct gs_pool *pool, uint64_t keep);

/* The driver has accepted this access. Inside the gate. */
CUresult gs_pool_set_access(struct gs_pool *pool, const CUmemAccessDesc *access, size_t count);
