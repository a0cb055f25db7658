/* SPDX-License-Identifier: Apache-2.0
 *
 * move.h: programs that change to another device while they run. The program is paused and its
 * movable memory leaves as for any other program's turn; then a guard (lockd/guard) has the
 * driver checkpoint what is left of it, which is little, and restore it on the other device. There
 * it goes on as a program that has all of its memory on the host.
 *
 * Everything that can be known is checked before the program is stopped. A refusal, or a failure
 * until the driver has locked the process, leaves the program as it was.
 */
#ifndef GS_LOCKD_SERVER_MOVE_H
#define GS_LOCKD_SERVER_MOVE_H

#include "common/err.h"
#include "common/packet.h"
#include "lockd/balance/balance.h"
#include "lockd/base/list.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_move;
struct lockd_server;

struct lockd_moves {
    struct lockd_list
        list;        /* one that was asked for at most; others were begun by earlier daemons */
    uint32_t number; /* of the last one */
};

/* How a move ends. */
enum lockd_move_end {
    LOCKD_MOVE_DONE,      /* the program is on the other device */
    LOCKD_MOVE_NOT_THERE, /* not to that device */
    LOCKD_MOVE_NOT_IT,    /* not that program, at present */
    LOCKD_MOVE_NOBODY,    /* no program can be moved here */
};

enum balance_outcome lockd_move_outcome(enum lockd_move_end end);

/* A device that a program sees, as it says. */
struct lockd_seen {
    uint8_t uuid[16];
    uint64_t total;
    char name[64];
};

struct lockd_sees {
    struct lockd_seen *device;
    uint32_t count;
    bool left; /* it has said GS_MOVE_LEFT, which it does once on a connection */
};

/* Begins to move the program from one of its devices to another. 0; -errno: it cannot be begun, as
 * *end and why (NULL: not asked for) tell; -EBUSY: another one is under way. The end of a move that
 * was begun is told to lockd_relations_moved(). */
int lockd_move_begin(struct lockd_connection *connection, const uint8_t from[16],
                     const uint8_t to[16], enum lockd_move_end *end, struct gs_err *why);
/* gpusharectl asks for one, and gets its END when it is over. */
void lockd_move_ask(struct lockd_connection *connection,
                    const struct gs_wire_relocate *relocate);
/* Messages of a program. */
void lockd_move_sees(struct lockd_connection *connection, const struct gs_wire_sees *sees);
void lockd_move_take(struct lockd_connection *connection, const struct gs_wire_move *message,
                     struct gs_descriptors *with);
/* True if tag is the guard of a move: its message is read and acted on. */
bool lockd_move_event(struct lockd_server *server, const void *tag);
/* Gives up what takes too long, and takes up what a killed guard has left. Returns when to look
 * again. */
uint64_t lockd_move_tend(struct lockd_server *server, uint64_t now);
/* The connection ends: its guard finishes what it has begun. */
void lockd_move_gone(struct lockd_connection *connection);

#endif
