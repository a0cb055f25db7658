/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: the daemon's clock.
 */
#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC, ns. */
uint64_t lockd_now(void);
/* The sooner of two times; also the less of two numbers of bytes. */
static inline uint64_t lockd_lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* CLOCK_REALTIME, ns since the epoch: to be shown only, since it may be set. */
uint64_t lockd_now_real(void);
