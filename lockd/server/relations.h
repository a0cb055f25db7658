/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.h: which programs are one job: their connections on one side, lockd/kin on the other.
 */
#ifndef GS_LOCKD_SERVER_RELATIONS_H
#define GS_LOCKD_SERVER_RELATIONS_H

#include "lockd/kin/kin.h"
#include "lockd/protocol/wire.h"

#include <stdint.h>

struct lockd_connection;
struct lockd_server;

void lockd_relations_init(struct lockd_server *server);
void lockd_relations_deinit(struct lockd_server *server);
/* A program has said hello. */
void lockd_relations_came(struct lockd_connection *connection);
/* ... is gone; before its client is. */
void lockd_relations_gone(struct lockd_connection *connection);
/* ... has said a key. */
void lockd_relations_kin(struct lockd_connection *connection, const struct gs_wire_kin *kin);
/* Device memory of the one is mapped by the other: they are one gang from now on. */
void lockd_relations_join(struct lockd_connection *a, struct lockd_connection *b);
/* Looks for hangs. Returns when to look again. */
uint64_t lockd_relations_tend(struct lockd_server *server, uint64_t now);
/* What is to be shown of it. */
void lockd_relations_describe(const struct lockd_connection *connection,
                              struct gs_wire_client *client);

#endif
