/* SPDX-License-Identifier: Apache-2.0
 *
 * test_throttle.c: how many events the bound on unfinished work makes (throttle.c), with the driver
 * played: a thread that goes from context to context, threads that come and go, contexts that
 * end.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/runtime/gate/throttle_driver.h"

static _Thread_local uintptr_t current;
static unsigned created, recorded;

/* --- the driver --- */

static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = (CUevent)(current * 1000 + ++created);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    assert_int_equal((uintptr_t)event / 1000, current); /* of this context */
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    recorded++;
    return event_query(event);
}

static CUresult get_current(CUcontext *context)
{
    *context = (CUcontext)current;
    return CUDA_SUCCESS;
}

static const struct throttle_driver played_driver = {event_create, event_query, event_record,
                                                     get_current};

/* --- */

static int set_up(void **state)
{
    (void)state;
    throttle_driver_begin(&played_driver);
    created = recorded = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    throttle_driver_end(3);
    return 0;
}

static void submit_call(uintptr_t context)
{
    current = context;
    for (unsigned i = 0; i < GS_THROTTLE_UNFINISHED; i++)
        gs_throttle_bound(&gs_gate_self, NULL, false);
}

static void bound_two_contexts_in_turn_makes_two_pairs(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        submit_call(1 + i % 2);
    assert_int_equal(created, 4);
    assert_int_equal(recorded, 2000);
}

static void *run_work(void *unused)
{
    (void)unused;
    submit_call(3);
    gs_throttle_thread_ends(gs_gate_self.throttle);
    return NULL;
}

static void bound_threads_one_after_another_make_one_pair(void **state)
{
    pthread_t thread;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pthread_create(&thread, NULL, run_work, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(created, 2);
}

static void context_ended_its_events_are_not_used_again(void **state)
{
    (void)state;
    submit_call(1);
    submit_call(2); /* holds 2's, 1's is spare */
    gs_throttle_context_ended((CUcontext)1);
    gs_throttle_context_ended((CUcontext)2);
    assert_int_equal(created, 4);
    submit_call(1); /* new contexts with the old handles */
    submit_call(2);
    assert_int_equal(created, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bound_two_contexts_in_turn_makes_two_pairs, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(bound_threads_one_after_another_make_one_pair, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(context_ended_its_events_are_not_used_again, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
