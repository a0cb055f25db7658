/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: owns the client thread, its wake-up and its parking. What the thread does is in
 * reconcile.c.
 *
 * Threads: everything marked "any thread" in client.h takes only `client.lock` (rank
 * GS_LOCK_CLIENT), never across a driver call. The thread is started once per process, by the
 * first context, with all signals blocked.
 */
#include "runtime/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/client/reconcile.h"
#include "runtime/gate/drain.h"
#include "runtime/base/driver.h"
#include "runtime/gate/gate.h"
#include "runtime/base/mutex.h"
#include "runtime/base/log.h"
#include "runtime/base/own_fd.h"
#include "runtime/runtime.h"
#include "runtime/client/session.h"
#include "runtime/base/stats.h"
#include "runtime/swap/swap.h"
#include "runtime/uncancelled.h"

#define SOON_NS 2000000ull

/* How long a thread waits for the client thread to rest. At exit: for some steps of moving, and
 * what a drain usually takes. Else: longer than the driver takes for anything, since one that
 * hangs in the client thread would hang the caller as well. */
#define EXIT_LIMIT_NS 300000000ull
#define PARK_LIMIT_NS 30000000000ull

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic(bool) started;   /* release, after the pipe is there */
    _Atomic(bool) woken;     /* a wake-up is under way: one write is enough */
    _Atomic(bool) soon;      /* somebody wants a look */
    _Atomic(bool) attentive; /* … and the thread will look within SOON_NS without being woken */
    struct gs_own_fd wake[2]; /* a pipe: each is a file of its own, as eventfds are not */
    unsigned park_requests;
    bool parked;
    bool unthreaded; /* the thread could not be started: never, in this process */
} client = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .wake = {GS_NO_FD, GS_NO_FD}}; /* changed: start() */

bool gs_client_ready(void)
{
    gs_stats_called();
    return gs_driver_load();
}

static void write_wake(void)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    if (write(gs_own_fd(&client.wake[1]), "", 1) < 0)
        atomic_store_explicit(&client.woken, false, memory_order_relaxed);
}

void gs_client_wake(void)
{
    const int saved = errno;

    if (!atomic_load_explicit(&client.started, memory_order_acquire) ||
        atomic_exchange_explicit(&client.woken, true, memory_order_acq_rel))
        return;
    write_wake();
    errno = saved;
}

void gs_client_wake_soon(void)
{
    atomic_store_explicit(&client.soon, true, memory_order_seq_cst);
    if (!atomic_load_explicit(&client.attentive, memory_order_seq_cst))
        gs_client_wake();
}

/* Before the thread sleeps: at most so long. seq_cst: whoever sets `soon` and sees the thread
 * attentive is seen here, or wakes it. */
static uint64_t attend(uint64_t timeout_ns)
{
    if (!atomic_exchange_explicit(&client.soon, false, memory_order_seq_cst)) {
        atomic_store_explicit(&client.attentive, false, memory_order_seq_cst);
        if (!atomic_exchange_explicit(&client.soon, false, memory_order_seq_cst))
            return timeout_ns;
    }
    atomic_store_explicit(&client.attentive, true, memory_order_seq_cst);
    return timeout_ns < SOON_NS ? timeout_ns : SOON_NS;
}

static void rest_if_parked(void)
{
    bool asked;

    gs_lock(&client.lock, GS_LOCK_CLIENT);
    asked = client.park_requests > 0;
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
    if (asked)
        gs_swap_settle();
    gs_lock(&client.lock, GS_LOCK_CLIENT);
    while (asked && client.park_requests > 0 && !gs_drain_busy()) {
        client.parked = true;
        pthread_cond_broadcast(&client.changed);
        pthread_cond_wait(&client.changed, &client.lock);
    }
    client.parked = false;
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
}

/* The pipe, anew where the program has closed it. */
static bool make_wake(void)
{
    int ends[2];

    if (gs_own_fd(&client.wake[0]) >= 0 && gs_own_fd(&client.wake[1]) >= 0)
        return true;
    gs_own_fd_close(&client.wake[0]);
    gs_own_fd_close(&client.wake[1]);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    gs_own_fd_set(&client.wake[0], ends[0]);
    gs_own_fd_set(&client.wake[1], ends[1]);
    atomic_exchange_explicit(&client.woken, false, memory_order_acq_rel); /* as in rest() */
    return true;
}

