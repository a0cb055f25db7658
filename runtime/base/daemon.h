/* SPDX-License-Identifier: Apache-2.0
 *
 * daemon.h: what every thread may know of the daemon: whether there is one, and what it is to
 * be told. Written by the client thread (client/session.c).
 */
#ifndef GS_RUNTIME_BASE_DAEMON_H
#define GS_RUNTIME_BASE_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/device.h"

/* Without an answer from a daemon a program runs on its own after this time. */
#define GS_ALONE_AFTER_NS 5000000000ull

#define GS_REMARK_BYTES 160

/* True while this process runs without a daemon: nothing is gated, everything is allowed. */
bool gs_daemon_is_absent(void);
void gs_daemon_set_absent(bool absent);

/* A daemon has come back (or has yet to) and may not know of all programs: that this one is
 * alone, or that others hold so much, is not sure. until: ns; UINT64_MAX: no daemon is there;
 * 0: one is, and was there from the start. */
bool gs_daemon_is_new(uint64_t now);
bool gs_daemon_was_lost(void);
void gs_daemon_set_new_until(uint64_t until);

/* Waits until a daemon has told what this device offers, or there is none (GS_ALONE_AFTER_NS
 * after nobody answered); for answers that depend on it. Bounded. */
void gs_daemon_await_target(struct gs_device *device);

/* A remark for gpusharectl status: something of this program is not covered. The first one of
 * the process is kept. Any thread. */
void gs_daemon_remark(const char *text);

/* The same of a program that is covered. */
void gs_daemon_say(const char *text);

/* The remark, if it has not been taken yet. Client thread. */
bool gs_daemon_take_remark(char text[GS_REMARK_BYTES]);

void gs_daemon_after_fork(void);

#endif
