/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate_cases.c: single cases of the gate: what passes without waiting, what wakes who waits,
 * what a fork leaves.
 */
#include "tests/runtime/gate/gate_alone.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define LONG (60000 * MS)

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
    gate_sleep(10 * MS);
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
        gate_sleep(MS);
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
        gate_sleep(MS);
    gate_sleep(20 * MS); /* it is in the futex now */
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

    atomic_store(&gate_no_context, true);
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
        gate_sleep(MS);
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

static void *build_graph(void *unused)
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
    CHECK(enter_on(&stream) != (void *)(uintptr_t)((GS_PASS_NESTED | GS_PASS_RECORDED) + 1));
    gs_gate_shut();
    atomic_store(&gate_capturing, true);
    pthread_create(&recording, NULL, enter_on, &stream);
    pthread_join(recording, &result);
    CHECK(result == (void *)(uintptr_t)((GS_PASS_NESTED | GS_PASS_RECORDED) + 1));
    pthread_create(&building, NULL, build_graph, NULL);
    pthread_join(building, &result);
    CHECK(result == (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    pthread_create(&working, NULL, enter_on, NULL);
    while (gs_gate_waiting() == 0)
        gate_sleep(MS);
    gate_sleep(20 * MS);
    CHECK(gs_gate_waiting() == 1);
    activity = gs_gate_activity(&busy);
    gate_sleep(1100 * MS); /* it has looked again */
    CHECK(gs_gate_activity(&busy) == activity && !busy);
    gs_gate_open(false);
    pthread_join(working, &result);
    CHECK(result != (void *)(uintptr_t)(GS_PASS_NESTED + 1));
    return 0;
}

static void *begin_capture(void *unused)
{
    const unsigned pass = gs_gate_enter_on(NULL, GS_CALL_BEGINS);

    (void)unused;
    gs_gate_leave(pass);
    return (void *)(uintptr_t)(pass + 1);
}

/* The capture beside which another one may begin ends at that moment: the program stops, and the
 * new capture waits. */
static int capture_begins_only_beside_one_that_goes_on(void)
{
    pthread_t beside, behind;
    void *result = NULL;

    atomic_store(&gate_capturing, true);
    pthread_create(&beside, NULL, begin_capture, NULL);
    pthread_join(beside, &result);
    CHECK(result == (void *)(uintptr_t)(GS_PASS_COUNTED + 1));
    atomic_store(&gate_capture_ends, true);
    pthread_create(&behind, NULL, begin_capture, NULL);
    while (gs_gate_waiting() == 0)
        gate_sleep(MS);
    gate_sleep(20 * MS);
    CHECK(gs_gate_waiting() == 1);
    gs_gate_open(false);
    pthread_join(behind, &result);
    CHECK(result == (void *)(uintptr_t)(GS_PASS_WATCHED + 1));
    return 0;
}

ALONE(nested_pass_keeps_the_outer_one)
ALONE(try_enter_never_waits)
ALONE(shut_during_failed_close_stays_shut)
ALONE(refuse_ends_waiting)
ALONE(opening_wakes_waiters_at_once)
ALONE(no_context_passes_without_going_in)
ALONE(activity_sees_passes_and_syncs)
ALONE(errno_is_kept)
ALONE(recorded_work_passes_a_shut_gate)
ALONE(capture_begins_only_beside_one_that_goes_on)
ALONE(forked_child_starts_closed_and_alone)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate_nested_pass_keeps_the_outer_one),
        cmocka_unit_test(gate_try_enter_never_waits),
        cmocka_unit_test(gate_shut_during_failed_close_stays_shut),
        cmocka_unit_test(gate_refuse_ends_waiting),
        cmocka_unit_test(gate_opening_wakes_waiters_at_once),
        cmocka_unit_test(gate_no_context_passes_without_going_in),
        cmocka_unit_test(gate_activity_sees_passes_and_syncs),
        cmocka_unit_test(gate_errno_is_kept),
        cmocka_unit_test(gate_recorded_work_passes_a_shut_gate),
        cmocka_unit_test(gate_capture_begins_only_beside_one_that_goes_on),
        cmocka_unit_test(gate_forked_child_starts_closed_and_alone),
    };

    gs_gate_init(gate_may_wait);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
