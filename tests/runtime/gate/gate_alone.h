/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_alone.h: what the tests of the gate share. Each test body runs in a process of its own, since
 * gate.c's state is the process's (gate_alone.c, which also plays what gate.c needs).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/gate/gate.h"

#define MS 1000000ull

/* Whether a thread has no context, so that it need not wait; whether a stream is being captured; and
 * whether that capture ends before another one can be counted beside it. */
extern _Atomic(bool) gate_no_context, gate_capturing, gate_capture_ends;

bool gate_may_wait(void);
void gate_sleep(uint64_t ns);

/* Runs the body in a child with a fresh gate; its exit status says what failed. */
void gate_run_alone(int (*body)(void));

/* In such a body. */
#define CHECK(condition)                                                                       \
    do                                                                                         \
        if (!(condition))                                                                      \
            return __LINE__ % 250 + 1;                                                         \
    while (0)

#define ALONE(name)                                                                            \
    static void gate_##name(void **state)                                                      \
    {                                                                                          \
        (void)state;                                                                           \
        gate_run_alone(name);                                                                  \
    }
