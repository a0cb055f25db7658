/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h: the library's one thread of its own: its start, its wake-up and its parking.
 * client/client.c has its work.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Starts a detached thread with all signals blocked. 0 or an errno. */
int gs_worker_thread(const char *name, void *(*work)(void *));

/* Starts the thread once in a process, with all signals blocked. Returns 0 if it runs, 1 if this
 * call has started it, or -errno if it could not be started, now or before. Any thread. */
int gs_worker_start(void *(*work)(void *));

/* The thread should look at a change. Any thread; never blocks. */
void gs_worker_wake(void);

/* The same within a few milliseconds, which often costs no system call. */
void gs_worker_wake_soon(void);

/* Between these two calls the thread makes no driver call. They may nest, also across threads.
 * Waits for one step of moving at most. Any thread. */
void gs_worker_park(void);
void gs_worker_unpark(void);

/* gs_worker_park() that waits no longer than limit_ns. */
void gs_worker_park_for(uint64_t limit_ns);

/* The following functions are for the thread itself. */

/* True in the thread itself. Any thread. */
bool gs_worker_is_self(void);

/* True if a thread asks it to park. */
bool gs_worker_is_asked_to_park(void);

/* Stays parked while a thread asks for that and may_park agrees. */
void gs_worker_stay_parked(bool (*may_park)(void));

/* Makes the wake-up again if the program has closed it. To be called before a round, which then
 * sees the changes for which the thread could not be woken. */
void gs_worker_mend_wake(void);

/* Sleeps until it is woken or fd becomes readable (-1: none), at most timeout_ns. */
void gs_worker_rest(int fd, uint64_t timeout_ns);

void gs_worker_after_fork(void);
