/* SPDX-License-Identifier: Apache-2.0
 *
 * test_client.c: the client thread's wake-up (client.c, worker.c), with everything around it played.
 * read(2) is wrapped (--wrap), so that a wake-up can come just before or after the thread takes
 * note of one; clock_gettime(2), so that somebody sets the clock of the day. Threads: the
 * client thread counts its rounds, the test waits for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "runtime/client/evidence.h"
#include "runtime/client/relocate.h"
#include "runtime/client/client.h"
#include "runtime/client/reconcile.h"
#include "runtime/base/device.h"
#include "runtime/gate/drain.h"
#include "runtime/base/driver.h"
#include "runtime/base/config.h"
#include "runtime/base/daemon.h"
#include "runtime/base/worker.h"
#include "runtime/gate/gate.h"
#include "runtime/client/session.h"
#include "runtime/memory/openings.h"
#include "runtime/base/stats.h"
#include "runtime/swap/swap.h"

#define NEVER_NS 3600000000000ull
#define LONG_MS  120000

struct gs_driver gs_driver;
struct gs_runtime gs_runtime;

static struct gs_device card;
static _Atomic(unsigned) rounds;    /* of the client thread */
static _Atomic(bool) before, after; /* the next read() of the thread: a wake-up comes then */

static _Atomic(bool) draining;
static _Atomic(bool) set_back; /* the clock of the day, by an hour */

/* --- what client.c stands on --- */

uint64_t gs_reconcile(void)
{
    atomic_fetch_add(&rounds, 1);
    return atomic_load(&draining) ? 1000000 : NEVER_NS;
}

int gs_reconcile_fd(void)
{
    return -1;
}

void gs_reconcile_begin(void)
{
}

void gs_reconcile_exiting(void)
{
}

void gs_openings_let_go(void)
{
}

bool gs_drain_busy(void)
{
    return atomic_load(&draining);
}

void gs_swap_settle(void)
{
}

void gs_stats_called(void)
{
}

bool gs_driver_load(void)
{
    return true;
}

void gs_session_give_up(const char *why)
{
    (void)why;
}

void gs_session_allow_everything(void)
{
}

void gs_gate_open(bool watched)
{
    (void)watched;
}

void gs_daemon_await_target(struct gs_device *device)
{
    (void)device;
}

void gs_relocate_collect(void)
{
}

bool gs_relocate_holds(void)
{
    return false;
}

void gs_evidence_collect(void)
{
}

void gs_daemon_remark(const char *text)
{
    (void)text;
}

struct gs_device *gs_device_get(CUdevice ordinal)
{
    (void)ordinal;
    return &card;
}

struct gs_device *gs_device_current(void)
{
    return &card;
}

struct gs_device *gs_device_at(unsigned i)
{
    return i == 0 ? &card : NULL;
}

bool gs_context_add(CUcontext handle, struct gs_device *device)
{
    (void)handle;
    (void)device;
    return true;
}

struct gs_context *gs_context_for(const struct gs_device *device)
{
    (void)device;
    return NULL;
}

uint32_t gs_contexts_generation(void)
{
    return 0;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    ssize_t got;

    if (atomic_exchange(&before, false))
        gs_worker_wake();
    got = __real_read(fd, bytes, size);
    if (atomic_exchange(&after, false))
        gs_worker_wake();
    return got;
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = __real_clock_gettime(clock, now);

    if (clock == CLOCK_REALTIME && atomic_load(&set_back))
        now->tv_sec -= 3600;
    return result;
}

/* --- the tests --- */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static bool has_come(const _Atomic(bool) *meanwhile)
{
    for (int ms = 0; ms < LONG_MS && atomic_load(meanwhile); ms++)
        pause_ms(1);
    return !atomic_load(meanwhile);
}

/* The thread has made a round after `seen` rounds. */
static bool looks_again(unsigned seen)
{
    for (int ms = 0; ms < LONG_MS && atomic_load(&rounds) == seen; ms++)
        pause_ms(1);
    return atomic_load(&rounds) != seen;
}

/* The thread sleeps: it makes no round for a while. Returns how many it has made. */
static unsigned count_rounds_at_rest(void)
{
    unsigned seen;

    do {
        seen = atomic_load(&rounds);
        pause_ms(50);
    } while (atomic_load(&rounds) != seen);
    return seen;
}

/* Whoever wakes it while it takes note of an earlier wake-up is heard, and so is whoever comes
 * later. */
static void check_wakes(_Atomic(bool) *meanwhile)
{
    unsigned seen = count_rounds_at_rest();

    atomic_store(meanwhile, true);
    gs_worker_wake();
    assert_true(looks_again(seen));
    assert_true(has_come(meanwhile));
    for (int i = 0; i < 3; i++) {
        seen = count_rounds_at_rest();
        gs_worker_wake();
        assert_true(looks_again(seen));
    }
}

static void gs_worker_wake_before_the_last_one_is_read_is_not_lost(void **state)
{
    (void)state;
    check_wakes(&before);
}

static void gs_worker_wake_after_the_last_one_is_read_is_not_lost(void **state)
{
    (void)state;
    check_wakes(&after);
}

static void *stop_draining(void *unused)
{
    pause_ms(100);
    atomic_store(&draining, false);
    return unused;
}

/* It waits for the thread to be at rest, whatever happens to the clock of the day. */
static void gs_worker_park_while_the_clock_is_set_waits(void **state)
{
    pthread_t thread;

    (void)state;
    atomic_store(&draining, true);
    atomic_store(&set_back, true);
    assert_int_equal(pthread_create(&thread, NULL, stop_draining, NULL), 0);
    gs_worker_park();
    assert_false(atomic_load(&draining));
    gs_worker_unpark();
    atomic_store(&set_back, false);
    pthread_join(thread, NULL);
}

static int start_client_thread(void **state)
{
    (void)state;
    gs_driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
    gs_client_attach_room(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gs_worker_wake_before_the_last_one_is_read_is_not_lost),
        cmocka_unit_test(gs_worker_wake_after_the_last_one_is_read_is_not_lost),
        cmocka_unit_test(gs_worker_park_while_the_clock_is_set_waits),
    };

    return cmocka_run_group_tests(tests, start_client_thread, NULL);
}
