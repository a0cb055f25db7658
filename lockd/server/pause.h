/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: programs that are held back by gpusharectl, a quota, their own wish or a move; wishes
 * for a class, or to be suspended (gpushare.h).
 */
#pragma once

#include "lockd/protocol/wire.h"
#include "lockd/start/config.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;

/* The reasons to pause a program; it is paused while there is any. */
struct lockd_pause {
    bool asked;    /* gpusharectl paused it */
    bool wished;   /* the program suspended itself */
    bool moves;    /* it is being moved to another device */
    uint32_t over; /* devices on which a quota holds it back */
    /* It has become partly covered while memory of it was not in place: neither gpusharectl nor its
     * own wish pauses it until that memory is back, which happens once. */
    bool partial, comes_back;
};

/* gpusharectl pauses the program or resumes it, even if the program has suspended itself. */
void lockd_pause_ask(struct lockd_connection *connection, bool asked);
/* The program has reported its state: looks whether its memory comes back. */
void lockd_pause_state(struct lockd_connection *connection);
/* The program is stopped for a move to another device, or the move is over. */
void lockd_pause_move(struct lockd_connection *connection, bool moves);
/* A quota holds the program back on one device more, or on one less. */
void lockd_pause_hold(struct lockd_connection *connection, bool over);

/* The newest wish of a program. */
struct lockd_wish {
    bool suspended;
    enum gs_wire_class class; /* that it asks for; until the first wish, the class in HELLO */
};

/* The class that a program gets, by its newest wish and the configuration. */
enum gs_wire_class lockd_wish_granted(const struct lockd_connection *connection);
/* The configuration has replaced the lines `before`: gives the program another class if
 * its lines differ for it. Otherwise a class set by gpusharectl stays. */
void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before);

/* Takes a checked message of a program. */
void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish);
/* A STATE was taken that tells of more memory than the STATE before: if the program has
 * suspended itself, that memory leaves, too. */
void lockd_wish_grown(struct lockd_connection *connection);
