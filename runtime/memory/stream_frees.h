/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_frees.h: the lists behind stream_order.c: the frees that each stream has not passed, in
 * their order and by size. No other file includes it.
 *
 * Everything under gs_memory_lock.
 */
#pragma once

#include "runtime/memory/stream_position.h"
#include "runtime/range/range.h"

#define GS_NOTE_SIZES   40
#define GS_NOTE_BUCKETS 256 /* of streams */

/* one free, with an event behind it */
struct gs_note {
    struct gs_note *later, *earlier;           /* of its stream */
    struct gs_note *same_later, *same_earlier; /* of its stream and size */
    struct gs_note_stream *stream;
    struct gs_range *range;
    CUdeviceptr piece;
    uint64_t bytes, number;
    CUevent event;
    CUcontext context; /* the event's */
};

/* exists while it has notes */
struct gs_note_stream {
    struct gs_note_stream *next; /* of its bucket */
    unsigned long long id;
    CUcontext context;
    struct gs_note *first, *last;
    struct gs_note *sizes[GS_NOTE_SIZES];
};

/* True if any stream has notes. */
bool gs_note_any(void);

/* NULL: there is none. id 0 is an unknown stream, which has none. */
struct gs_note_stream *gs_note_stream(unsigned long long id, CUcontext context);

/* The i-th stream of a bucket; NULL after the last. */
struct gs_note_stream *gs_note_stream_at(unsigned bucket, unsigned i);

/* Adds the newest note of the stream. `fresh` was allocated by the caller; returns it if it was
 * not needed. */
struct gs_note_stream *gs_note_add(struct gs_note *note,
                                   const struct gs_stream_position *position,
                                   struct gs_note_stream *fresh);
void gs_note_remove(struct gs_note *note);

/* The stream's note of exactly so many bytes. */
struct gs_note *gs_note_find(const struct gs_note_stream *stream,
                             const struct gs_device *device, const struct gs_pool *pool,
                             uint64_t bytes, bool is_piece);

/* Spare notes, with their events, for the next frees. */
void gs_note_keep(struct gs_note *note);
struct gs_note *gs_note_spare(CUcontext context); /* NULL: none */
struct gs_note *gs_note_surplus(void);            /* NULL: there are not too many */
