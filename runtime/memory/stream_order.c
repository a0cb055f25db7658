/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_order.c: frees in stream order and the events that mark them, which are used again.
 * stream_frees.c has the lists.
 *
 * Invariants, under gs_memory_lock: while a note is in its stream's list, its range's life is
 * ORDERED, or its piece is retired. A thread that takes a note out owns its memory. An answer
 * about a note's event counts only if the note's number is still the same, and an event is
 * destroyed only while no thread asks (`asking`), because the note may have been taken out
 * meanwhile. Any thread.
 */
#include "runtime/memory/stream_order.h"
#include "runtime/gate/capture.h"
#include "runtime/memory/stream_frees.h"
#include "runtime/memory/pool_accounts.h"
#include "runtime/memory/retire.h"
#include "runtime/memory/stream_position.h"

#define HOLD_OFF_NS 1000000000ull

static struct {
    unsigned asking;   /* threads in gs_stream_order_collect() */
    unsigned held_off; /* contexts that are about to end */
} order GS_ZERO_IN_CHILD;

/* Makes a note with an event recorded behind the stream's work; NULL: there is no event. */
static struct gs_note *note_new(const struct gs_stream_position *position)
{
    struct gs_note *note = GS_WITH_MEMORY(gs_note_spare(position->context));

    if (note == NULL) {
        note = calloc(1, sizeof *note);
        if (note == NULL)
            return NULL;
        note->context = position->context;
        note->event = gs_stream_position_event(position->context);
        if (note->event == NULL) {
            free(note);
            return NULL;
        }
    }
    if (gs_stream_position_record(note->event, position))
        return note;
    GS_WITH_MEMORY(gs_note_keep(note));
    return NULL;
}

/* --- frees --- */

bool gs_stream_order_put(struct gs_range *range, CUdeviceptr piece, uint64_t bytes,
                         const struct gs_stream_position *position)
{
    struct gs_note *note = note_new(position);
    struct gs_note_stream *fresh;

    if (note == NULL)
        return false;
    fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        GS_WITH_MEMORY(gs_note_keep(note));
        return false;
    }
    note->range = range;
    note->piece = piece;
    note->bytes = bytes;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    fresh = gs_note_add(note, position, fresh);
    if (piece == 0)
        range->life = GS_RANGE_ORDERED;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(fresh);
    return true;
}

/* under the lock: takes the note out of the lists; its memory is the caller's */
static struct gs_freed_memory take_note(struct gs_note *note)
{
    gs_note_remove(note);
    if (note->piece == 0)
        note->range->life = GS_RANGE_DISPOSING;
    return (struct gs_freed_memory){note->range, note->piece};
}

struct gs_freed_memory gs_stream_order_take(const struct gs_stream_position *position,
                                            const struct gs_device *device,
                                            const struct gs_pool *pool, uint64_t bytes,
                                            bool is_piece)
{
    const struct gs_note_stream *stream = gs_note_stream(position->id, position->context);
    struct gs_note *note =
        stream != NULL ? gs_note_find(stream, device, pool, bytes, is_piece) : NULL;
    struct gs_freed_memory memory;

    if (note == NULL)
        return (struct gs_freed_memory){0};
    memory = take_note(note);
    gs_note_keep(note);
    return memory;
}

static bool wait_behind(const struct gs_stream_position *position, CUevent event)
{
    return (position->per_thread
                ? gs_driver.cuStreamWaitEvent_ptsz(position->stream, event, 0)
                : gs_driver.cuStreamWaitEvent(position->stream, event, 0)) == CUDA_SUCCESS;
}

/* under the lock: finds a note of any stream of the context */
static struct gs_note *find_anywhere(CUcontext context, const struct gs_device *device,
                                     const struct gs_pool *pool, uint64_t bytes)
{
    const struct gs_note_stream *stream;
    struct gs_note *note;

    for (unsigned bucket = 0; bucket < GS_NOTE_BUCKETS; bucket++)
        for (stream = gs_note_stream_at(bucket, 0); stream != NULL; stream = stream->next)
            if (stream->context == context &&
                (note = gs_note_find(stream, device, pool, bytes, false)) != NULL)
                return note;
    return NULL;
}

struct gs_range *gs_stream_order_take_behind(const struct gs_stream_position *position,
                                             const struct gs_device *device,
                                             const struct gs_pool *pool, uint64_t bytes)
{
    struct gs_range *range = NULL;
    struct gs_note *note;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    note = find_anywhere(position->context, device, pool, bytes);
    if (note != NULL)
        range = take_note(note).range;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (note == NULL)
        return NULL;
    if (!wait_behind(position, note->event) &&
        gs_synchronize_context(note->context) != CUDA_SUCCESS) {
        /* nothing has waited for it: the client thread disposes of the range when its event has
         * passed */
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        range->dead.after = note->event;
        range->context = note->context; /* the range ends with it */
        gs_retire_bury(range);
        gs_pool_leave(range);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        free(note);
        gs_worker_wake();
        return NULL;
    }
    GS_WITH_MEMORY(gs_note_keep(note));
    return range;
}

/* --- what has been passed --- */

static void give_back(const struct gs_freed_memory *memory)
{
    if (memory->piece != 0)
        gs_retire_piece(memory->range, memory->piece);
    else
        gs_retire_keep_or_drop(memory->range);
}

