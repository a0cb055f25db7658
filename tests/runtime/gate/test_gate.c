/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate.c: the gate with many threads and a closer: while it is closed nobody is inside.
 * What gate.c needs from the rest of the library is stubbed here. Each test forks (run_alone):
 * gate.c's state is the process's.
 *
 * The witness: `inside` counts threads between enter and leave, with full barriers; the closer
 * reads it while closed.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"
#include "runtime/gate/throttle.h"
#include "runtime/base/clock.h"
#include "runtime/base/stats.h"
#include "tests/runtime/random.h"

#define MS       1000000ull
#define LONG     (60000 * MS)
#define CLOSINGS 100
#define PASSES   1000
#define THREADS  8

static _Atomic(int) inside;
static _Atomic(bool) stop;
static _Atomic(uint64_t) passes, refused;
static _Atomic(bool) no_context;

/* --- stubs
 * -----------------------------------------------------------------------------------------------------------
 */

uint64_t gs_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool may_wait(void)
{
    return !atomic_load(&no_context);
}

void gs_stats_called(void)
{
}

void gs_throttle_thread_ends(struct gs_throttle *throttle)
{
    (void)throttle;
}

static _Atomic(bool) capturing;

bool gs_capture_active(void)
{
    return atomic_load(&capturing);
}

bool gs_capture_records(CUstream stream, bool per_thread)
{
    return atomic_load(&capturing) && stream != NULL && !per_thread;
}

/* --- helpers
 * ---------------------------------------------------------------------------------------------------------
 */

static void sleep_ns(uint64_t ns)
{
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&pause, NULL);
}

/* runs body in a child of its own with a fresh gate; the child's exit status says what failed
 */
static void run_alone(int (*body)(void))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(300);
        _exit(body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define CHECK(condition)                                                                       \
    do                                                                                         \
        if (!(condition))                                                                      \
            return __LINE__ % 250 + 1;                                                         \
    while (0)

static void pass_once(uint64_t *seed)
{
    const unsigned pass = gs_gate_enter();

    if (pass == GS_PASS_REFUSED) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    atomic_fetch_add(&inside, 1);
    if (random_below(seed, 4) ==
        0) { /* nested: the inner leave must not open us to the closer */
        const unsigned inner = gs_gate_enter();

        if (inner != GS_PASS_NESTED)
            abort();
        gs_gate_leave(inner);
    }
    if (random_below(seed, 64) == 0)
        sleep_ns(random_below(seed, 100000));
    atomic_fetch_sub(&inside, 1);
    gs_gate_leave(pass);
    atomic_fetch_add(&passes, 1);
}

static void *worker(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&stop))
        pass_once(&seed);
    return NULL;
}

static void *short_lived(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    for (unsigned i = 0; i < 5; i++)
        pass_once(&seed);
    return NULL;
}

/* starts and ends threads all the time: registering and unregistering against a closing gate */
static void *spawner(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;

    while (!atomic_load(&stop)) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, short_lived, (void *)(uintptr_t)random_next(&seed)) ==
            0)
            pthread_join(thread, NULL);
    }
    return NULL;
}

/* For two seconds at least, and until there was enough of everything. */
static int close_and_open(uint64_t *seed, unsigned *closings)
{
    const uint64_t until = gs_now() + 2000 * MS;

    while (gs_now() < until || *closings <= CLOSINGS || atomic_load(&passes) <= PASSES) {
        if (gs_gate_close(1000 * MS)) {
            uint64_t rounds = random_below(seed, 200);

            (*closings)++;
            for (; rounds > 0; rounds--)
                CHECK(atomic_load(&inside) == 0);
            gs_gate_open(random_below(seed, 2) == 0);
        }
        sleep_ns(random_below(seed, 200000));
    }
    return 0;
}

