/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.h: what programs are to each other: their connections on one side, lockd/kin (which of
 * them are one job) and lockd/balance (which of them move to another device) on the other.
 */
#ifndef GS_LOCKD_SERVER_RELATIONS_H
#define GS_LOCKD_SERVER_RELATIONS_H

#include "lockd/balance/balance.h"
#include "lockd/kin/kin.h"
#include "lockd/move/move.h"
#include "lockd/protocol/wire.h"

#include <stdint.h>

struct lockd_connection;
struct lockd_seen;
struct lockd_server;

struct lockd_relations {
    struct kin kin;
    struct balance balance;
};

/* A program as both know it. NULL: there was no memory for it, or balance is off. */
struct lockd_related {
    struct kin_program *kin;
    struct balance_program *balance;
};

void lockd_relations_init(struct lockd_server *server);
void lockd_relations_deinit(struct lockd_server *server);
/* A program has said hello. */
void lockd_relations_came(struct lockd_connection *connection);
/* ... is gone; before its client is. */
void lockd_relations_gone(struct lockd_connection *connection);
/* ... has said a key. */
void lockd_relations_kin(struct lockd_connection *connection, const struct gs_wire_kin *kin);
/* ... has said that it sees a device. */
void lockd_relations_sees(struct lockd_connection *connection, const struct lockd_seen *seen);
/* A move of the program is over, whoever wanted it. ns, bytes: as struct
 * lockd_move_calls has them. */
void lockd_relations_moved(struct lockd_connection *connection, enum lockd_move_end end,
                           uint64_t ns, uint64_t bytes);
/* Looks for hangs and for programs that are better off elsewhere. Returns when to look again. */
uint64_t lockd_relations_tend(struct lockd_server *server, uint64_t now);
/* Its figures for the status. */
void lockd_relations_describe(const struct lockd_connection *connection,
                              struct gs_wire_client *client);

#endif