/* sleeps until the daemon or the process has something to say, at most timeout_ns */
static void rest(int daemon_fd, uint64_t timeout_ns)
{
    const int wake_fd = gs_own_fd(&client.wake[0]);
    struct pollfd polled[2] = {{wake_fd, POLLIN, 0}, {daemon_fd, POLLIN, 0}};
    struct timespec timeout;
    char bytes[16];

    if (wake_fd < 0 && timeout_ns > SOON_NS)
        timeout_ns = SOON_NS; /* nobody can wake it */
    timeout =
        (struct timespec){(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    ppoll(polled, 2, &timeout, NULL); /* a negative descriptor is ignored */
    if ((polled[0].revents & POLLIN) == 0 ||
        (read(gs_own_fd(&client.wake[0]), bytes, sizeof bytes) < 0 && errno == EINTR))
        return;
    /* After the read: a wake-up in between would be read with this one, and `woken` stay set
     * with nothing written, for ever. Acquire: what such a one was for is seen in the next
     * round. */
    atomic_exchange_explicit(&client.woken, false, memory_order_acq_rel);
}

static void *client_main(void *unused)
{
    CUstreamCaptureMode mode =
        CU_STREAM_CAPTURE_MODE_RELAXED; /* what we do never touches a captured stream */

    (void)unused;
    gs_cancel_off();
    gs_driver.cuThreadExchangeStreamCaptureMode(&mode);
    for (;;) {
        uint64_t timeout;

        rest_if_parked();
        make_wake(); /* before the round that sees what nobody could wake it for */
        timeout = attend(gs_converge());
        if (timeout > 0)
            rest(gs_converge_fd(), timeout);
    }
    return NULL;
}

static _Thread_local bool has_parked;   /* this thread has a park request out */
static _Thread_local int parked_cancel; /* ... and cannot be cancelled, as it could before */

/* The client thread rests when this returns, or has not come to rest within limit_ns. */
static void park(uint64_t limit_ns)
{
    struct timespec until;

    if (!atomic_load_explicit(&client.started, memory_order_acquire))
        return;
    has_parked = true;
    parked_cancel = gs_cancel_off();
    gs_lock(&client.lock, GS_LOCK_CLIENT);
    client.park_requests++;
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
    gs_client_wake();
    clock_gettime(CLOCK_MONOTONIC, &until);
    limit_ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(limit_ns / 1000000000u);
    until.tv_nsec = (long)(limit_ns % 1000000000u);
    gs_lock(&client.lock, GS_LOCK_CLIENT);
    while (!client.parked)
        if (pthread_cond_timedwait(&client.changed, &client.lock, &until) != 0)
            break;
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
}

void gs_client_park(void)
{
    park(PARK_LIMIT_NS);
}

void gs_client_unpark(void)
{
    if (!has_parked) /* there was no client thread yet */
        return;
    has_parked = false;
    gs_lock(&client.lock, GS_LOCK_CLIENT);
    if (client.park_requests > 0)
        client.park_requests--;
    pthread_cond_broadcast(&client.changed);
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
    gs_cancel_restore(&parked_cancel);
}

/* Runs before the driver's own exit handlers, which were registered when it was loaded: from
 * here on the client thread calls the driver only while a thread of the program waits for it
 * (that thread then holds up the driver's end as well). Work that does not end is not waited
 * for: without us nobody would. */
static void at_exit(void)
{
    gs_converge_exiting();
    park(EXIT_LIMIT_NS);
    gs_client_unpark();
}

/* Without the pipe the thread looks by itself (rest()), until there is one. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    bool started;

    gs_condition_init(&client.changed);
    make_wake();
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, &attributes, client_main, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (started)
        pthread_setname_np(thread, "gpushare");
    return started;
}

/* Without the thread nobody takes turns, moves memory or opens the gate later: it stays open,
 * memory is the driver's own. Not tried again, since that memory could not be moved. */
static void go_without_thread(void)
{
    struct gs_device *device;

    client.unthreaded = true;
    gs_session_give_up("this process cannot start a thread");
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        atomic_store_explicit(&device->movable, false, memory_order_relaxed);
    gs_session_allow_everything();
    gs_gate_open(false);
}

static void start(void)
{
    gs_lock(&client.lock, GS_LOCK_CLIENT);
    if (!atomic_load_explicit(&client.started, memory_order_relaxed)) {
        if (!client.unthreaded && start_thread()) {
            atexit(at_exit);
            atomic_store_explicit(&client.started, true, memory_order_release);
        } else {
            go_without_thread(); /* again for each context: its device may be a new one */
        }
    }
    gs_unlock(&client.lock, GS_LOCK_CLIENT);
}

void gs_client_attach_room(CUdevice ordinal)
{
    struct gs_device *device = gs_runtime.config.disabled ? NULL : gs_device_get(ordinal);

    if (device == NULL)
        return;
    if (!atomic_load_explicit(&client.started, memory_order_acquire))
        start();
    gs_client_await_target(device);
}

void gs_client_attach(CUcontext context, CUdevice ordinal)
{
    struct gs_device *device = gs_device_get(ordinal);

    if (device == NULL || context == NULL || gs_runtime.config.disabled)
        return;
    if (!gs_context_add(context, device))
        gs_client_note_partial("no memory to note a context: its work is not waited for");
    if (!atomic_load_explicit(&client.started, memory_order_acquire))
        start();
    gs_client_wake();
}

/* attached already by this thread; a primary context may end and begin anew with the same
 * handle */
static _Thread_local CUcontext known;
static _Thread_local uint32_t known_generation;

void gs_client_attach_current(struct gs_device *device)
{
    const uint32_t generation = gs_contexts_generation();
    CUcontext context = NULL;

    if (gs_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL ||
        (context == known && generation == known_generation))
        return;
    known = context;
    known_generation = generation;
    gs_client_attach(context, device->ordinal);
}

bool gs_client_attach_device(struct gs_device *device)
{
    if (gs_context_for(device) != NULL)
        return true;
    if (gs_device_current() != device)
        return false;
    gs_client_attach_current(device);
    return gs_context_for(device) != NULL;
}

static bool has_context(void)
{
    const struct gs_device *device;
    bool has = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && !has; i++)
        has = gs_context_for(device) != NULL;
    return has;
}

bool gs_client_wish(void)
{
    struct gs_device *device;

    if (!gs_driver_load() || gs_runtime.config.disabled)
        return false;
    device = gs_device_current();
    if (device != NULL)
        gs_client_attach_current(device);
    else if (!has_context()) /* without a current one, calls on memory work all the same */
        return false;
    if (!atomic_load_explicit(&client.started, memory_order_acquire))
        start();
    gs_client_wake();
    return true;
}

void gs_client_after_fork(void)
{
    pthread_mutex_init(&client.lock, NULL);
    gs_own_fd_close(&client.wake[0]);
    gs_own_fd_close(&client.wake[1]);
    known = NULL;
    client.park_requests = 0;
    client.parked = false;
    client.unthreaded = false;
    atomic_store(&client.started, false);
    atomic_store(&client.woken, false);
    atomic_store(&client.soon, false);
    atomic_store(&client.attentive, false);
}
