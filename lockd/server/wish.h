/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.h: wishes of programs: for a class, or to be suspended (gpushare.h).
 */
#ifndef GS_LOCKD_SERVER_WISH_H
#define GS_LOCKD_SERVER_WISH_H

#include "lockd/protocol/wire.h"
#include "lockd/start/lines.h"

#include <stdbool.h>

struct lockd_connection;

/* The newest wish of a program. */
struct lockd_wish {
    bool suspended;
    enum gs_wire_class class
        ; /* the class that it asks for; until the first wish, the class in HELLO */
};

/* The class that a program gets, by its newest wish and the configuration. */
enum gs_wire_class lockd_wish_granted(const struct lockd_connection *connection);
/* The configuration has replaced the lines `before`: gives the program another class if
 * its lines differ for it. Otherwise a class set by gpusharectl stays. */
void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before);

/* Takes a checked message. Ends a connection that has not sent HELLO. */
void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish);
/* A STATE was taken that tells of more memory than the STATE before: if the program has
 * suspended itself, that memory leaves, too. */
void lockd_wish_grown(struct lockd_connection *connection);

#endif
