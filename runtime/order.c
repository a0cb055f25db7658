/* SPDX-License-Identifier: Apache-2.0
 *
 * order.c: owns what was freed in stream order and not yet passed: for each stream its frees in
 * their order, found by size as well; and the events that mark them, which are used again.
 *
 * Invariants, under gs_memory_lock: a note is in its stream's order and in one of its size
 * lists, or in the list of spare ones; its range's life is ORDERED, or its piece is retired.
 * Whoever takes a note out owns its memory. A note's number changes whenever it is used anew:
 * an answer about its event counts only if it is still the same. Any thread.
 */
#include "runtime/order.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/client.h"
#include "runtime/driver.h"
#include "runtime/lock.h"
#include "runtime/memory.h"
#include "runtime/pool.h"
#include "runtime/slab.h"

#define SIZES      40
#define SCAN_LIMIT 64
#define SPARE_MOST 512 /* notes with their events kept for the next frees */
#define ATTEMPTS   4

struct note {
    struct note *later, *earlier;           /* of its stream */
    struct note *same_later, *same_earlier; /* of its stream and size */
    struct stream *stream;
    struct gs_range *range;
    CUdeviceptr piece;
    uint64_t bytes, number;
    CUevent event;
    CUcontext context; /* the event's */
};

struct stream {
    struct stream *next;
    unsigned long long id;
    CUcontext context;
    struct note *first, *last;
    struct note *sizes[SIZES];
};

static struct {
    struct stream *streams;
    struct note *spare;
    unsigned spare_count;
    uint64_t next_number;
    unsigned long long next_unknown;
} order;

CUresult gs_position_of(CUstream stream, bool per_thread, struct gs_position *position)
{
    CUresult result;

    *position = (struct gs_position){.stream = stream, .per_thread = per_thread};
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        result = gs_driver.cuCtxGetCurrent(&position->context);
    else
        result = gs_driver.cuStreamGetCtx(stream, &position->context);
    if (result != CUDA_SUCCESS)
        return result;
    if (position->context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    result = per_thread ? gs_driver.cuStreamGetId_ptsz(stream, &position->id)
                        : gs_driver.cuStreamGetId(stream, &position->id);
    if (result != CUDA_ERROR_NOT_SUPPORTED)
        return result;
    position->id = 0; /* a driver before 12.0: such memory comes back when it was passed */
    return CUDA_SUCCESS;
}

/* --- lists; under the lock --- */

static unsigned size_list(uint64_t bytes)
{
    const unsigned bit = 63u - (unsigned)__builtin_clzll(bytes | 1);

    return bit < SIZES ? bit : SIZES - 1;
}

static struct stream *stream_of(const struct gs_position *position)
{
    struct stream *stream = order.streams;

    while (stream != NULL && (position->id == 0 || stream->id != position->id ||
                              stream->context != position->context))
        stream = stream->next;
    return stream;
}

static void enlist(struct note *note, struct stream *stream)
{
    struct note **same = &stream->sizes[size_list(note->bytes)];

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
    note->number = ++order.next_number;
}

static void delist(struct note *note)
{
    struct stream *stream = note->stream, **link = &order.streams;

    *(note->earlier != NULL ? &note->earlier->later : &stream->first) = note->later;
    *(note->later != NULL ? &note->later->earlier : &stream->last) = note->earlier;
    if (note->same_later != NULL)
        note->same_later->same_earlier = note->same_earlier;
    else
        stream->sizes[size_list(note->bytes)] = note->same_earlier;
    if (note->same_earlier != NULL)
        note->same_earlier->same_later = note->same_later;
    note->number = ++order.next_number;
    note->stream = NULL;
    if (stream->first != NULL)
        return;
    while (*link != NULL && *link != stream)
        link = &(*link)->next;
    if (*link != NULL)
        *link = stream->next;
    free(stream);
}

/* Its event stays in use by nobody; false: there are enough, the caller destroys it. */
static bool keep_note(struct note *note)
{
    if (order.spare_count >= SPARE_MOST)
        return false;
    note->later = order.spare;
    order.spare = note;
    order.spare_count++;
    return true;
}

static struct note *spare_note(CUcontext context)
{
    for (struct note **at = &order.spare, *note; (note = *at) != NULL; at = &note->later)
        if (note->context == context) {
            *at = note->later;
            order.spare_count--;
            return note;
        }
    return NULL;
}

/* --- events --- */

static bool push(CUcontext context)
{
    CUcontext current = NULL;

    return gs_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != context &&
           gs_driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
}

static void pop(bool pushed)
{
    CUcontext popped;

    if (pushed)
        gs_driver.cuCtxPopCurrent_v2(&popped);
}

static CUevent event_new(CUcontext context)
{
    const bool pushed = push(context);
    CUevent event = NULL;

    if (gs_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        event = NULL;
    pop(pushed);
    return event;
}

static bool record(CUevent event, const struct gs_position *position)
{
    return (position->per_thread
                ? gs_driver.cuEventRecord_ptsz(event, position->stream)
                : gs_driver.cuEventRecord(event, position->stream)) == CUDA_SUCCESS;
}

CUevent gs_order_mark(const struct gs_position *position)
{
    CUevent event = event_new(position->context);

    if (event == NULL || record(event, position))
        return event;
    gs_driver.cuEventDestroy_v2(event);
    return NULL;
}

/* A call's failure says nothing about the work; a broken context fails each time. */
CUresult gs_order_wait(const struct gs_position *position)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        result = position->per_thread ? gs_driver.cuStreamSynchronize_ptsz(position->stream)
                                      : gs_driver.cuStreamSynchronize(position->stream);
        if (result == CUDA_SUCCESS || gs_memory_is_captured(result))
            break;
    }
    return result;
}

