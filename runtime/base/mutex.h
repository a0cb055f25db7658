/* SPDX-License-Identifier: Apache-2.0
 *
 * mutex.h: what is cleared in a forked child; where no thread is cancelled; the library's mutexes
 * with their order, and conditions whose waits have a bound. In debug builds a thread that takes a
 * lock out of order traps; in release builds these are the plain calls. No lock is held across a
 * driver call.
 */
#pragma once

#include "common/fd.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* Variables that are zero in a forked child, as they are when a program starts: what they say is of
 * the parent, and what they point to is left to it. A pthread_mutex_t, a pthread_cond_t and a
 * pthread_once_t are zero before their first use. */
#define GS_ZERO_IN_CHILD __attribute__((section("gs_child")))

/* For the child, once what these variables hold has been closed there. Nothing may take a lock
 * before: a thread of the parent may have held it. */
static inline void gs_child_clear(void)
{
    extern __attribute__((visibility("hidden"))) char __start_gs_child[], __stop_gs_child[];

    memset(__start_gs_child, 0, (size_t)(__stop_gs_child - __start_gs_child));
}

/* The program's driver calls are no cancellation points (pthreads(7)), and the library's work in them
 * must not make them such. Otherwise a cancelled thread would end in the middle, and count as waiting
 * for ever. Cancellation is off in a scope of each function that a thread of the program can reach and
 * that calls a function of pthreads(7)'s list. The library's own threads disable it once. The gate's
 * fast path does none of this. */

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

/* A thread that holds a mutex may take only those below it in this list. */
enum gs_lock_rank {
    GS_LOCK_CLIENT,   /* client.c: parking */
    GS_LOCK_DEVICES,  /* device.c: devices and contexts */
    GS_LOCK_DRAIN,    /* drain.c */
    GS_LOCK_OPENER,   /* ipc.c: opens that are not answered yet */
    GS_LOCK_MEMORY,   /* range.c: the address tree, slabs, accounts */
    GS_LOCK_CAPTURES, /* capture.c: notes of captures */
    GS_LOCK_THREADS,  /* gate.c: the list of threads */
    GS_LOCK_THROTTLE, /* throttle.c: pairs of events */
    GS_LOCK_STATS,    /* stats.c: names and objects seen */
    GS_LOCK_HOST,     /* host.c, host_file.c: host memory */
    GS_LOCK_EVIDENCE, /* evidence.c: keys */
};

/* device.c: the one mutex of device memory; it guards the trees of addresses, slabs, pools,
 * accounts and lists. */
extern pthread_mutex_t gs_memory_lock;

#ifndef NDEBUG
/* A bit for each rank. Weak: every file defines it, the linker keeps a single definition. */
__attribute__((weak)) _Thread_local unsigned gs_locks_held;
#endif

static inline void gs_lock(pthread_mutex_t *mutex, enum gs_lock_rank rank)
{
#ifndef NDEBUG
    if ((gs_locks_held >> rank) != 0)
        __builtin_trap();
    gs_locks_held |= 1u << rank;
#else
    (void)rank;
#endif
    pthread_mutex_lock(mutex);
}

static inline void gs_unlock(pthread_mutex_t *mutex, enum gs_lock_rank rank)
{
#ifndef NDEBUG
    gs_locks_held &= ~(1u << rank);
#else
    (void)rank;
#endif
    pthread_mutex_unlock(mutex);
}

struct gs_hold {
    pthread_mutex_t *mutex;
    enum gs_lock_rank rank;
};

static inline struct gs_hold gs_hold(pthread_mutex_t *mutex, enum gs_lock_rank rank)
{
    gs_lock(mutex, rank);
    return (struct gs_hold){mutex, rank};
}

static inline void gs_let_go(const struct gs_hold *hold)
{
    gs_unlock(hold->mutex, hold->rank);
}

/* Holds the mutex from here to the end of the scope. */
#define GS_HOLD(mutex, rank)                                                                   \
    __attribute__((cleanup(gs_let_go))) const struct gs_hold hold = gs_hold(mutex, rank)
#define GS_HOLD_MEMORY GS_HOLD(&gs_memory_lock, GS_LOCK_MEMORY)

/* Does that under the mutex; has its value. */
#define GS_WITH(mutex, rank, ...)                                                              \
    ({                                                                                         \
        GS_HOLD(mutex, rank);                                                                  \
        __VA_ARGS__;                                                                           \
    })
#define GS_WITH_MEMORY(...) GS_WITH(&gs_memory_lock, GS_LOCK_MEMORY, __VA_ARGS__)

/* The time of CLOCK_MONOTONIC in ns from now. */
static inline struct timespec gs_deadline(uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    return until;
}

/* The bounds of its waits are times of CLOCK_MONOTONIC: setting the system's clock during a wait
 * changes nothing. (pthread_cond_clockwait would need a newer libc.) */
static inline void gs_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}
