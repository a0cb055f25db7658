/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.h: what a program asks for by itself (gpushare.h).
 */
#ifndef GS_LOCKD_SERVER_WISH_H
#define GS_LOCKD_SERVER_WISH_H

#include "lockd/protocol/wire.h"

struct lockd_connection;

/* Takes a checked message; ends the connection of one that has not said HELLO. */
void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish);

#endif
