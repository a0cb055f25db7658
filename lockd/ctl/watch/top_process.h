/* SPDX-License-Identifier: Apache-2.0
 *
 * top_process.h: sends a signal to exactly the process that is shown.
 */
#ifndef GS_LOCKD_CTL_WATCH_TOP_PROCESS_H
#define GS_LOCKD_CTL_WATCH_TOP_PROCESS_H

#include "common/err.h"
#include "lockd/protocol/wire.h"

/* Opens a descriptor of a program's process, to be closed by the caller. -errno: the process has
 * ended, cannot be seen from here, or another process has its number. */
int top_process_open(const struct gs_wire_client *client, struct gs_err *err);
/* Sends the signal. 0 or -errno. */
int top_process_signal(int pidfd, int number, struct gs_err *err);

#endif
