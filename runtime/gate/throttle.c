/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle.c: owns the pairs of events by which threads know how far they are ahead of the GPU.
 *
 * A thread holds the pair of the context that it used last. Other pairs are free for a thread
 * that works in their context, so a context never has more pairs than threads have worked in it
 * at a time. Invariants, under the lock (rank GS_LOCK_THROTTLE, never held across a driver call):
 * a pair is in the list from its making to its end; a dead pair, whose context has ended, ends
 * when no thread holds it.
 */
#include "runtime/gate/throttle.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"

struct gs_throttle {
    struct gs_throttle *next;
    CUevent events[2];
    CUcontext context;
    bool held, dead;
    unsigned next_event; /* index of the event that is recorded next */
};

#define HALF (GS_THROTTLE_UNFINISHED / 2)

static struct {
    pthread_mutex_t lock;
    struct gs_throttle *first;
} throttles GS_ZERO_IN_CHILD;

/* under the lock */
static void end_if_over(struct gs_throttle *throttle)
{
    struct gs_throttle **link = &throttles.first;

    if (throttle->held || !throttle->dead)
        return;
    while (*link != NULL && *link != throttle)
        link = &(*link)->next;
    if (*link != NULL)
        *link = throttle->next;
    free(throttle);
}

void gs_throttle_thread_ends(struct gs_throttle *throttle)
{
    if (throttle == NULL)
        return;
    GS_HOLD(&throttles.lock, GS_LOCK_THROTTLE);
    throttle->held = false;
    end_if_over(throttle);
}

void gs_throttle_context_ended(CUcontext context)
{
    gs_lock(&throttles.lock, GS_LOCK_THROTTLE);
    for (struct gs_throttle *throttle = throttles.first, *next; throttle != NULL;
         throttle = next) {
        next = throttle->next;
        throttle->dead |= throttle->context == context;
        end_if_over(throttle);
    }
    gs_unlock(&throttles.lock, GS_LOCK_THROTTLE);
}

/* Returns the thread's own pair if it is of this context, else a pair that no thread holds; NULL:
 * there is none. */
static struct gs_throttle *take_pair(struct gs_throttle *own, CUcontext context)
{
    struct gs_throttle *throttle = own;

    GS_HOLD(&throttles.lock, GS_LOCK_THROTTLE);
    if (own == NULL || own->dead || own->context != context) {
        for (throttle = throttles.first; throttle != NULL; throttle = throttle->next)
            if (!throttle->held && !throttle->dead && throttle->context == context)
                break;
        if (throttle != NULL)
            throttle->held = true;
        if (own != NULL) {
            own->held = false;
            end_if_over(own);
        }
    }
    return throttle;
}

static struct gs_throttle *make_pair(CUcontext context)
{
    struct gs_throttle *throttle = calloc(1, sizeof *throttle);

    if (throttle == NULL)
        return NULL;
    throttle->context = context;
    throttle->held = true;
    if (gs_driver.cuEventCreate(&throttle->events[0], CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
        free(throttle);
        return NULL;
    }
    if (gs_driver.cuEventCreate(&throttle->events[1], CU_EVENT_DISABLE_TIMING) !=
        CUDA_SUCCESS) {
        gs_driver.cuEventDestroy_v2(throttle->events[0]);
        free(throttle);
        return NULL;
    }
    GS_HOLD(&throttles.lock, GS_LOCK_THROTTLE);
    throttle->next = throttles.first;
    throttles.first = throttle;
    return throttle;
}

static bool is_capturing(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    const CUresult result = per_thread ? gs_driver.cuStreamIsCapturing_ptsz(stream, &status)
                                       : gs_driver.cuStreamIsCapturing(stream, &status);

    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Waits until the event has passed, for at most 50 ms. */
static bool wait_for_event(CUevent event)
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

/* called after every half of a window */
static void bound_thread(struct gs_gate_thread *self, CUstream stream, bool per_thread)
{
    struct gs_throttle *throttle;
    CUcontext context = NULL;
    CUevent event;

    if (is_capturing(stream, per_thread) ||
        gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL)
        return;
    self->throttle = take_pair(self->throttle, context);
    if (self->throttle == NULL)
        self->throttle = make_pair(context);
    if (self->throttle == NULL)
        return;
    throttle = self->throttle;
    /* alternates: waits for the event recorded a window ago, then records it again */
    event = throttle->events[throttle->next_event];
    if (wait_for_event(event)) {
        if (per_thread)
            gs_driver.cuEventRecord_ptsz(event, stream);
        else
            gs_driver.cuEventRecord(event, stream);
    }
    throttle->next_event = 1 - throttle->next_event;
}

void gs_throttle_bound(struct gs_gate_thread *self, CUstream stream, bool per_thread)
{
    GS_KEEP_ERRNO;

    if (++self->submissions < HALF)
        return;
    self->submissions = 0;
    bound_thread(self, stream, per_thread);
}
