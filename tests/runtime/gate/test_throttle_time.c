/* SPDX-License-Identifier: Apache-2.0
 *
 * test_throttle_time.c: how much unfinished work the bound (throttle.c) leaves, with a played
 * driver, a device that works off kernels of one length, and a clock that only its waits and
 * calls move.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "tests/runtime/gate/throttle_driver.h"

#define US     1000ull
#define MS     (1000 * US)
#define CALL   (2 * US)  /* what a submission takes of the thread */
#define LOOK   (50 * US) /* the pause between two looks at an event */
#define EVENTS 64
#define WARM   64 /* submissions */

static uint64_t now, free_at, idle, due[EVENTS];
static uintptr_t events;

uint64_t gs_now(void)
{
    return now;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    assert_true(++events < EVENTS);
    due[events] = 0;
    *event = (CUevent)events;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    if (now >= due[(uintptr_t)event])
        return CUDA_SUCCESS;
    now += LOOK;
    return CUDA_ERROR_NOT_READY;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    due[(uintptr_t)event] = free_at > now ? free_at : now;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    *context = (CUcontext)1;
    return CUDA_SUCCESS;
}

static const struct throttle_driver played_driver = {event_create, event_query, event_record,
                                                     get_current};

/* --- */

static int set_up(void **state)
{
    (void)state;
    throttle_driver_begin(&played_driver);
    now = 1000 * MS;
    free_at = now;
    events = 0;
    gs_gate_self.submissions = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    throttle_driver_end(1);
    return 0;
}

/* Submits kernels of that length as fast as it may. The most unfinished work that there was
 * when another program's might have come, ns; `idle`: how long the device had none. */
static uint64_t run_kernels(uint64_t length, unsigned count)
{
    uint64_t most = 0;

    for (unsigned i = 0; i < WARM + count; i++) {
        if (i == WARM)
            idle = most = 0;
        now += CALL;
        if (free_at < now) {
            idle += now - free_at;
            free_at = now;
        }
        free_at += length;
        if (free_at - now > most)
            most = free_at - now;
        gs_throttle_bound(&gs_gate_self, NULL, false);
    }
    return most;
}

static void unfinished_work_is_bounded_by_number(void **state)
{
    (void)state;
    assert_in_range(run_kernels(MS, 100), 16 * MS, 48 * MS);
}

#define played(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        played(unfinished_work_is_bounded_by_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
