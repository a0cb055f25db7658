/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.h: programs that are held back: by the setting max-memory (the bytes that the programs of one
 * user may have on one device together), by gpusharectl, by their own wish or a move; wishes for a
 * class, or to be suspended (gpushare.h).
 */
#pragma once

#include "lockd/start/config.h"

struct gs_wire_state;
struct lockd_connection;
struct lockd_server;

struct lockd_quotas {
    uint64_t tell_at; /* when to tell programs again how much is left; LOCKD_NEVER at first */
};

/* To be called before the scheduler is told of a state. */
void lockd_quota_state(struct lockd_connection *connection, const struct gs_wire_state *state);
/* Bytes that the program's user may still have on that device. */
uint64_t lockd_quota_room(const struct lockd_connection *connection, const uint8_t *uuid);
/* The program has left that device: nothing that it had there holds anybody back. */
void lockd_quota_left(struct lockd_connection *connection, const uint8_t *uuid);
/* The connection has left the list of connections. */
void lockd_quota_gone(struct lockd_connection *connection);
/* max-memory has a new value. */
void lockd_quota_changed(struct lockd_server *server);
/* Tells programs how much is left for them after others have come, gone, or changed their
 * demand. Returns when to look again. */
uint64_t lockd_quota_tend(struct lockd_server *server, uint64_t now);

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

/* The newest wish of a program. */
struct lockd_wish {
    bool suspended;
    enum gs_wire_class class; /* that it asks for; until the first wish, the class in HELLO */
};

/* gpusharectl pauses the program or resumes it, even if the program has suspended itself. */
void lockd_pause_ask(struct lockd_connection *connection, bool asked);
/* The program has reported its state: looks whether its memory comes back. */
void lockd_pause_state(struct lockd_connection *connection);
/* The program is stopped for a move to another device, or the move is over. */
void lockd_pause_move(struct lockd_connection *connection, bool moves);
/* The class that a program gets, by its newest wish and the configuration. */
enum gs_wire_class lockd_wish_granted(const struct lockd_connection *connection);
/* The configuration has replaced the lines `before`: gives the program another class if
 * its lines differ for it. Otherwise a class set by gpusharectl stays. */
void lockd_wish_reconsider(struct lockd_connection *connection,
                           const struct lockd_lines *before);
/* Takes a checked message of a program. */
void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish);
