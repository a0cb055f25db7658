/* SPDX-License-Identifier: Apache-2.0
 *
 * constants.h: the times, sizes and shares that the scheduler decides by, and arithmetic that
 * does not wrap.
 */
#pragma once

#include <stdint.h>

#define MIB           (1024ull * 1024)
#define GIB           (1024 * MIB)
#define NS_PER_MS     1000000ull
#define PPM           1000000ull
#define QUANTUM_MIN   (200 * NS_PER_MS)
#define QUANTUM_MAX   (60000 * NS_PER_MS)
#define SHARE_PPM     15000          /* a switch may cost 1.5 % of the quantum */
#define FLOOR_PPM     600000         /* of their fair share, which batch programs keep */
#define SWITCH_RATE   50000000000ull /* bytes a second, until a switch was measured */
#define SLOWEST       100000000ull /* bytes a second: less is no progress, beside other users */
#define SWITCH_UNSEEN (1 * NS_PER_MS) /* ... that it does not show: threads wake up */
#define IDLE_MIN      (5 * NS_PER_MS) /* also the cost of a switch that moves nothing */
#define IDLE_MAX      (500 * NS_PER_MS)
#define CHANGE        2 /* switches, that it costs to give another party a turn */
#define COMING        4 /* switches, in which one that is to run has come */
#define SPARE_MOST    (10000 * NS_PER_MS) /* in the floor's account, or missing from it */
#define HALF_LIFE     (60000 * NS_PER_MS) /* of what was had */
#define LEVEL_START   (1ull << 62)        /* room for debts below, a century above */
#define ROUND_START   (1ull << 32)        /* places below it are by age */

/* Of the mechanism; docs/scheduling.md has the reasons. */
#define LOOK_AGAIN        NS_PER_MS       /* at what is just not so yet */
#define LOOK_PAUSE        (5 * NS_PER_MS) /* between looks at what may be put off for ever */
#define TELL_PAUSE        (100 * NS_PER_MS) /* between things told to all that can wait, and looks */
#define REPEAT            (1000 * NS_PER_MS) /* between actions on figures that flutter, and looks */
#define SILENT            (1000 * NS_PER_MS)  /* without an echo */
#define MOVED_BY          (3000 * NS_PER_MS)  /* memory on its way has come by then */
#define GRACE             (10000 * NS_PER_MS) /* a turn or a stop without progress */
#define RETURN_WINDOW     (2000 * NS_PER_MS)  /* to come back, or for the driver to clear up */
#define RESTART_SETTLE    (300 * NS_PER_MS)   /* without a plan, after a restart */
#define EXTERNAL_CONFIRM  (20 * NS_PER_MS)    /* from a doubt to the question */
#define SHARE_STEP        (2 * MIB)
#define CREDIT_STEP       (16 * MIB)
#define TARGETS_IN_FLIGHT 4
#define PLAN_ROUNDS       64 /* of one plan; the rest of it comes a little later */

static inline uint64_t sched_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sched_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Sets a time to an earlier time. */
static inline void sched_sooner(uint64_t *at, uint64_t than)
{
    *at = sched_min(*at, than);
}

static inline uint64_t sched_clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return sched_min(sched_max(value, low), high);
}

static inline uint64_t sched_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
