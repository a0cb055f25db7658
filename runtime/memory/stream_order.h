/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_order.h: memory that was freed in stream order, until its stream has passed the free.
 *
 * Until then only that stream may have it again (what it runs next comes after what used the
 * memory), or one that is made to wait for it. Each free has an event behind it in its stream.
 */
#ifndef GS_RUNTIME_MEMORY_STREAM_ORDER_H
#define GS_RUNTIME_MEMORY_STREAM_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#include "runtime/memory/stream_position.h"
#include "runtime/range/range.h"

/* Notes a free behind everything submitted so far: a range whose life is DISPOSING, in place as
 * a whole (piece 0), or a retired piece of a slab. bytes: the range's `reserved`, or the
 * piece's own size. False: there is no event to be had; nothing was noted. Without
 * gs_memory_lock. */
bool gs_stream_order_put(struct gs_range *range, CUdeviceptr piece, uint64_t bytes,
                         const struct gs_stream_position *position);

struct gs_freed_memory {
    struct gs_range *range; /* NULL: there is none */
    CUdeviceptr piece;
};

/* Memory of exactly these bytes and this pool that this stream has freed: it may be used again
 * behind that. is_piece: of a slab. Under gs_memory_lock. */
struct gs_freed_memory gs_stream_order_take(const struct gs_stream_position *position,
                                            const struct gs_device *device,
                                            const struct gs_pool *pool, uint64_t bytes,
                                            bool is_piece);

/* A whole range from any other stream, which `position` is then made to wait for: for a pool
 * that allows it, when there is no other way. NULL: there is none. Without the lock. */
struct gs_range *gs_stream_order_take_behind(const struct gs_stream_position *position,
                                             const struct gs_device *device,
                                             const struct gs_pool *pool, uint64_t bytes);

/* Ends what has been passed; all: everything has (the GPU is at rest). True while some of it
 * still waits. Makes driver calls that are forbidden to threads that capture. */
bool gs_stream_order_collect(bool all);

/* Between the two nobody asks about events: a context ends, and its events with it. Waits for
 * those who do, at most a second. */
void gs_stream_order_hold_off(void);
void gs_stream_order_release(void);

/* A context has ended: everything freed in it has been passed, its events are gone. */
void gs_stream_order_context_ended(CUcontext context);

void gs_stream_order_after_fork(void);

#endif
