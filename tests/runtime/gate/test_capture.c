/* SPDX-License-Identifier: Apache-2.0
 *
 * test_capture.c: the notes of captures (capture.c) while other threads begin and end theirs. The
 * clock and the driver are played: another thread acts while the driver is asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/gate/capture.h"

#define SECOND 1000000000ull

struct gs_driver gs_driver;

static uint64_t now;
static CUstream here = (CUstream)0x100, there = (CUstream)0x200;
static CUstreamCaptureStatus status; /* what the driver says of any stream */
static void (*meanwhile)(void);      /* what another thread does while the driver is asked */
static unsigned asked;
static CUresult answer, failure; /* the driver's answer; what a context has failed with */
_Atomic(bool) gs_any_suspect;

uint64_t gs_now(void)
{
    return now++;
}

CUresult gs_context_push(CUcontext context)
{
    assert_non_null(context);
    return CUDA_SUCCESS;
}

CUcontext gs_context_home(CUcontext handle)
{
    return handle;
}

void gs_context_failed(CUcontext handle, CUresult result)
{
    assert_non_null(handle);
    failure = result;
    gs_any_suspect = true;
}

CUresult gs_context_ask(CUcontext handle)
{
    assert_non_null(handle);
    return failure;
}

static CUresult pop_context(CUcontext *context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult say_context(CUstream stream, CUcontext *context)
{
    (void)stream;
    *context = (CUcontext)&gs_driver;
    return CUDA_SUCCESS;
}

static CUresult say_status(CUstream stream, CUstreamCaptureStatus *said)
{
    void (*const act)(void) = meanwhile;

    (void)stream;
    *said = status;
    asked++;
    meanwhile = NULL;
    if (act != NULL)
        act();
    return answer;
}

static int begin_anew(void **state)
{
    (void)state;
    now += 1000 * SECOND;
    asked = 0;
    status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    answer = failure = CUDA_SUCCESS;
    gs_driver.cuCtxPopCurrent_v2 = pop_context;
    gs_driver.cuStreamGetCtx = say_context;
    gs_driver.cuStreamIsCapturing = say_status;
    gs_child_clear();
    return 0;
}

static void begin(CUstream stream)
{
    assert_true(gs_capture_begins(stream, false, false));
    gs_capture_changed(stream, false, true);
}

static void end(CUstream stream)
{
    assert_true(gs_capture_changes(stream, false));
    gs_capture_changed(stream, false, false);
}

static void active_for_hours_without_a_call_goes_on(void **state)
{
    (void)state;
    begin(here);
    for (unsigned minute = 0; minute < 200; minute++) {
        now += 60 * SECOND;
        gs_capture_look(now);
        assert_true(gs_capture_active());
    }
    assert_int_equal(asked, 200);
    end(here);
    assert_false(gs_capture_active());
}

static void look_removes_what_the_driver_does_not_know(void **state)
{
    (void)state;
    begin(here);
    assert_true(gs_capture_begins(there, false, false)); /* the driver's call is under way */
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    gs_capture_look(now);
    assert_int_equal(asked, 1);
    assert_true(gs_capture_active());
    assert_false(gs_capture_changes(here, false)); /* its end is seen later */
    gs_capture_changed(there, false, false);
    assert_false(gs_capture_active());
}

static void end_and_begin(void)
{
    end(here);
    begin(here);
    status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static void look_leaves_a_capture_that_begins_meanwhile(void **state)
{
    (void)state;
    begin(here);
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    meanwhile = end_and_begin;
    gs_capture_look(now);
    assert_true(gs_capture_active());
    end(here);
    assert_false(gs_capture_active());
}

static void look_leaves_a_capture_that_another_thread_ends(void **state)
{
    (void)state;
    begin(here);
    assert_true(gs_capture_changes(here, false));
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    gs_capture_look(now);
    assert_int_equal(asked, 0);
    gs_capture_changed(here, false, true); /* the driver has refused */
    assert_true(gs_capture_active());
    end(here);
}

static void look_forgets_a_capture_in_a_failed_context(void **state)
{
    (void)state;
    begin(here);
    answer = CUDA_ERROR_ILLEGAL_ADDRESS;
    gs_capture_look(now);
    assert_int_equal(failure, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(gs_capture_active());
}

static void ended_on_a_stream_that_joined_takes_none_away(void **state)
{
    (void)state;
    begin(here);
    assert_false(gs_capture_changes(there, false));
    assert_true(gs_capture_active());
    gs_capture_context_ended((CUcontext)&now);
    assert_true(gs_capture_active());
    gs_capture_context_ended((CUcontext)&gs_driver);
    assert_false(gs_capture_active());
}

static void thread_of_a_default_stream_ends_with_its_capture(void **state)
{
    (void)state;
    assert_true(gs_capture_begins(NULL, true, false));
    gs_capture_changed(CU_STREAM_PER_THREAD, false, true); /* another name of it */
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    gs_capture_look(now);
    assert_int_equal(asked, 0);
    assert_true(gs_capture_active());
    gs_capture_thread_ends();
    assert_false(gs_capture_active());
}

static void begins_beside_only_a_capture_under_way(void **state)
{
    (void)state;
    assert_false(gs_capture_begins(there, false, true));
    assert_false(gs_capture_active());
    begin(here);
    assert_true(gs_capture_begins(there, false, true));
    gs_capture_changed(there, false, true);
    end(here);
    assert_true(gs_capture_active());
    end(there);
    assert_false(gs_capture_begins(there, false, true));
    assert_false(gs_capture_active());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(active_for_hours_without_a_call_goes_on, begin_anew),
        cmocka_unit_test_setup(look_removes_what_the_driver_does_not_know, begin_anew),
        cmocka_unit_test_setup(look_leaves_a_capture_that_begins_meanwhile, begin_anew),
        cmocka_unit_test_setup(look_leaves_a_capture_that_another_thread_ends, begin_anew),
        cmocka_unit_test_setup(look_forgets_a_capture_in_a_failed_context, begin_anew),
        cmocka_unit_test_setup(ended_on_a_stream_that_joined_takes_none_away, begin_anew),
        cmocka_unit_test_setup(thread_of_a_default_stream_ends_with_its_capture, begin_anew),
        cmocka_unit_test_setup(begins_beside_only_a_capture_under_way, begin_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
