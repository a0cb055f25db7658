/* SPDX-License-Identifier: Apache-2.0
 *
 * capture.c: the stream captures under way.
 *
 * A capture begins inside the gate. The client thread looks at the count after the gate is
 * closed, so it cannot miss a capture. A capture may last for hours without a call. If it ended
 * in a way that was not seen, the driver says so (gs_capture_look).
 *
 * State, under `list.lock`: a note for each capture. The count of notes is atomic: others read it
 * without the lock, and look again. While a note is `changing`, its thread is in a driver call that
 * begins or ends the capture, and the driver is not asked about it.
 */
#include "runtime/gate/capture.h"

/* Longer than a thread needs from its look at captures until it waits in the driver. A capture that
 * begins after that does not disturb it, and it may wait for long. */
#define HELD_OFF_NS 1000000000ull
#define LOOK_NS     1000000000ull /* between two looks: the captures under way are few */

struct note {
    struct note *next;
    CUstream stream;
    const void *thread; /* of a per-thread default stream, which other threads cannot name */
    CUcontext context;
    CUcontext home;  /* gs_context_home(context), which can be entered */
    uint64_t number; /* of the notes so far */
    bool changing;
};

static struct {
    pthread_mutex_t lock;
    struct note *first;
    uint64_t notes;     /* so far */
    uint64_t looked_at; /* ns; client thread */
} list GS_ZERO_IN_CHILD;

static _Atomic(int) captures GS_ZERO_IN_CHILD, synchronizing GS_ZERO_IN_CHILD;
static _Atomic(bool) asking GS_ZERO_IN_CHILD; /* set before the lock is taken to copy a note */
static _Thread_local char here;               /* its address names the thread */

bool gs_capture_active(void)
{
    return atomic_load_explicit(&captures, memory_order_acquire) > 0;
}

