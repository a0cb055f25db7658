/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: recomputes the scheduler's sums from scratch, for tests.
 */
#pragma once

#include "lockd/sched/state.h"

/* NULL: all sums and sets are right; else a text that tells the error. */
const char *sched_check(const struct sched *sched);
