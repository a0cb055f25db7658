/* SPDX-License-Identifier: Apache-2.0
 *
 * opener.h: gets memory that another process has exported (CUDA IPC), by way of the daemon.
 */
#pragma once

#include "common/packet.h"
#include "lockd/protocol/wire.h"
#include "runtime/memory/openings.h"

/* Gets the memory behind the handle: fills in the fields that openings.h calls `got`. Waits for
 * at most GS_OPENER_WAIT_NS. 0; -ENOENT: there is none, or none any more; -ECONNREFUSED: there
 * is no daemon; another -errno: the memory does not come. Any thread with a current context,
 * outside the gate. */
int gs_opener_get(const struct gs_ipc_handle *handle, struct gs_opening *opening);

#define GS_OPENER_WAIT_NS 30000000000ull

/* The following for the client thread. */

/* Sends the requests that have not been sent on this connection (-1: there is none). */
void gs_opener_send(int fd);

/* The number of descriptors that the next message may have because of opens. */
unsigned gs_opener_expects(void);

/* A part of an answer has come; takes the descriptors that it uses out of `with`. */
void gs_opener_heard(const struct gs_wire_share *share, struct gs_descriptors *with);

/* The connection has ended: unanswered requests are sent again. */
void gs_opener_lost(void);
