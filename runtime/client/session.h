/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h: the connection to the daemon. Client thread only, unless marked.
 */
#pragma once

#include "runtime/base/base.h"

/* Connects if it is time to, and obeys the daemon's messages. Without a daemon everything is
 * allowed. */
void gs_session_turn(uint64_t now);

/* The daemon's descriptor; -1: none, or the program has closed it. */
int gs_session_fd(void);

/* The daemon has been told of a device, which it answers. The first time on a connection counts. */
void gs_session_asked(uint64_t now);

/* Sending on the connection failed for good. */
void gs_session_failed(uint64_t now);

/* Sends the note that gs_daemon_remark() left. */
void gs_session_send_note(void);

/* Sends the program's wishes, if the daemon does not know them (client/api.h). */
void gs_session_send_wish(void);

/* Sends what other programs may have in common with this one (swap/common.h). */
void gs_session_send_copies(void);

/* Any thread: run without a daemon from now on, saying why once. */
void gs_session_give_up(const char *why);

/* Every device may run, with all its memory, as without a daemon. Client thread, or without a
 * client thread any. */
void gs_session_allow_everything(void);

void gs_session_after_fork(void);
