/* SPDX-License-Identifier: Apache-2.0
 *
 * relocate.h: the program's side of a move to another device (lockd/move/move.h): it says which
 * devices it sees, and whether it may be moved; it gives up all device memory that could be
 * another process's, and makes no driver call of its own while a guard moves it.
 */
#ifndef GS_RUNTIME_CLIENT_RELOCATE_H
#define GS_RUNTIME_CLIENT_RELOCATE_H

#include <stdbool.h>
#include <stdint.h>

#include "lockd/protocol/wire.h"

/* A thread of the program has made a context: looks which devices there are, once. */
void gs_relocate_collect(void);

/* The following for the client thread. */

/* A step that the daemon asks for, or the end. */
void gs_relocate_heard(const struct gs_wire_move *message);

/* The program is to be moved: memory that leaves is released, not handed over. */
bool gs_relocate_is_asked(void);

/* The program's answer to STOP was given: nothing calls the driver until the move is over. */
bool gs_relocate_holds(void);

/* Answers STOP when it can (stopped: as in reconcile.c); looks how a move ends that has lost its
 * daemon. Returns ns until it wants to be called again. */
uint64_t gs_relocate_step(bool stopped, int fd);

/* Says what has not been said on this connection: before the first state. 0, -EAGAIN: later; -errno:
 * the connection is gone. */
int gs_relocate_send(int fd);

/* The connection has ended. */
void gs_relocate_lost(void);

void gs_relocate_after_fork(void);

#endif
