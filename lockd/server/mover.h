/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.h: connects lockd/move (programs that change devices) with connections.
 */
#pragma once

#include "common/packet.h"
#include "lockd/protocol/wire.h"

struct lockd_connection;
struct lockd_server;

/* To be called after the scheduler and the epoll descriptor have been made. */
void lockd_mover_init(struct lockd_server *server);
/* A program has sent HELLO. */
void lockd_mover_came(struct lockd_connection *connection);
/* The connection ends, of a program or not. */
void lockd_mover_gone(struct lockd_connection *connection);
/* gpusharectl requests a move, and gets its END when the move is over. */
void lockd_mover_ask(struct lockd_connection *connection,
                     const struct gs_wire_relocate *relocate);
/* Messages of a program. */
void lockd_mover_sees(struct lockd_connection *connection, const struct gs_wire_sees *sees);
void lockd_mover_take(struct lockd_connection *connection, const struct gs_wire_move *message,
                      struct gs_descriptors *with);