static int closed_means_nobody_inside(void)
{
    pthread_t threads[THREADS + 1];
    uint64_t seed = 42;
    unsigned closings = 0;
    int result;

    gs_gate_open(false);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    pthread_create(&threads[THREADS], NULL, spawner, (void *)(uintptr_t)99);
    result = close_and_open(&seed, &closings);
    atomic_store(&stop, true);
    gs_gate_open(false);
    for (unsigned i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(result == 0);
    CHECK(atomic_load(&refused) == 0);
    CHECK(gs_gate_calls() >= atomic_load(&passes));
    CHECK(gs_gate_waiting() == 0);
    return 0;
}

/* --- single cases
 * ----------------------------------------------------------------------------------------------------
 */

static int nested_pass_keeps_the_outer_one(void)
{
    unsigned outer, inner;

    gs_gate_open(false);
    outer = gs_gate_enter();
    CHECK(outer != GS_PASS_REFUSED && outer != GS_PASS_NESTED);
    inner = gs_gate_enter();
    CHECK(inner == GS_PASS_NESTED);
    gs_gate_leave(inner);
    CHECK(!gs_gate_close(5 * MS)); /* still inside */
    gs_gate_leave(outer);
    CHECK(gs_gate_close(LONG));
    return 0;
}

static int try_enter_never_waits(void)
{
    unsigned pass;

    CHECK(!gs_gate_try_enter(&pass)); /* closed from the start */
    gs_gate_open(true);
    CHECK(gs_gate_is_watched());
    CHECK(gs_gate_try_enter(&pass) && pass == GS_PASS_WATCHED);
    gs_gate_leave(pass);
    gs_gate_shut();
    CHECK(!gs_gate_try_enter(&pass));
    CHECK(gs_gate_close(LONG)); /* the refused try left nobody inside */
    return 0;
}

/* An allocation shuts the gate while the closer is at work and somebody is inside for longer
 * than it waits: memory is missing now, so the failed attempt to close must not open it again.
 */
static void *shut_soon(void *unused)
{
    (void)unused;
    sleep_ns(10 * MS);
    gs_gate_shut();
    return NULL;
}

static int shut_during_failed_close_stays_shut(void)
{
    pthread_t thread;
    unsigned pass, other;

    gs_gate_open(false);
    pass = gs_gate_enter();
    pthread_create(&thread, NULL, shut_soon, NULL);
    CHECK(!gs_gate_close(50 * MS));
    pthread_join(thread, NULL);
    gs_gate_leave(pass);
    CHECK(!gs_gate_try_enter(&other));
    return 0;
}

static void *enter_once(void *result)
{
    const unsigned pass = gs_gate_enter();

    atomic_store((_Atomic(unsigned) *)result, pass + 1);
    if (pass != GS_PASS_REFUSED)
        gs_gate_leave(pass);
    return NULL;
}

static int refuse_ends_waiting(void)
{
    _Atomic(unsigned) result = 0;
    pthread_t thread;

    pthread_create(&thread, NULL, enter_once, &result);
    while (gs_gate_waiting() == 0)
        sleep_ns(MS);
    CHECK(atomic_load(&result) == 0);
    gs_gate_refuse(true);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&result) == GS_PASS_REFUSED + 1);
    CHECK(gs_gate_enter() == GS_PASS_REFUSED); /* new ones as well */
    gs_gate_open(false);
    CHECK(gs_gate_enter() != GS_PASS_REFUSED);
    return 0;
}

/* How long a waiter sleeps on when the gate opens. */
static uint64_t waking_takes(void)
{
    _Atomic(unsigned) result = 0;
    pthread_t thread;
    uint64_t from;

    gs_gate_shut();
    pthread_create(&thread, NULL, enter_once, &result);
    while (gs_gate_waiting() == 0)
        sleep_ns(MS);
    sleep_ns(20 * MS); /* it is in the futex now */
    from = gs_now();
    gs_gate_open(false);
    pthread_join(thread, NULL);
    return gs_now() - from;
}

static int opening_wakes_waiters_at_once(void)
{
    uint64_t least = UINT64_MAX;

    /* a lost wake-up would take a second every time; the machine may be busy now and then */
    for (int i = 0; i < 60 && least >= 500 * MS; i++) {
        const uint64_t took = waking_takes();

        least = took < least ? took : least;
    }
    CHECK(least < 500 * MS);
    return 0;
}

static int no_context_passes_without_going_in(void)
{
    unsigned pass;

    atomic_store(&no_context, true);
    pass = gs_gate_enter();
    CHECK(pass == GS_PASS_NESTED);
    gs_gate_leave(pass);
    CHECK(gs_gate_waiting() == 0);
    CHECK(gs_gate_close(LONG));
    return 0;
}

static int activity_sees_passes_and_syncs(void)
{
    uint64_t before;
    unsigned pass;
    bool busy;

    gs_gate_open(false);
    before = gs_gate_activity(&busy);
    CHECK(!busy);
    pass = gs_gate_enter();
    gs_gate_activity(&busy);
    CHECK(busy);
    gs_gate_leave(pass);
    CHECK(gs_gate_activity(&busy) != before && !busy);
    before = gs_gate_activity(&busy);
    gs_gate_sync_begin();
    gs_gate_activity(&busy);
    CHECK(busy);
    gs_gate_sync_end();
    CHECK(gs_gate_activity(&busy) != before && !busy);
    return 0;
}

static int errno_is_kept(void)
{
    unsigned pass;

    gs_gate_open(true);
    errno = 4711;
    pass = gs_gate_enter(); /* registers */
    gs_gate_leave(pass);
    gs_gate_try_enter(&pass);
    gs_gate_leave(pass);
    gs_gate_refuse(true);
    gs_gate_shut();
    gs_gate_enter(); /* refused */
    CHECK(errno == 4711);
    return 0;
}

