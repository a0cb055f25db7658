/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: the daemon's clock, in a file of its own so that a fuzz target can have another.
 */
#include "lockd/server/clock.h"

#include <time.h>

uint64_t lockd_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
