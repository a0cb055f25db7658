/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h: passes memory of one program on to another one that opens it (CUDA IPC). The opener
 * names a token that the exporter has put into a handle. The daemon finds the exporter, asks
 * it, and passes its descriptors on. Nothing of it stays here afterwards: the two programs have
 * a pipe of their own by which the exporter sees how long the memory is in use.
 *
 * Both must be of one identity: the same user, in the same user namespace and the same pid
 * namespace, which is a container's. What a program says of itself counts for nothing but to
 * find whom to ask.
 */
#ifndef GS_LOCKD_SERVER_SHARE_H
#define GS_LOCKD_SERVER_SHARE_H

#include "common/packet.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;
struct lockd_user;

#define LOCKD_SHARES_MOST    256
#define LOCKD_SHARES_OF_USER 64 /* so that there is room for other users */

struct lockd_asking {              /* an open that is not answered yet */
    uint64_t opener, at;           /* opener: id of a connection; at: when it asked */
    uint64_t exporter;             /* ... of the one that was asked last; 0: none yet */
    uint32_t number;               /* under which that one was asked */
    uint32_t of_opener;            /* the opener's own */
    const struct lockd_user *user; /* of the opener, which is connected */
    bool asked;                    /* that one has not answered */
    struct gs_wire_open what;
};

struct lockd_shares {
    struct lockd_asking asking[LOCKD_SHARES_MOST]; /* the oldest first */
    unsigned count;
    uint32_t last_number;
};

/* A program has said HELLO. It may be the one that an open waits for. */
void lockd_share_came(struct lockd_connection *connection);
/* The connection has left the list of connections. */
void lockd_share_gone(struct lockd_connection *connection);

void lockd_share_open(struct lockd_connection *connection, const struct gs_wire_open *open);
/* The exporter's answer; descriptors that are passed on stay the caller's to close. */
void lockd_share_answer(struct lockd_connection *connection, const struct gs_wire_share *share,
                        const struct gs_descriptors *with);

/* Ends what has waited for too long. Returns when to look again. */
uint64_t lockd_share_tend(struct lockd_server *server, uint64_t now);

#endif