/* A thread that never came back from inside must not keep the child's gate from closing: it
 * does not exist there. */
static void *stay_inside(void *go)
{
    gs_gate_enter();
    atomic_store((_Atomic(bool) *)go, true);
    pause(); /* until the process ends */
    return NULL;
}

static int forked_child_starts_closed_and_alone(void)
{
    _Atomic(bool) is_inside = false;
    pthread_t thread;
    int status = 0;
    pid_t pid;

    gs_gate_open(false);
    gs_gate_leave(gs_gate_enter());
    pthread_create(&thread, NULL, stay_inside, &is_inside);
    while (!atomic_load(&is_inside))
        sleep_ns(MS);
    pid = fork();
    if (pid == 0) {
        unsigned pass;

        gs_gate_after_fork();
        if (gs_gate_try_enter(&pass))
            _exit(1);
        gs_gate_open(false);
        pass = gs_gate_enter();
        if (pass == GS_PASS_REFUSED || pass == GS_PASS_NESTED)
            _exit(2);
        gs_gate_leave(pass);
        _exit(gs_gate_close(LONG) && gs_gate_calls() >= 1 ? 0 : 3);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(!gs_gate_close(5 * MS)); /* here it is inside still */
    return 0;
}

static void *build(void *unused)
{
    const unsigned pass = gs_gate_enter_on(NULL, GS_CALL_BUILDS);

    (void)unused;
    if (pass != GS_PASS_REFUSED)
        gs_gate_leave(pass);
    return (void *)(uintptr_t)(pass + 1);
}

static void *enter_on(void *stream)
{
    const unsigned pass = gs_gate_enter_on(stream, stream != NULL ? GS_CALL_QUEUES : 0);

    if (pass != GS_PASS_REFUSED)
        gs_gate_leave(pass);
    return (void *)(uintptr_t)(pass + 1);
}

/* a capture keeps the program from stopping, so it must be able to go on while others wait */
static int recorded_work_passes_a_shut_gate(void)
{
    pthread_t recording, building, working;
    void *result = NULL;
    uint64_t activity;
    int stream;
    bool busy;

    gs_gate_open(false);
    CHECK(enter_on(&stream) != (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    gs_gate_shut();
    atomic_store(&capturing, true);
    pthread_create(&recording, NULL, enter_on, &stream);
    pthread_join(recording, &result);
    CHECK(result == (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    pthread_create(&building, NULL, build, NULL);
    pthread_join(building, &result);
    CHECK(result == (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    pthread_create(&working, NULL, enter_on, NULL);
    while (gs_gate_waiting() == 0)
        sleep_ns(MS);
    sleep_ns(20 * MS);
    CHECK(gs_gate_waiting() == 1);
    activity = gs_gate_activity(&busy);
    sleep_ns(1100 * MS); /* it has looked again */
    CHECK(gs_gate_activity(&busy) == activity && !busy);
    gs_gate_open(false);
    pthread_join(working, &result);
    CHECK(result != (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    return 0;
}

#define ALONE(name)                                                                            \
    static void gate_##name(void **state)                                                      \
    {                                                                                          \
        (void)state;                                                                           \
        run_alone(name);                                                                       \
    }

ALONE(closed_means_nobody_inside)
ALONE(nested_pass_keeps_the_outer_one)
ALONE(try_enter_never_waits)
ALONE(shut_during_failed_close_stays_shut)
ALONE(refuse_ends_waiting)
ALONE(opening_wakes_waiters_at_once)
ALONE(no_context_passes_without_going_in)
ALONE(activity_sees_passes_and_syncs)
ALONE(errno_is_kept)
ALONE(recorded_work_passes_a_shut_gate)
ALONE(forked_child_starts_closed_and_alone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_closed_means_nobody_inside),
        cmocka_unit_test(gate_nested_pass_keeps_the_outer_one),
        cmocka_unit_test(gate_try_enter_never_waits),
        cmocka_unit_test(gate_shut_during_failed_close_stays_shut),
        cmocka_unit_test(gate_refuse_ends_waiting),
        cmocka_unit_test(gate_opening_wakes_waiters_at_once),
        cmocka_unit_test(gate_no_context_passes_without_going_in),
        cmocka_unit_test(gate_activity_sees_passes_and_syncs),
        cmocka_unit_test(gate_errno_is_kept),
        cmocka_unit_test(gate_recorded_work_passes_a_shut_gate),
        cmocka_unit_test(gate_forked_child_starts_closed_and_alone),
    };

    gs_gate_init(may_wait);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
