/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: the library's clock. No state.
 */
#include "runtime/base/clock.h"
#include "runtime/base/base.h"

uint64_t gs_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
