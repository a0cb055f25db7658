/* SPDX-License-Identifier: Apache-2.0
 *
 * uncancelled.h: the program's driver calls are no cancellation points (pthreads(7)), and the
 * library's work in them must not make them such. Otherwise a cancelled thread would end in the
 * middle, and count as waiting for ever.
 *
 * Cancellation is off in a scope of each function that a thread of the program can reach and that
 * calls a function of pthreads(7)'s list. The library's own threads disable it once. The gate's
 * fast path does none of this.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "common/fd.h"

/* Off until gs_cancel_restore() gets the result. */
static inline int gs_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void gs_cancel_restore(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* GS_UNCANCELLED cancel = gs_cancel_off(): off until the end of the block. */
#define GS_UNCANCELLED __attribute__((cleanup(gs_cancel_restore), unused)) const int

/* Sleeps; a signal may shorten it. Leaves errno as it is. */
static inline void gs_pause(uint64_t ns)
{
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    GS_UNCANCELLED cancel = gs_cancel_off();
    GS_KEEP_ERRNO;

    nanosleep(&pause, NULL);
}
