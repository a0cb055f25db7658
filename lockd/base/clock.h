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

/* The time until then for poll(2) and epoll_wait(2): ms, rounded up, at most an hour; -1 for
 * UINT64_MAX. */
static inline int lockd_ms_until(uint64_t deadline)
{
    const uint64_t now = lockd_now();
    const uint64_t ms = deadline > now ? (deadline - now - 1) / 1000000 + 1 : 0;

    return deadline == UINT64_MAX ? -1 : ms > 3600000 ? 3600000 : (int)ms;
}

/* CLOCK_REALTIME, ns since the epoch: to be shown only, since it may be set. */
uint64_t lockd_now_real(void);
