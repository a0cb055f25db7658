/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.h: gives memory of this process to others that open its handles (CUDA IPC), and opens theirs.
 * Client thread, unless marked.
 *
 * Such memory is brought in, and stays in place for as long as another process has it open. If no
 * descriptor can be made of it, it is made anew first. range/shares.h keeps it in place.
 */
#pragma once

#include "lockd/protocol/wire.h"
#include "common/packet.h"
#include "runtime/memory/openings.h"

/* The daemon passes on a request to open memory. */
void gs_exporter_asked(const struct gs_wire_open *open, uint64_t now);

/* The connection has ended: unanswered requests come again, by way of the next daemon. */
void gs_exporter_lost(void);

/* Answers what can be answered, over the daemon's descriptor, and notices memory that is no
 * longer open. stopped: the gate is closed and everything submitted has finished. Returns ns
 * until it should be called again. */
uint64_t gs_exporter_step(uint64_t now, bool stopped, int fd);

/* True if a process opens memory that has to come in first. */
bool gs_exporter_waits(void);

/* True if memory must be made anew, for which the program has to stop for a moment. */
bool gs_exporter_needs_stop(void);

/* --- the opener's side: memory of other processes --- */

/* Gets the memory behind the handle: fills in the fields that openings.h calls `got`. Waits for
 * at most GS_OPENER_WAIT_NS. 0; -ENOENT: there is none, or none any more; -ECONNREFUSED: there
 * is no daemon; another -errno: the memory does not come. Any thread with a current context,
 * outside the gate. */
int gs_opener_get(const struct gs_ipc_handle *handle, struct gs_opening *opening);

/* The following for the client thread. Sends the requests that have not been sent on this connection (-1: there is none). */
void gs_opener_send(int fd);
/* The number of descriptors that the next message may have because of opens. */
unsigned gs_opener_expects(void);
/* A part of an answer has come; takes the descriptors that it uses out of `with`. */
void gs_opener_heard(const struct gs_wire_share *share, struct gs_descriptors *with);
/* The connection has ended: unanswered requests are sent again. */
void gs_opener_lost(void);
