/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h: the library's one thread of its own (what it does: client/client.c): its start, its
 * wake-up and its parking.
 */
#ifndef GS_RUNTIME_BASE_WORKER_H
#define GS_RUNTIME_BASE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the thread once per process, with all signals blocked. Returns 0 if it runs, 1 if this
 * call has started it, -errno if it could not, then or ever before. Any thread. */
int gs_worker_start(void *(*work)(void *));

/* Something changed that the thread should look at. Any thread; never blocks. */
void gs_worker_wake(void);

/* The same, but within a few milliseconds is soon enough, and often costs no system call. */
void gs_worker_wake_soon(void);

/* Between the two the thread makes no driver call. They nest over threads. Waits for at most
 * one step of moving. Any thread. */
void gs_worker_park(void);
void gs_worker_unpark(void);

/* gs_worker_park() that waits no longer than limit_ns. */
void gs_worker_park_for(uint64_t limit_ns);

/* The rest is for the thread itself. */

/* True if somebody asks it to park. */
bool gs_worker_is_asked_to_park(void);

/* Stays parked for as long as somebody asks for that and may_park says so. */
void gs_worker_stay_parked(bool (*may_park)(void));

/* Makes the wake-up anew where the program has closed it. Before the round that sees what
 * nobody could wake the thread for. */
void gs_worker_mend_wake(void);

/* Sleeps until it is woken or fd becomes readable (-1: none), at most timeout_ns. */
void gs_worker_rest(int fd, uint64_t timeout_ns);

void gs_worker_after_fork(void);

#endif