static void drop_note(struct note *note)
{
    const bool pushed = push(note->context);

    gs_driver.cuEventDestroy_v2(note->event);
    pop(pushed);
    free(note);
}

/* a note with an event recorded behind the stream's work; NULL: not to be had */
static struct note *note_new(const struct gs_position *position)
{
    struct note *note;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    note = spare_note(position->context);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (note == NULL) {
        note = calloc(1, sizeof *note);
        if (note == NULL)
            return NULL;
        note->context = position->context;
        note->event = event_new(position->context);
        if (note->event == NULL) {
            free(note);
            return NULL;
        }
    }
    if (record(note->event, position))
        return note;
    drop_note(note);
    return NULL;
}

/* --- frees --- */

bool gs_order_put(struct gs_range *range, CUdeviceptr piece, uint64_t bytes,
                  const struct gs_position *position)
{
    struct note *note = note_new(position);
    struct stream *fresh, *stream;

    if (note == NULL)
        return false;
    fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        drop_note(note);
        return false;
    }
    note->range = range;
    note->piece = piece;
    note->bytes = bytes;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    stream = stream_of(position);
    if (stream == NULL) {
        stream = fresh;
        fresh = NULL;
        stream->id = position->id != 0 ? position->id : ~order.next_unknown++;
        stream->context = position->context;
        stream->next = order.streams;
        order.streams = stream;
    }
    enlist(note, stream);
    if (piece == 0)
        range->life = GS_RANGE_ORDERED;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(fresh);
    return true;
}

static bool suits(const struct note *note, const struct gs_device *device,
                  const struct gs_pool *pool, uint64_t bytes, bool is_piece)
{
    return note->bytes == bytes && (note->piece != 0) == is_piece &&
           note->range->device == device && note->range->pool == pool;
}

static struct note *find(const struct stream *stream, const struct gs_device *device,
                         const struct gs_pool *pool, uint64_t bytes, bool is_piece)
{
    struct note *note = stream->sizes[size_list(bytes)];

    for (unsigned i = 0; note != NULL && i < SCAN_LIMIT; i++, note = note->same_earlier)
        if (suits(note, device, pool, bytes, is_piece))
            return note;
    return NULL;
}

static struct gs_freed_memory memory_of(const struct note *note)
{
    if (note->piece == 0)
        note->range->life = GS_RANGE_DISPOSING;
    return (struct gs_freed_memory){note->range, note->piece};
}

struct gs_freed_memory gs_order_take(const struct gs_position *position,
                                     const struct gs_device *device, const struct gs_pool *pool,
                                     uint64_t bytes, bool is_piece)
{
    const struct stream *stream = stream_of(position);
    struct note *note = stream != NULL ? find(stream, device, pool, bytes, is_piece) : NULL;
    struct gs_freed_memory memory;

    if (note == NULL || order.spare_count >= SPARE_MOST)
        return (struct gs_freed_memory){0}; /* no driver call here: notes must stay few */
    delist(note);
    memory = memory_of(note);
    keep_note(note);
    return memory;
}

static bool wait_behind(const struct gs_position *position, CUevent event)
{
    return (position->per_thread
                ? gs_driver.cuStreamWaitEvent_ptsz(position->stream, event, 0)
                : gs_driver.cuStreamWaitEvent(position->stream, event, 0)) == CUDA_SUCCESS;
}

