/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle.c: owns the pairs of events by which threads know how far they are ahead of the GPU.
 *
 * A thread holds the pair of the context it worked in last; the others wait for a thread that
 * works in theirs, so that there are never more of a context than threads at a time.
 * Invariants, under the lock (rank GS_LOCK_PACE, never held across a driver call): a pair is in
 * the list from its making to its end; a dead one, whose context has ended, ends when nobody
 * holds it.
 */
#include "runtime/gate/throttle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/gate/capture.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/base/mutex.h"
#include "runtime/base/uncancelled.h"

struct gs_throttle {
    struct gs_throttle *next;
    CUevent events[2];
    CUcontext context;
    bool held, dead;
};

static struct {
    pthread_mutex_t lock;
    struct gs_throttle *first;
} paces = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* under the lock */
static void end_if_over(struct gs_throttle *pace)
{
    struct gs_throttle **link = &paces.first;

    if (pace->held || !pace->dead)
        return;
    while (*link != NULL && *link != pace)
        link = &(*link)->next;
    if (*link != NULL)
        *link = pace->next;
    free(pace);
}

void gs_throttle_thread_ends(struct gs_throttle *pace)
{
    if (pace == NULL)
        return;
    gs_lock(&paces.lock, GS_LOCK_PACE);
    pace->held = false;
    end_if_over(pace);
    gs_unlock(&paces.lock, GS_LOCK_PACE);
}

void gs_throttle_context_ended(CUcontext context)
{
    gs_lock(&paces.lock, GS_LOCK_PACE);
    for (struct gs_throttle *pace = paces.first, *next; pace != NULL; pace = next) {
        next = pace->next;
        pace->dead |= pace->context == context;
        end_if_over(pace);
    }
    gs_unlock(&paces.lock, GS_LOCK_PACE);
}

/* The thread's own if it is of this context, else one that nobody holds; NULL: there is none.
 */
static struct gs_throttle *take(struct gs_throttle *own, CUcontext context)
{
    struct gs_throttle *pace = own;

    gs_lock(&paces.lock, GS_LOCK_PACE);
    if (own == NULL || own->dead || own->context != context) {
        for (pace = paces.first; pace != NULL; pace = pace->next)
            if (!pace->held && !pace->dead && pace->context == context)
                break;
        if (pace != NULL)
            pace->held = true;
        if (own != NULL) {
            own->held = false;
            end_if_over(own);
        }
    }
    gs_unlock(&paces.lock, GS_LOCK_PACE);
    return pace;
}

static struct gs_throttle *make(CUcontext context)
{
    struct gs_throttle *pace = calloc(1, sizeof *pace);

    if (pace == NULL)
        return NULL;
    pace->context = context;
    pace->held = true;
    if (gs_driver.cuEventCreate(&pace->events[0], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        free(pace);
        return NULL;
    }
    if (gs_driver.cuEventCreate(&pace->events[1], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        gs_driver.cuEventDestroy_v2(pace->events[0]);
        free(pace);
        return NULL;
    }
    gs_lock(&paces.lock, GS_LOCK_PACE);
    pace->next = paces.first;
    paces.first = pace;
    gs_unlock(&paces.lock, GS_LOCK_PACE);
    return pace;
}

static bool is_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const CUresult result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                                       : gs_driver.cuStreamIsCapturing(stream, &status);

    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* waits until the event has passed, at most 50 ms */
static bool passed(CUevent event)
{
    const CUstreamCaptureMode mode = gs_capture_relax();
    bool done = false;

    for (unsigned i = 0; i < 1000 && !done; i++) {
        done = gs_driver.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
        if (!done)
            gs_pause(50000);
    }
    gs_capture_restore(mode);
    return done;
}

/* every half of a window */
static void bound(struct gs_gate_thread *self, CUstream stream, bool per_thread)
{
    CUcontext context = NULL;
    CUevent event;

    if (is_capturing(stream, per_thread) ||
        gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
        return;
    self->pace = take(self->pace, context);
    if (self->pace == NULL)
        self->pace = make(context);
    if (self->pace == NULL)
        return;
    /* the two take turns: wait for the one recorded half a window ago, then record it anew */
    event = self->pace->events[self->submissions / (GS_PACE_UNFINISHED / 2) % 2];
    if (passed(event)) {
        if (per_thread)
            gs_driver.cuEventRecord_ptsz(event, stream);
        else
            gs_driver.cuEventRecord(event, stream);
    }
}

void gs_throttle_bound(CUstream stream, bool per_thread)
{
    struct gs_gate_thread *self = &gs_gate_self;
    const int saved = errno;

    if (++self->submissions % (GS_PACE_UNFINISHED / 2) != 0)
        return;
    bound(self, stream, per_thread);
    errno = saved;
}

void gs_throttle_after_fork(void)
{
    pthread_mutex_init(&paces.lock, NULL);
    paces.first = NULL; /* as with ranges: left to the parent */
    gs_gate_self.pace = NULL;
}
