/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: the daemon's clock, in a file of its own so that a fuzz target can have another.
 */
#include "lockd/base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t lockd_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t lockd_now_real(void)
{
    return read_clock(CLOCK_REALTIME);
}
