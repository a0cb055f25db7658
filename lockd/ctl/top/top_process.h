/* SPDX-License-Identifier: Apache-2.0
 *
 * top_process.h: a signal for exactly the process that is shown.
 */
#ifndef GS_LOCKD_CTL_TOP_TOP_PROCESS_H
#define GS_LOCKD_CTL_TOP_TOP_PROCESS_H

#include "common/err.h"
#include "lockd/protocol/wire.h"

/* A descriptor of the process behind a program, to be closed by the caller. -errno: it has ended,
 * cannot be seen from here, or another process has its number. */
int top_process_open(const struct gs_wire_client *client, struct gs_err *err);
/* 0 or -errno. */
int top_process_signal(int pidfd, int number, struct gs_err *err);

#endif
