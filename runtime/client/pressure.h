/* SPDX-License-Identifier: Apache-2.0
 *
 * pressure.h: the program's callback before memory leaves: a thread of its own, and the client
 * thread that asks it and waits with a bound.
 */
#pragma once

#include "runtime/base/base.h"

/* The longest time for which memory waits for the callback. */
#define GS_PRESSURE_NS 100000000ull

/* Sets the callback; NULL: none. 0; -EAGAIN: no thread. Any thread. */
int gs_pressure_set(void (*callback)(void *), void *argument);

/* Before the gate closes because memory may leave: asks the callback once for each stop, and
 * returns for how many ns it is to be waited; 0: the gate may close. Client thread. */
uint64_t gs_pressure_wait(uint64_t now);

/* The program runs again: the next stop calls it again. Client thread. */
void gs_pressure_over(void);
