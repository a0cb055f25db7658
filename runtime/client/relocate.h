/* SPDX-License-Identifier: Apache-2.0
 *
 * relocate.h: the program's side of a move to another device (lockd/move/move.h). It reports the
 * devices that it sees, and whether it may be moved. It gives up all device memory that could be
 * another process's, and makes no driver call of its own while a guard moves it.
 */
#pragma once

#include "runtime/base/base.h"
#include "lockd/protocol/wire.h"

/* A thread of the program has made a context: lists the devices, once. */
void gs_relocate_collect(void);

/* The following functions are for the client thread. */

/* The daemon asks for a step of the move, or says that it has ended. */
void gs_relocate_heard(const struct gs_wire_move *message);

/* The program is to be moved: memory that leaves is released, not handed over. */
bool gs_relocate_is_asked(void);

/* STOP has been answered: no call to the driver until the move is over. */
bool gs_relocate_holds(void);

/* Answers STOP when it can (stopped: as in reconcile.c). If the connection was lost, looks how
 * the move ends. Returns ns until it should be called again. */
uint64_t gs_relocate_step(bool stopped, int fd);

/* Sends what has not been sent on this connection, before the first state. 0; -EAGAIN: later;
 * another -errno: the connection has ended. */
int gs_relocate_send(int fd);

/* The connection has ended. */
void gs_relocate_lost(void);

void gs_relocate_after_fork(void);
