/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.h: what a program asks for by itself (gpushare.h).
 */
#ifndef GS_LOCKD_SERVER_WISH_H
#define GS_LOCKD_SERVER_WISH_H

#include "lockd/protocol/wire.h"
#include "lockd/start/classes.h"

#include <stdbool.h>

struct lockd_connection;

/* The newest wish of a program. */
struct lockd_wish {
    bool suspended;
    enum gs_wire_class class; /* that it asks for; until the first wish, that of its hello */
};

/* The class that a program gets by its newest wish and the configuration. */
enum gs_wire_class lockd_wish_granted(const struct lockd_connection *connection);
/* The configuration has taken the place of `before`: a program gets another class where that says
 * another one. A class set by gpusharectl lasts elsewhere. */
void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before);

/* Takes a checked message; ends the connection of one that has not said HELLO. */
void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish);

#endif