/* The stream's first free, for the query that follows without the lock. */
struct question {
    CUevent event;
    CUcontext context;
    uint64_t number;
    unsigned long long stream; /* its id */
};

static bool first_of(const struct gs_note_stream *stream, struct question *question)
{
    const struct gs_note *note = stream != NULL ? stream->first : NULL;

    if (note == NULL)
        return false;
    *question = (struct question){note->event, note->context, note->number, stream->id};
    return true;
}

/* Has the event passed? Without an answer it counts as not passed. A broken context runs nothing
 * any more. */
static bool has_passed(const struct question *question)
{
    const bool pushed = gs_stream_position_enter(question->context);
    const CUresult result = gs_driver.cuEventQuery(question->event);

    gs_stream_position_leave(pushed);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return result == CUDA_SUCCESS;
    return !gs_capture_forbids(gs_synchronize_context(question->context));
}

/* under the lock: takes the note out if it is still the stream's first */
static struct gs_freed_memory take_first(const struct question *question)
{
    const struct gs_note_stream *stream = gs_note_stream(question->stream, question->context);
    struct gs_note *note = stream != NULL ? stream->first : NULL;
    struct gs_freed_memory memory;

    if (note == NULL || note->number != question->number)
        return (struct gs_freed_memory){0};
    memory = take_note(note);
    gs_note_keep(note);
    return memory;
}

/* Releases one stream's frees, the oldest first, until a free has not been passed. True: some are
 * left. */
static bool collect_stream(struct question *question, bool all)
{
    struct gs_freed_memory memory;
    bool more = true;

    while (more) {
        if (!all && !has_passed(question))
            return true;
        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        memory = take_first(question);
        more = first_of(gs_note_stream(question->stream, question->context), question);
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
        if (memory.range != NULL)
            give_back(&memory);
    }
    return false;
}

/* the streams of one bucket; streams may come and go meanwhile */
static bool collect_bucket(unsigned bucket, bool all)
{
    struct question question;
    bool waits = false, more = true;

    for (unsigned skip = 0; more; skip++) {
        more = GS_WITH_MEMORY(first_of(gs_note_stream_at(bucket, skip), &question));
        if (more && collect_stream(&question, all))
            waits = true;
        else if (more)
            skip--; /* that stream has left the list */
    }
    return waits;
}

bool gs_stream_order_collect(bool all)
{
    CUstreamCaptureMode mode;
    struct gs_note *note;
    bool any, may, waits = false;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    any = gs_note_any();
    may = any && order.held_off == 0;
    order.asking += may;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!may)
        return any;
    mode = gs_capture_relax();
    for (unsigned bucket = 0; bucket < GS_NOTE_BUCKETS; bucket++)
        waits |= collect_bucket(bucket, all);
    GS_WITH_MEMORY(order.asking--);
    /* surplus notes, if no thread asks about events or may begin to */
    while ((note = GS_WITH_MEMORY(order.asking == 0 && order.held_off == 0 ? gs_note_surplus()
                                                                           : NULL)) != NULL) {
        const bool pushed = gs_stream_position_enter(note->context);

        gs_driver.cuEventDestroy_v2(note->event);
        gs_stream_position_leave(pushed);
        free(note);
    }
    gs_capture_restore(mode);
    return waits;
}

/* --- the end of a context --- */

void gs_stream_order_hold_off(void)
{
    const uint64_t until = gs_now() + HOLD_OFF_NS;
    bool asked = true;

    GS_WITH_MEMORY(order.held_off++);
    while (asked && gs_now() < until) {
        asked = GS_WITH_MEMORY(order.asking != 0);
        if (asked)
            gs_pause(50000);
    }
}

void gs_stream_order_release(void)
{
    GS_WITH_MEMORY(order.held_off--);
}

/* A slab ends with its context. If another context's work may still use one of its pieces, the
 * slab ends with that context instead. Under the lock. */
static void hand_over_slabs(CUcontext context)
{
    const struct gs_note_stream *stream;

    for (unsigned bucket = 0; bucket < GS_NOTE_BUCKETS; bucket++)
        for (stream = gs_note_stream_at(bucket, 0); stream != NULL; stream = stream->next)
            for (const struct gs_note *note = stream->first; note != NULL; note = note->later)
                if (note->piece != 0 && note->range->context == context)
                    note->range->context = note->context;
}

/* under the lock; the note's event has ended with the context */
static struct gs_note *take_of(CUcontext context)
{
    const struct gs_note_stream *stream;

    for (unsigned bucket = 0; bucket < GS_NOTE_BUCKETS; bucket++)
        for (stream = gs_note_stream_at(bucket, 0); stream != NULL; stream = stream->next)
            if (stream->context == context) {
                struct gs_note *note = stream->first;

                take_note(note);
                return note;
            }
    return NULL;
}

void gs_stream_order_context_ended(CUcontext context)
{
    struct gs_note *note;

    do {
        note = GS_WITH_MEMORY(take_of(context));
        if (note != NULL)
            give_back(&(struct gs_freed_memory){note->range, note->piece});
        free(note);
    } while (note != NULL);
    GS_WITH_MEMORY(hand_over_slabs(context));
    do {
        note = GS_WITH_MEMORY(gs_note_spare(context));
        free(note);
    } while (note != NULL);
}
