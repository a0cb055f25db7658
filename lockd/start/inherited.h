/* SPDX-License-Identifier: Apache-2.0
 *
 * inherited.h: resets the attributes that a daemon inherits from the program that started it. It
 * must not keep them, since it serves other programs as well.
 */
#pragma once

#include "lockd/start/sockets.h"

#include <stdint.h>

#define LOCKD_DESCRIPTORS_MAX 65536u /* the daemon asks for no more */

/* Signals: none blocked, none ignored. For every daemon. */
void lockd_inherited_signals(void);

/* The other attributes, for a daemon that goes to the background: umask, groups of root,
 * limits, nice value, scheduling policy, processors, I/O priority and OOM score, as far as
 * the process may change them. The administrator sets those of a service, which keeps them. */
void lockd_inherited_drop(void);

/* The number of descriptors to which a process may raise its limit; 0: not known, since it is
 * another user's. */
uint64_t lockd_inherited_descriptors(int32_t pid);

/* Goes to the background. The caller's process ends with 0 once the daemon listens; the daemon
 * has a session of its own, / as its folder, no inherited descriptors and no terminal. 0 in the
 * daemon, or -errno. */
int lockd_detach(const struct lockd_sockets *sockets, struct gs_err *err);

/* Sends one datagram to NOTIFY_SOCKET, if that is set: sd_notify(3). */
void lockd_notify(const char *state);
