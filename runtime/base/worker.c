/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c: owns the library's thread: that it runs, its wake-up and its parking.
 *
 * Threads: what is marked "any thread" in worker.h takes only `worker.lock` (rank
 * GS_LOCK_CLIENT), never across a driver call.
 */
#include "runtime/base/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include "runtime/base/base.h"

#define SOON_NS 2000000ull

/* The longest wait for this thread to rest: longer than any driver call takes. A call that hangs
 * here would hang the caller as well. */
#define PARK_LIMIT_NS 30000000000ull

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic(bool) started;    /* release, after `changed` is there */
    _Atomic(bool) woken;      /* a wake-up is under way: one write suffices */
    _Atomic(bool) soon;       /* a look is wanted */
    _Atomic(bool) attentive;  /* the thread looks at `soon` within SOON_NS */
    struct gs_own_fd wake[2]; /* a pipe: unlike an eventfd a file of its own */
    unsigned park_requests;
    bool parked;
    bool failed; /* the thread could not be started, and never will be in this process */
} worker GS_ZERO_IN_CHILD; /* changed: start_thread() */

static _Thread_local bool is_self;      /* set by each round */
static _Thread_local bool has_parked;   /* this thread has a park request out */
static _Thread_local int parked_cancel; /* and cannot be cancelled; this was its state before */

void gs_worker_wake(void)
{
    GS_KEEP_ERRNO;

    if (!atomic_load_explicit(&worker.started, memory_order_acquire) ||
        atomic_exchange_explicit(&worker.woken, true, memory_order_acq_rel))
        return;

    GS_UNCANCELLED cancel = gs_cancel_off();

    if (write(gs_own_fd(&worker.wake[1]), "", 1) < 0)
        atomic_store_explicit(&worker.woken, false, memory_order_relaxed);
}

void gs_worker_wake_soon(void)
{
    atomic_store_explicit(&worker.soon, true, memory_order_seq_cst);
    if (!atomic_load_explicit(&worker.attentive, memory_order_seq_cst))
        gs_worker_wake();
}

/* Limits the sleep that follows. seq_cst: if a caller sets `soon` and sees the thread attentive,
 * this sees `soon`; else the caller wakes the thread. */
static uint64_t prepare_sleep(uint64_t timeout_ns)
{
    if (!atomic_exchange_explicit(&worker.soon, false, memory_order_seq_cst)) {
        atomic_store_explicit(&worker.attentive, false, memory_order_seq_cst);
        if (!atomic_exchange_explicit(&worker.soon, false, memory_order_seq_cst))
            return timeout_ns;
    }
    atomic_store_explicit(&worker.attentive, true, memory_order_seq_cst);
    return timeout_ns < SOON_NS ? timeout_ns : SOON_NS;
}

/* Makes the pipe, again if the program has closed it. */
static bool make_wake(void)
{
    int ends[2];

    if (gs_own_fd(&worker.wake[0]) >= 0 && gs_own_fd(&worker.wake[1]) >= 0)
        return true;
    gs_own_fd_close(&worker.wake[0]);
    gs_own_fd_close(&worker.wake[1]);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    gs_own_fd_set(&worker.wake[0], ends[0]);
    gs_own_fd_set(&worker.wake[1], ends[1]);
    atomic_exchange_explicit(&worker.woken, false,
                             memory_order_acq_rel); /* as in gs_worker_rest() */
    return true;
}

void gs_worker_rest(int fd, uint64_t timeout_ns)
{
    const int wake_fd = gs_own_fd(&worker.wake[0]);
    struct pollfd polled[2] = {{wake_fd, POLLIN, 0}, {fd, POLLIN, 0}};
    struct timespec timeout;
    char bytes[16];

    timeout_ns = prepare_sleep(timeout_ns);
    if (timeout_ns == 0)
        return;
    if (wake_fd < 0 && timeout_ns > SOON_NS)
        timeout_ns = SOON_NS; /* nobody can wake it */
    timeout =
        (struct timespec){(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    ppoll(polled, 2, &timeout, NULL); /* a negative descriptor is ignored */
    if ((polled[0].revents & POLLIN) == 0 ||
        (read(gs_own_fd(&worker.wake[0]), bytes, sizeof bytes) < 0 && errno == EINTR))
        return;
    /* After the read. Otherwise a wake-up in between would be read together with this wake-up, and
     * `woken` would stay set for ever, with nothing written. Acquire: the next round sees the
     * reason of such a wake-up. */
    atomic_exchange_explicit(&worker.woken, false, memory_order_acq_rel);
}

bool gs_worker_is_asked_to_park(void)
{
    GS_HOLD(&worker.lock, GS_LOCK_CLIENT);

    return worker.park_requests > 0;
}

void gs_worker_stay_parked(bool (*may_park)(void))
{
    gs_lock(&worker.lock, GS_LOCK_CLIENT);
    while (worker.park_requests > 0 && may_park()) {
        worker.parked = true;
        pthread_cond_broadcast(&worker.changed);
        pthread_cond_wait(&worker.changed, &worker.lock);
    }
    worker.parked = false;
    gs_unlock(&worker.lock, GS_LOCK_CLIENT);
}

bool gs_worker_is_self(void)
{
    return is_self;
}

void gs_worker_mend_wake(void)
{
    is_self = true;
    make_wake();
}

int gs_worker_thread(const char *name, void *(*work)(void *))
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    int error;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        pthread_setname_np(thread, name);
    return error;
}

/* Without the pipe the thread looks at intervals (gs_worker_rest()), until the pipe exists. */
static int start_thread(void *(*work)(void *))
{
    gs_condition_init(&worker.changed);
    make_wake();
    return -gs_worker_thread("gpushare", work);
}

int gs_worker_start(void *(*work)(void *))
{
    int result = 0;

    if (atomic_load_explicit(&worker.started, memory_order_acquire))
        return 0;
    GS_HOLD(&worker.lock, GS_LOCK_CLIENT);
    if (!atomic_load_explicit(&worker.started, memory_order_relaxed)) {
        result = worker.failed ? -EAGAIN : start_thread(work);
        worker.failed = result != 0;
        if (result == 0) {
            atomic_store_explicit(&worker.started, true, memory_order_release);
            result = 1;
        }
    }
    return result;
}

void gs_worker_park_for(uint64_t limit_ns)
{
    struct timespec until;

    if (!atomic_load_explicit(&worker.started, memory_order_acquire))
        return;
    has_parked = true;
    parked_cancel = gs_cancel_off();
    GS_WITH(&worker.lock, GS_LOCK_CLIENT, worker.park_requests++);
    gs_worker_wake();
    until = gs_deadline(limit_ns);
    gs_lock(&worker.lock, GS_LOCK_CLIENT);
    while (!worker.parked)
        if (pthread_cond_timedwait(&worker.changed, &worker.lock, &until) != 0)
            break;
    gs_unlock(&worker.lock, GS_LOCK_CLIENT);
}

void gs_worker_park(void)
{
    gs_worker_park_for(PARK_LIMIT_NS);
}

void gs_worker_unpark(void)
{
    if (!has_parked) /* there was no client thread yet */
        return;
    has_parked = false;
    gs_lock(&worker.lock, GS_LOCK_CLIENT);
    if (worker.park_requests > 0)
        worker.park_requests--;
    pthread_cond_broadcast(&worker.changed);
    gs_unlock(&worker.lock, GS_LOCK_CLIENT);
    gs_cancel_restore(&parked_cancel);
}

void gs_worker_after_fork(void)
{
    gs_own_fd_close(&worker.wake[0]);
    gs_own_fd_close(&worker.wake[1]);
}
