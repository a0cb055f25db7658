/* SPDX-License-Identifier: Apache-2.0
 *
 * test_capture.c: the count of captures (capture.c) while other threads begin and end theirs. The
 * clock and the gate are played: another thread acts while a look reads the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/driver.h"
#include "runtime/gate/capture.h"
#include "runtime/gate/gate.h"

#define SECOND 1000000000ull

struct gs_driver gs_driver;

static uint64_t now, activity;
static void (*meanwhile)(void); /* what another thread does before the clock's answer arrives */

uint64_t gs_now(void)
{
    const uint64_t answer = now++;
    void (*const act)(void) = meanwhile;

    meanwhile = NULL;
    if (act != NULL)
        act();
    return answer;
}

uint64_t gs_gate_activity(bool *busy)
{
    *busy = false;
    return activity;
}

static int begin_anew(void **state)
{
    (void)state;
    now += 1000 * SECOND;
    activity++;
    gs_capture_init(gs_gate_activity);
    gs_child_clear();
    return 0;
}

static void another_is_seen(void)
{
    activity++;
    assert_true(gs_capture_active());
}

static void another_begins(void)
{
    gs_capture_begins();
}

static void active_seen_later_by_another_thread_goes_on(void **state)
{
    (void)state;
    gs_capture_begins();
    meanwhile = another_begins;
    assert_true(gs_capture_active());
    meanwhile = another_is_seen;
    assert_true(gs_capture_active());
    gs_capture_ended();
    assert_true(gs_capture_is_any());
    gs_capture_ended();
    assert_false(gs_capture_is_any());
}

static void active_without_calls_for_a_minute_is_forgotten(void **state)
{
    (void)state;
    gs_capture_begins();
    assert_true(gs_capture_active());
    now += 59 * SECOND;
    assert_true(gs_capture_active());
    now += 2 * SECOND;
    assert_false(gs_capture_active());
    gs_capture_begins(); /* a new one counts */
    assert_true(gs_capture_active());
    gs_capture_ended();
    assert_false(gs_capture_active());
}

static void active_forgets_no_capture_that_begins_meanwhile(void **state)
{
    (void)state;
    gs_capture_begins();
    assert_true(gs_capture_active());
    now += 61 * SECOND;
    meanwhile = another_begins;
    assert_true(gs_capture_active());
    assert_true(gs_capture_is_any());
}

static void ended_after_it_was_forgotten_takes_none_away(void **state)
{
    (void)state;
    gs_capture_begins();
    assert_true(gs_capture_active());
    now += 61 * SECOND;
    assert_false(gs_capture_active());
    gs_capture_ended();
    gs_capture_begins();
    assert_true(gs_capture_active());
}

static void another_ends(void)
{
    gs_capture_ended();
}

static void joins_only_a_capture_under_way(void **state)
{
    (void)state;
    assert_false(gs_capture_joins());
    assert_false(gs_capture_is_any());
    gs_capture_begins();
    assert_true(gs_capture_joins());
    gs_capture_ended();
    assert_true(gs_capture_is_any()); /* the one that has joined */
    meanwhile = another_ends;
    assert_false(gs_capture_joins());
    assert_false(gs_capture_is_any());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(active_seen_later_by_another_thread_goes_on, begin_anew),
        cmocka_unit_test_setup(active_without_calls_for_a_minute_is_forgotten, begin_anew),
        cmocka_unit_test_setup(active_forgets_no_capture_that_begins_meanwhile, begin_anew),
        cmocka_unit_test_setup(joins_only_a_capture_under_way, begin_anew),
        cmocka_unit_test_setup(ended_after_it_was_forgotten_takes_none_away, begin_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
