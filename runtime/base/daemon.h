/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon.h: what all threads may know about the daemon: whether there is a daemon, and what should
 * be sent to it. The client thread writes it (client/session.c).
 */
#pragma once

#include "runtime/base/device.h"

/* If no daemon answers, a program runs on its own after this time. */
#define GS_ALONE_AFTER_NS 5000000000ull

#define GS_REMARK_BYTES 192

/* True while this process runs without a daemon: nothing is gated, everything is allowed. */
bool gs_daemon_is_absent(void);
void gs_daemon_set_absent(bool absent);

/* True if a daemon has come back (or has yet to) and may not know all programs. Then it is not
 * certain that this program is alone, or how much the others hold. until: ns; UINT64_MAX: no daemon
 * is there; 0: a daemon is there, and was from the start. */
bool gs_daemon_is_new(uint64_t now);
bool gs_daemon_was_lost(void);
void gs_daemon_set_new_until(uint64_t until);

/* The daemon may have said something that has not been taken over. To be asked before memory is
 * taken on the strength of a budget: the daemon counts on it that a program which was stopped takes
 * no memory before it has read its messages (lockd/sched/budget.c). Any thread; a system call, and
 * no cancellation point. */
bool gs_daemon_has_news(void);
/* The socket from which the messages come; -1: none. Client thread. */
void gs_daemon_set_socket(int fd);
/* Messages are being taken from the socket, and count as news until they have been taken over. */
void gs_daemon_set_reading(bool reading);

/* For answers that depend on the daemon: waits until it has said what this device offers, or
 * until there is none (GS_ALONE_AFTER_NS without an answer). */
void gs_daemon_await_target(struct gs_device *device);

/* Before memory is refused for want of capacity: what the program itself has just freed (arrays, graphs)
 * may not be in the daemon's figures yet. Asks for them, and waits for the answer, for two seconds at
 * most, and not while an earlier question had no answer in that time. Not on the client thread. */
void gs_daemon_ask_room(struct gs_device *device);

/* A remark for gpusharectl status: gpushare does not cover a part of this program, which is
 * *partly covered* from now on, so that its memory does not move. The first one of the process is
 * kept. Any thread. */
void gs_daemon_remark(const char *text);

/* The same for a program that is covered. */
void gs_daemon_say(const char *text);

/* Takes a remark that has not been taken yet. Client thread. */
bool gs_daemon_take_remark(char text[GS_REMARK_BYTES]);

void gs_daemon_after_fork(void);
