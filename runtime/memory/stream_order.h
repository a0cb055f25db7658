/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_order.h: memory that was freed in stream order, until its stream has passed the free.
 *
 * Until then only that stream may reuse it (its later work comes after the work that used the
 * memory), or a stream that is made to wait for it. Each free has an event behind it in its
 * stream.
 */
#pragma once

#include "runtime/memory/stream_position.h"
#include "runtime/range/range.h"

/* Notes a free behind everything submitted so far: of a range whose life is DISPOSING, resident
 * as a whole (piece 0), or of a retired piece of a slab. bytes: the range's `reserved`, or the
 * piece's own size. False: there is no event, and nothing was noted. Without gs_memory_lock. */
bool gs_stream_order_put(struct gs_range *range, CUdeviceptr piece, uint64_t bytes,
                         const struct gs_stream_position *position);

struct gs_freed_memory {
    struct gs_range *range; /* NULL: there is none */
    CUdeviceptr piece;
};

/* Takes memory of exactly these bytes and this pool that this stream has freed; the stream may
 * use it again behind the free. is_piece: of a slab. Under gs_memory_lock. */
struct gs_freed_memory gs_stream_order_take(const struct gs_stream_position *position,
                                            const struct gs_device *device,
                                            const struct gs_pool *pool, uint64_t bytes,
                                            bool is_piece);

/* Takes a whole range that any other stream has freed, and makes `position` wait for it. For a
 * pool that allows it, when there is no other way. NULL: there is none. Without the lock. */
struct gs_range *gs_stream_order_take_behind(const struct gs_stream_position *position,
                                             const struct gs_device *device,
                                             const struct gs_pool *pool, uint64_t bytes);

/* Releases memory whose frees have been passed; all: they all have been (the GPU is at rest).
 * True while some memory still waits. Makes driver calls that are forbidden to threads that
 * capture. */
bool gs_stream_order_collect(bool all);

/* Between these two calls no thread asks about events, because a context ends, and its events
 * with it. Waits for threads that are asking, for at most a second. */
void gs_stream_order_hold_off(void);
void gs_stream_order_release(void);

/* A context has ended: everything freed in it has been passed, and its events have ended. */
void gs_stream_order_context_ended(CUcontext context);
