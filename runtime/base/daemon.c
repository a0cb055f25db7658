/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon.c: owns what all threads may know about the daemon (daemon.h). Atomics only.
 */
#include "runtime/base/daemon.h"

#include <sys/ioctl.h>

#include "runtime/base/base.h"

/* A daemon that runs answers in less than a millisecond. */
#define ANSWER_NS      2000000000ull
#define PAUSE_LEAST_NS 20000ull
#define PAUSE_MOST_NS  200000ull

static struct {
    _Atomic(bool) absent; /* release, after what the process may have without a daemon is set */
    _Atomic(uint64_t) new_until; /* ns */
    _Atomic(int) socket;   /* of the client thread's connection, plus 1; 0: there is none */
    _Atomic(bool) reading; /* seq_cst, with the look into the socket */
    struct remark {
        _Atomic(bool) taken, pending;
        char text[GS_REMARK_BYTES]; /* written once, before pending */
    } remark, partial;
} self;

bool gs_daemon_is_absent(void)
{
    return atomic_load_explicit(&self.absent, memory_order_acquire);
}

void gs_daemon_set_absent(bool absent)
{
    atomic_store_explicit(&self.absent, absent, memory_order_release);
}

bool gs_daemon_is_new(uint64_t now)
{
    return now < atomic_load_explicit(&self.new_until, memory_order_relaxed);
}

bool gs_daemon_was_lost(void)
{
    return atomic_load_explicit(&self.new_until, memory_order_relaxed) != 0;
}

void gs_daemon_set_new_until(uint64_t until)
{
    atomic_store_explicit(&self.new_until, until, memory_order_relaxed);
}

bool gs_daemon_has_news(void)
{
    const int fd = atomic_load_explicit(&self.socket, memory_order_relaxed) - 1, before = errno;
    int bytes = 0;
    const bool unread = fd >= 0 && ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;

    errno = before;
    /* in this order: a message is taken from the socket only while `reading` is set */
    return unread || atomic_load_explicit(&self.reading, memory_order_seq_cst);
}

void gs_daemon_set_socket(int fd)
{
    atomic_store_explicit(&self.socket, fd + 1, memory_order_relaxed);
}

void gs_daemon_set_reading(bool reading)
{
    atomic_store_explicit(&self.reading, reading, memory_order_seq_cst);
}

void gs_daemon_await_target(struct gs_device *device)
{
    /* normally the session gives up earlier; this is for a driver that hangs in the client
     * thread */
    const uint64_t until = gs_now() + 3 * GS_ALONE_AFTER_NS;
    uint64_t pause = PAUSE_LEAST_NS;

    while (atomic_load_explicit(&device->target.seq, memory_order_acquire) == 0 &&
           !gs_daemon_is_absent() && gs_now() < until) {
        gs_pause(pause);
        pause = pause < PAUSE_MOST_NS ? pause * 2 : PAUSE_MOST_NS;
    }
}

static bool is_answered(const struct gs_device *device, uint64_t number)
{
    return atomic_load_explicit(&device->target.answered, memory_order_acquire) >= number;
}

void gs_daemon_ask_room(struct gs_device *device)
{
    const uint64_t until = gs_now() + ANSWER_NS;
    const uint64_t number =
        atomic_fetch_add_explicit(&device->target.asked, 1, memory_order_release) + 1;
    uint64_t pause = PAUSE_LEAST_NS;

    gs_worker_wake();
    if (!is_answered(device,
                     atomic_load_explicit(&device->target.waited, memory_order_relaxed)))
        return; /* a daemon that hangs */
    while (!is_answered(device, number) && !gs_daemon_is_absent() && gs_now() < until) {
        gs_pause(pause);
        pause = pause < PAUSE_MOST_NS ? pause * 2 : PAUSE_MOST_NS;
    }
    atomic_store_explicit(&device->target.waited, number, memory_order_relaxed);
}

static void leave_remark(struct remark *remark, const char *text)
{
    if (atomic_exchange_explicit(&remark->taken, true, memory_order_relaxed))
        return;
    snprintf(remark->text, sizeof remark->text, "%s", text);
    atomic_store_explicit(&remark->pending, true, memory_order_release);
    gs_worker_wake();
}

void gs_daemon_remark(const char *text)
{
    atomic_store_explicit(&gs_runtime.partial, true, memory_order_release);
    leave_remark(&self.partial, text);
}

void gs_daemon_say(const char *text)
{
    leave_remark(&self.remark, text);
}

static bool take_remark(struct remark *remark, char text[GS_REMARK_BYTES])
{
    if (!atomic_exchange_explicit(&remark->pending, false, memory_order_acq_rel))
        return false;
    memcpy(text, remark->text, GS_REMARK_BYTES);
    return true;
}

bool gs_daemon_take_remark(char text[GS_REMARK_BYTES])
{
    return take_remark(&self.partial, text) || take_remark(&self.remark, text);
}

void gs_daemon_after_fork(void)
{
    atomic_store(&self.absent, false);
    atomic_store(&self.new_until, 0);
    atomic_store(&self.socket, 0);
    atomic_store(&self.reading, false);
    atomic_store(&self.remark.pending, false);
    atomic_store(&self.partial.pending, atomic_load(&self.partial.taken)); /* of it, too */
}
