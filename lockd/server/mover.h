/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.h: connections on one side, lockd/move (programs that change devices) on the other.
 */
#ifndef GS_LOCKD_SERVER_MOVER_H
#define GS_LOCKD_SERVER_MOVER_H

#include "common/packet.h"
#include "lockd/protocol/wire.h"

struct lockd_connection;
struct lockd_server;

/* After the scheduler and the epoll descriptor have been made. */
void lockd_mover_init(struct lockd_server *server);
/* A program has said hello. */
void lockd_mover_came(struct lockd_connection *connection);
/* The connection ends, whatever it was. */
void lockd_mover_gone(struct lockd_connection *connection);
/* gpusharectl asks for a move, and gets its END when it is over. */
void lockd_mover_ask(struct lockd_connection *connection,
                     const struct gs_wire_relocate *relocate);
/* Messages of a program. */
void lockd_mover_sees(struct lockd_connection *connection, const struct gs_wire_sees *sees);
void lockd_mover_take(struct lockd_connection *connection, const struct gs_wire_move *message,
                      struct gs_descriptors *with);

#endif
