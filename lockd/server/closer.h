/* SPDX-License-Identifier: Apache-2.0
 *
 * closer.h: closes descriptors whose sender may have made the close slow. The last close of a file
 * of FUSE or NFS waits for its server, and that of a socket with SO_LINGER for its peer, for as
 * long as the sender of the descriptor likes. A connection with unread packets holds the
 * descriptors that came with them.
 */
#pragma once

#include "common/packet.h"
#include "lockd/base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;
struct lockd_user;

struct lockd_closers {
    struct lockd_list list;
    uint32_t descriptors; /* from packets, that are not closed yet */
    bool guarded; /* the kernel keeps descriptors from connections that do not want them */
};

/* The closers of one user. */
struct lockd_closing {
    uint32_t closers, running; /* running: those that have begun */
    uint32_t descriptors;      /* from packets, that are not closed yet */
};

/* From now on new connections refuse descriptors, if the kernel can refuse them (Linux 6.16). */
void lockd_closer_init(struct lockd_server *server);
/* Lets this connection accept descriptors, or not. */
void lockd_closer_allow(struct lockd_connection *connection, bool allow);
/* It is about to be asked for some, and is let send them from now on, whatever the settings say. */
void lockd_closer_ask(struct lockd_connection *connection);

/* Closes descriptors of that user in a thread of their own; with->count is 0 afterwards. */
void lockd_closer_take(struct lockd_server *server, struct lockd_user *user,
                       struct gs_descriptors *with);
/* Closes a connection: at once if no descriptors can be in it, otherwise in a thread. passed:
 * its peer was sent some; then it is closed once the peer has read them or has closed its end.
 * The connection counts until it is closed. */
void lockd_closer_take_connection(struct lockd_server *server, struct lockd_user *user, int fd,
                                  bool descriptors, bool passed);
/* The bytes that the peer of a connection has not read, as the kernel counts them. */
size_t lockd_closer_unread(int fd);
/* The same, of all connections of a user that wait for their peers before they are closed. */
size_t lockd_closer_unread_of(const struct lockd_server *server, const struct lockd_user *user);
/* Whether so many descriptors of this user are being closed that the daemon stops reading the
 * user's messages. */
bool lockd_closer_is_full(const struct lockd_server *server, const struct lockd_user *user);

/* Frees closers that are done, and starts those that had to wait. Returns when to call it
 * again. */
uint64_t lockd_closer_tend(struct lockd_server *server, uint64_t now);
/* Waits a moment for the closers. Those that are left end with the process. */
void lockd_closer_deinit(struct lockd_server *server);
