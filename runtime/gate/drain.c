/* SPDX-License-Identifier: Apache-2.0
 *
 * drain.c: a thread of its own calls cuCtxSynchronize, which nothing can interrupt. The client
 * thread waits for it with a bound, and goes on talking to the daemon.
 *
 * State: one drain at a time, under its own lock, which is not held across driver calls.
 */
#include "runtime/gate/drain.h"

#include <signal.h>

#include "runtime/gate/capture.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, busy, finished;
    bool forbidden; /* finished, but the driver refused to wait */
    pthread_t thread;
} drain GS_ZERO_IN_CHILD; /* changed: start_drain() */

/* Waits for one context. The failure of a single call must not count as "nothing runs here":
 * memory would be taken away from a running kernel. In a broken context every call fails;
 * nothing runs there any more, and the program will get the error. False: a capture forbids it. */
static bool synchronize_context(CUcontext handle)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned attempt = 0; attempt < 4; attempt++) {
        result = gs_context_push(handle);
        if (result != CUDA_SUCCESS)
            continue;
        result = gs_driver.cuCtxSynchronize();
        gs_context_pop();
        if (result == CUDA_SUCCESS)
            return true;
        if (gs_capture_forbids(result))
            break;
    }
    gs_log("draining context %p: CUresult %d", (void *)handle, result);
    if (gs_capture_forbids(result))
        return false;
    gs_context_failed(handle, result);
    return true;
}

/* False: a capture forbids it. Of an older drain the gate may have opened meanwhile, and a capture
 * may have begun, which waiting in its context would spoil: a capture that is about to begin waits
 * (capture.h). */
static bool synchronize_all(void)
{
    struct gs_context *context;
    bool over;

    for (unsigned i = 0; (context = gs_context_at(i)) != NULL; i++) {
        const CUcontext handle = atomic_load_explicit(&context->handle, memory_order_acquire);

        if (handle == NULL || context->home != NULL) /* green contexts: with their home */
            continue;
        if (!gs_capture_hold_off())
            return false;
        over = synchronize_context(handle);
        gs_capture_release();
        if (!over)
            return false;
    }
    return true;
}

static void *drain_main(void *unused)
{
    bool over;

    (void)unused;
    gs_cancel_off();
    gs_capture_relax();
    for (;;) {
        gs_lock(&drain.lock, GS_LOCK_DRAIN);
        while (!drain.busy)
            pthread_cond_wait(&drain.changed, &drain.lock);
        gs_unlock(&drain.lock, GS_LOCK_DRAIN);
        over = synchronize_all();
        gs_lock(&drain.lock, GS_LOCK_DRAIN);
        drain.forbidden = !over;
        drain.busy = false;
        drain.finished = true;
        pthread_cond_broadcast(&drain.changed);
        gs_unlock(&drain.lock, GS_LOCK_DRAIN);
    }
    return NULL;
}

static bool start_drain(void)
{
    if (drain.started)
        return true;
    gs_condition_init(&drain.changed);
    drain.started = pthread_create(&drain.thread, NULL, drain_main, NULL) ==
                    0; /* inherits our signal mask, which blocks all signals */
    return drain.started;
}

enum gs_drained gs_drain(uint64_t timeout_ns)
{
    enum gs_drained drained = GS_DRAIN_GOES_ON;
    struct timespec until;

    if (!start_drain()) /* no thread could be started: waits without a bound */
        return synchronize_all() ? GS_DRAIN_OVER : GS_DRAIN_FAILED;
    until = gs_deadline(timeout_ns);
    gs_lock(&drain.lock, GS_LOCK_DRAIN);
    if (!drain.busy) {
        drain.busy = true;
        drain.finished = false;
        pthread_cond_broadcast(&drain.changed);
    }
    while (!drain.finished)
        if (pthread_cond_timedwait(&drain.changed, &drain.lock, &until) != 0)
            break;
    if (drain.finished)
        drained = drain.forbidden ? GS_DRAIN_FAILED : GS_DRAIN_OVER;
    gs_unlock(&drain.lock, GS_LOCK_DRAIN);
    return drained;
}

bool gs_drain_busy(void)
{
    GS_HOLD(&drain.lock, GS_LOCK_DRAIN);

    return drain.busy;
}
