/* SPDX-License-Identifier: Apache-2.0
 *
 * closer.h: closes what a caller may have made slow to close. The last close of a file of FUSE
 * or NFS waits for its server, that of a socket with SO_LINGER for its peer: for as long as
 * whoever sent the descriptor likes. A connection whose packets were not all read holds those
 * that came with them.
 */
#ifndef GS_LOCKD_SERVER_CLOSER_H
#define GS_LOCKD_SERVER_CLOSER_H

#include "common/packet.h"
#include "lockd/base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;
struct lockd_user;

struct lockd_closers {
    struct lockd_list list;
    uint32_t descriptors; /* from packets, that are not closed yet */
    bool guarded; /* the kernel keeps descriptors from connections that do not want them */
};

/* A user's part of it. */
struct lockd_closing {
    uint32_t closers, running; /* running: those that have begun */
    uint32_t descriptors;      /* from packets, that are not closed yet */
};

/* From now on no descriptors can be sent to whoever connects there, where the kernel can see to
 * that (Linux 6.16). */
void lockd_closer_init(struct lockd_server *server);
/* Descriptors can be sent on this connection, or no longer. */
void lockd_closer_allow(struct lockd_connection *connection, bool allow);

/* Closes what came from that user in a thread of its own; count is 0 then. */
void lockd_closer_take(struct lockd_server *server, struct lockd_user *user,
                       struct gs_descriptors *with);
/* Closes a connection: at once where no descriptors can be in it or all was read, else as
 * above. It counts until then. */
void lockd_closer_take_connection(struct lockd_server *server, struct lockd_user *user, int fd,
                                  bool descriptors);
/* So much of this user's is being closed that no more is read from him. */
bool lockd_closer_is_full(const struct lockd_server *server, const struct lockd_user *user);

/* Forgets what has been closed, and begins what had to wait. Returns when to call it again. */
uint64_t lockd_closer_tend(struct lockd_server *server, uint64_t now);
/* Waits a moment for what is being closed. The rest ends with the process. */
void lockd_closer_deinit(struct lockd_server *server);

#endif
