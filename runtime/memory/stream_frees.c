/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_frees.c: owns the notes of stream_order.c: the frees of each stream in their order,
 * found by size as well; the streams by their ids; and the spare notes.
 *
 * Invariants, under gs_memory_lock: a note is in its stream's order and in one of its size lists,
 * or in the list of spare notes, or belongs to the thread that took it. A note's number changes
 * whenever it is used again.
 */
#include "runtime/memory/stream_frees.h"

#define SCAN_LIMIT 64
#define SPARE_MOST 512 /* notes with their events kept for the next frees */

static struct {
    struct gs_note_stream *streams[GS_NOTE_BUCKETS];
    unsigned stream_count;
    struct gs_note *spare;
    unsigned spare_count;
    uint64_t next_number;
    unsigned long long next_unknown;
} notes GS_ZERO_IN_CHILD;

static unsigned size_list(uint64_t bytes)
{
    const unsigned bit = 63u - (unsigned)__builtin_clzll(bytes | 1);

    return bit < GS_NOTE_SIZES ? bit : GS_NOTE_SIZES - 1;
}

static struct gs_note_stream **bucket_of(unsigned long long id)
{
    return &notes.streams[id * 0x9e3779b97f4a7c15ull >> 56];
}
_Static_assert(GS_NOTE_BUCKETS == 256, "the uppermost 8 bits");

bool gs_note_any(void)
{
    return notes.stream_count != 0;
}

struct gs_note_stream *gs_note_stream(unsigned long long id, CUcontext context)
{
    struct gs_note_stream *stream = id != 0 ? *bucket_of(id) : NULL;

    while (stream != NULL && (stream->id != id || stream->context != context))
        stream = stream->next;
    return stream;
}

struct gs_note_stream *gs_note_stream_at(unsigned bucket, unsigned i)
{
    struct gs_note_stream *stream = notes.streams[bucket];

    while (stream != NULL && i-- > 0)
        stream = stream->next;
    return stream;
}

struct gs_note_stream *gs_note_add(struct gs_note *note,
                                   const struct gs_stream_position *position,
                                   struct gs_note_stream *fresh)
{
    struct gs_note_stream *stream = gs_note_stream(position->id, position->context), **bucket;
    struct gs_note **same;

    if (stream == NULL) {
        stream = fresh;
        fresh = NULL;
        stream->id = position->id != 0 ? position->id : ~notes.next_unknown++;
        stream->context = position->context;
        bucket = bucket_of(stream->id);
        stream->next = *bucket;
        *bucket = stream;
        notes.stream_count++;
    }
    same = &stream->sizes[size_list(note->bytes)];
    note->stream = stream;
    note->later = NULL;
    note->earlier = stream->last;
    *(stream->last != NULL ? &stream->last->later : &stream->first) = note;
    stream->last = note;
    note->same_earlier = *same;
    note->same_later = NULL;
    if (*same != NULL)
        (*same)->same_later = note;
    *same = note;
    note->number = ++notes.next_number;
    return fresh;
}

void gs_note_remove(struct gs_note *note)
{
    struct gs_note_stream *stream = note->stream, **link = bucket_of(stream->id);

    *(note->earlier != NULL ? &note->earlier->later : &stream->first) = note->later;
    *(note->later != NULL ? &note->later->earlier : &stream->last) = note->earlier;
    if (note->same_later != NULL)
        note->same_later->same_earlier = note->same_earlier;
    else
        stream->sizes[size_list(note->bytes)] = note->same_earlier;
    if (note->same_earlier != NULL)
        note->same_earlier->same_later = note->same_later;
    note->number = ++notes.next_number;
    note->stream = NULL;
    if (stream->first != NULL)
        return;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    notes.stream_count--;
    free(stream);
}

/* A piece ends with the context of its slab, which must be the stream's then. */
static bool note_suits(const struct gs_note *note, const struct gs_device *device,
                       const struct gs_pool *pool, uint64_t bytes, bool is_piece)
{
    return note->bytes == bytes && (note->piece != 0) == is_piece &&
           (!is_piece || note->range->context == note->stream->context) &&
           note->range->device == device && note->range->pool == pool;
}

struct gs_note *gs_note_find(const struct gs_note_stream *stream,
                             const struct gs_device *device, const struct gs_pool *pool,
                             uint64_t bytes, bool is_piece)
{
    struct gs_note *note = stream->sizes[size_list(bytes)];

    for (unsigned i = 0; note != NULL && i < SCAN_LIMIT; i++, note = note->same_earlier)
        if (note_suits(note, device, pool, bytes, is_piece))
            return note;
    return NULL;
}

void gs_note_keep(struct gs_note *note)
{
    note->later = notes.spare;
    notes.spare = note;
    notes.spare_count++;
}

struct gs_note *gs_note_spare(CUcontext context)
{
    for (struct gs_note **at = &notes.spare, *note; (note = *at) != NULL; at = &note->later)
        if (note->context == context) {
            *at = note->later;
            notes.spare_count--;
            return note;
        }
    return NULL;
}

struct gs_note *gs_note_surplus(void)
{
    return notes.spare_count > SPARE_MOST ? gs_note_spare(notes.spare->context) : NULL;
}