CUstreamCaptureStatus gs_capture_status(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_SUCCESS;

    if (gs_capture_active())
        result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                            : gs_driver.cuStreamIsCapturing(stream, &status);
    return result == CUDA_SUCCESS ? status : CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gs_capture_refuses(void)
{
    const CUdeviceptr unknown = 1;

    return gs_capture_active() &&
           gs_driver.cuMemFree_v2(unknown) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* After it is counted, and before the driver begins the capture. Otherwise a thread that sees no
 * capture here and synchronises the context could meet a capture. */
static void await_synchronizing(void)
{
    const uint64_t until = gs_now() + HELD_OFF_NS;

    while (atomic_load_explicit(&synchronizing, memory_order_seq_cst) > 0 && gs_now() < until)
        gs_pause(20000);
}

static const void *thread_of(CUstream stream, bool per_thread)
{
    return stream == CU_STREAM_PER_THREAD || (stream == NULL && per_thread) ? &here : NULL;
}

static struct note *note_new(CUstream stream, bool per_thread)
{
    struct note *note = malloc(sizeof *note);

    if (note == NULL)
        return NULL;
    *note = (struct note){
        .stream = stream, .thread = thread_of(stream, per_thread), .changing = true};
    if (note->thread != NULL || stream == NULL || stream == CU_STREAM_LEGACY ||
        gs_driver.cuStreamGetCtx(stream, &note->context) != CUDA_SUCCESS)
        note->context = NULL;
    note->home = note->context != NULL ? gs_context_home(note->context) : NULL;
    return note;
}

/* Under the lock: takes the note out. */
static void remove_note(struct note **at)
{
    struct note *note = *at;

    *at = note->next;
    free(note);
    atomic_fetch_sub_explicit(&captures, 1, memory_order_acq_rel);
}

/* Under the lock: the place of the note about the capture that the stream began; of two, that which
 * is changing or not, as asked for. Points to NULL: there is none. */
static struct note **find_note(CUstream stream, bool per_thread, bool changing)
{
    const void *thread = thread_of(stream, per_thread);
    struct note **at = &list.first;

    while (*at != NULL && ((*at)->thread != thread || (*at)->changing != changing ||
                           (thread == NULL && (*at)->stream != stream)))
        at = &(*at)->next;
    return at;
}

bool gs_capture_begins(CUstream stream, bool per_thread, bool beside)
{
    struct note *note = beside && !gs_capture_active() ? NULL : note_new(stream, per_thread);
    bool counted;

    if (note == NULL)
        return false;
    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    counted = !beside || gs_capture_active();
    if (counted) {
        note->number = ++list.notes;
        note->next = list.first;
        list.first = note;
        atomic_fetch_add_explicit(&captures, 1, memory_order_seq_cst);
    }
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
    if (counted)
        await_synchronizing();
    else
        free(note);
    return counted;
}

bool gs_capture_changes(CUstream stream, bool per_thread)
{
    struct note *note;

    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    note = *find_note(stream, per_thread, false);
    if (note != NULL)
        note->changing = true;
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
    return note != NULL;
}

void gs_capture_changed(CUstream stream, bool per_thread, bool goes_on)
{
    struct note **at;

    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    at = find_note(stream, per_thread, true);
    if (*at != NULL && goes_on)
        (*at)->changing = false;
    else if (*at != NULL)
        remove_note(at);
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
}

/* The first note after that number which the driver can be asked about. */
static bool next_note(uint64_t number, struct note *copy)
{
    const struct note *found = NULL;

    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    for (const struct note *note = list.first; note != NULL; note = note->next)
        if (note->number > number && !note->changing && note->thread == NULL &&
            (found == NULL || note->number < found->number))
            found = note;
    if (found != NULL)
        *copy = *found;
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
    return found != NULL;
}

static bool goes_on(const struct note *note)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CUresult result;
    CUcontext popped;

    if (note->home == NULL || gs_context_push(note->home) != CUDA_SUCCESS)
        return true; /* it cannot be asked about */
    result = gs_driver.cuStreamIsCapturing(note->stream, &status);
    gs_driver.cuCtxPopCurrent_v2(&popped);
    if (result != CUDA_SUCCESS) {
        gs_context_failed(note->home, result);
        return gs_context_check(note->home) == CUDA_SUCCESS; /* else no call will end it */
    }
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void forget_number(uint64_t number)
{
    struct note **at = &list.first;

    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    if (*at != NULL && !(*at)->changing)
        remove_note(at);
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
}

void gs_capture_look(uint64_t now)
{
    struct note note = {.number = 0};

    if (!gs_capture_active() || now - list.looked_at < LOOK_NS)
        return;
    list.looked_at = now;
    atomic_store_explicit(&asking, true, memory_order_seq_cst);
    while (next_note(note.number, &note))
        if (!goes_on(&note))
            forget_number(note.number);
    atomic_store_explicit(&asking, false, memory_order_release);
}

/* A thread that has seen a note go, and false here, knows that the driver is not asked about that
 * note any more: a look sets it before it takes the lock under which notes are removed. */
bool gs_capture_asks(void)
{
    return atomic_load_explicit(&asking, memory_order_seq_cst);
}

/* The notes of a thread, or of a context, that ends. */
static void forget_all(const void *thread, CUcontext context)
{
    gs_lock(&list.lock, GS_LOCK_CAPTURES);
    for (struct note **at = &list.first; *at != NULL;)
        if ((thread != NULL && (*at)->thread == thread) ||
            (context != NULL && ((*at)->context == context || (*at)->home == context)))
            remove_note(at);
        else
            at = &(*at)->next;
    gs_unlock(&list.lock, GS_LOCK_CAPTURES);
}

void gs_capture_thread_ends(void)
{
    if (gs_capture_active())
        forget_all(&here, NULL);
}

void gs_capture_context_ended(CUcontext context)
{
    if (gs_capture_active())
        forget_all(NULL, context);
}

bool gs_capture_hold_off(void)
{
    atomic_fetch_add_explicit(&synchronizing, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&captures, memory_order_seq_cst) <= 0)
        return true;
    gs_capture_release();
    return false;
}

void gs_capture_release(void)
{
    atomic_fetch_sub_explicit(&synchronizing, 1, memory_order_seq_cst);
}

CUstreamCaptureMode gs_capture_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void gs_capture_restore(CUstreamCaptureMode mode)
{
    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
}
