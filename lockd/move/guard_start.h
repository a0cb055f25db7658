/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_start.h: the daemon's end of a guard: its start, its orders and its words.
 */
#ifndef GS_LOCKD_MOVE_GUARD_START_H
#define GS_LOCKD_MOVE_GUARD_START_H

#include <stdbool.h>

#include "lockd/move/guard.h"

/* The guard service's socket (systemd/gpushare-guard.socket). */
#define LOCKD_GUARD_SOCKET "/run/gpushare-guard/guard.sock"

/* Starts the guard of the process that the order names, by the guard service where there is one
 * that serves this user, and gives it its first order, with a descriptor (-1: none). epoll watches
 * it from now on, with that tag. The daemon's end of the guard's socket, or -errno. */
int lockd_guard_start(const struct lockd_guard_order *order, int with, int epoll, void *tag);
/* Reads the guard's next word: one of enum lockd_guard_word and a text without control
 * characters; "?the guard ended" if it has ended. False: it has sent nothing. */
bool lockd_guard_read(int guard, char word[LOCKD_GUARD_TEXT + 1]);
/* Sends the next order. False: the guard has ended. */
bool lockd_guard_order(int guard, const struct lockd_guard_order *order, int with);
/* Advice for a guard that sent UNABLE: why the guards of this daemon may not checkpoint, and how
 * to enable them. "": nothing is known to help. */
const char *lockd_guard_advice(void);

#endif
