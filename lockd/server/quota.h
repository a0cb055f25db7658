/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.h: the setting max-memory: the bytes that the programs of one user may have on one device
 * together.
 */
#pragma once

#include <stdint.h>

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