/* Its range is disposed of when the event has passed. */
static void leave_to_client(struct note *note)
{
    struct gs_range *range = note->range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range->after = note->event;
    range->context = note->context; /* with which it ends */
    gs_memory_bury(range);
    gs_pool_leave(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(note);
    gs_client_wake();
}

struct gs_range *gs_order_take_behind(const struct gs_position *position,
                                      const struct gs_device *device,
                                      const struct gs_pool *pool, uint64_t bytes)
{
    struct gs_range *range = NULL;
    struct note *note = NULL;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (struct stream *at = order.streams; at != NULL && note == NULL; at = at->next)
        if (at->context == position->context)
            note = find(at, device, pool, bytes, false);
    if (note != NULL) {
        delist(note);
        range = memory_of(note).range;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (note == NULL)
        return NULL;
    if (!wait_behind(position, note->event) &&
        gs_memory_synchronize(note->context) != CUDA_SUCCESS) {
        leave_to_client(note); /* nothing has waited for it */
        return NULL;
    }
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (keep_note(note))
        note = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (note != NULL)
        drop_note(note);
    return range;
}

/* --- what has been passed --- */

static void end(struct note *note, bool destroy_event)
{
    struct gs_range *range = note->range;
    const CUdeviceptr piece = note->piece;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!destroy_event && keep_note(note))
        note = NULL;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (note != NULL && !destroy_event)
        drop_note(note);
    else
        free(note);
    if (piece != 0)
        gs_memory_put_piece(range, piece);
    else
        gs_memory_keep_or_drop(range);
}

/* The stream's first free, for the query that follows without the lock. */
struct question {
    CUevent event;
    CUcontext context;
    uint64_t number;
    unsigned long long stream; /* its id */
};

static bool first_of(const struct stream *stream, struct question *question)
{
    const struct note *note = stream != NULL ? stream->first : NULL;

    if (note == NULL)
        return false;
    *question = (struct question){note->event, note->context, note->number, stream->id};
    return true;
}

static struct stream *by_id(unsigned long long id, CUcontext context)
{
    struct stream *stream = order.streams;

    while (stream != NULL && (stream->id != id || stream->context != context))
        stream = stream->next;
    return stream;
}

/* Has the event passed? No answer is no yes; a broken context runs nothing any more. */
static bool has_passed(const struct question *question)
{
    const bool pushed = push(question->context);
    const CUresult result = gs_driver.cuEventQuery(question->event);

    pop(pushed);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return result == CUDA_SUCCESS;
    return !gs_memory_is_captured(gs_memory_synchronize(question->context));
}

/* takes the note out if it is still the stream's first */
static struct note *take_first(const struct question *question)
{
    struct stream *stream = by_id(question->stream, question->context);
    struct note *note = stream != NULL ? stream->first : NULL;

    if (note == NULL || note->number != question->number)
        return NULL;
    delist(note);
    memory_of(note);
    return note;
}

/* One stream's frees, the oldest first, until one has not been passed. True: it has some left.
 */
static bool collect_stream(struct question *question, bool all)
{
    struct note *note;
    bool more = true;

    while (more) {
        if (!all && !has_passed(question))
            return true;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        note = take_first(question);
        more = first_of(by_id(question->stream, question->context), question);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (note != NULL)
            end(note, false);
    }
    return false;
}

bool gs_order_collect(bool all)
{
    struct question question;
    bool waits = false, more = true;

    for (unsigned skip = 0; more; skip++) {
        const struct stream *stream;
        unsigned i = 0;

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        for (stream = order.streams; stream != NULL && i < skip; stream = stream->next)
            i++;
        more = first_of(stream, &question);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (more && collect_stream(&question, all))
            waits = true;
        else if (more)
            skip--; /* that stream is out of the list */
    }
    return waits;
}

/* A slab ends with its context; one of which another context's work may still use a piece ends
 * with that one instead. Under the lock. */
static void hand_over_slabs(CUcontext context)
{
    for (const struct stream *at = order.streams; at != NULL; at = at->next)
        for (const struct note *note = at->first; note != NULL; note = note->later)
            if (note->piece != 0 && note->range->context == context)
                note->range->context = note->context;
}

static struct note *take_of(CUcontext context)
{
    for (const struct stream *at = order.streams; at != NULL; at = at->next)
        if (at->context == context) {
            struct note *note = at->first;

            delist(note);
            memory_of(note);
            return note;
        }
    return NULL;
}

void gs_order_context_ended(CUcontext context)
{
    struct note *note;

    do {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        note = take_of(context);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (note != NULL)
            end(note, true);
    } while (note != NULL);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    hand_over_slabs(context);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    do {
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        note = spare_note(context);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        free(note);
    } while (note != NULL);
}

void gs_order_after_fork(void)
{
    order.streams = NULL; /* as with ranges: left to the parent */
    order.spare = NULL;
    order.spare_count = 0;
}
