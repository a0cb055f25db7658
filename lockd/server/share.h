/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h: passes memory of a program on to another program that opens it (CUDA IPC). The opener
 * names a token that the exporter has put into a handle. The daemon finds the exporter, asks it,
 * and passes its descriptors on. The daemon keeps nothing of it: the two programs have a pipe of
 * their own by which the exporter sees how long the memory is in use.
 *
 * Both must have one identity: the same user in the same user namespace, pid namespace and
 * container. The program's own claims serve only to find the exporter.
 */
#pragma once

#include "common/packet.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>

struct lockd_connection;
struct lockd_server;
struct lockd_user;

#define LOCKD_SHARES_MOST    256
#define LOCKD_SHARES_OF_USER 64 /* so that there is room for other users */

struct lockd_asking {              /* an open that is not answered yet */
    uint64_t opener, at;           /* opener: id of a connection; at: when it asked */
    uint64_t exporter;             /* id of the exporter that was asked last; 0: none yet */
    uint32_t number;               /* the number with which it was asked */
    uint32_t of_opener;            /* the opener's own number */
    const struct lockd_user *user; /* of the opener */
    bool asked;                    /* the exporter has not answered yet */
    struct gs_wire_open what;
};

struct lockd_shares {
    struct lockd_asking asking[LOCKD_SHARES_MOST]; /* the oldest first */
    unsigned count;
    uint32_t last_number;
};

/* A program has sent HELLO: asks for the opens that may be waiting for it. */
void lockd_share_came(struct lockd_server *server);
/* The connection has left the list of connections. */
void lockd_share_gone(struct lockd_connection *connection);

void lockd_share_open(struct lockd_connection *connection, const struct gs_wire_open *open);
/* Takes the exporter's answer. The caller closes the descriptors, also those that were passed
 * on. */
void lockd_share_answer(struct lockd_connection *connection, const struct gs_wire_share *share,
                        const struct gs_descriptors *with);

/* Ends opens that have waited for too long. Returns when to look again. */
uint64_t lockd_share_tend(struct lockd_server *server, uint64_t now);
