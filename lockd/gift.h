/* SPDX-License-Identifier: Apache-2.0
 *
 * gift.h: device memory that goes from the program whose bytes have left it to the one that is
 * given the room, without being released between (`hand-over`): what a driver does to
 * released memory takes the time of the engine that copies in (docs/benchmarks.md).
 *
 * The memory is a descriptor that comes with a program's report and goes on with a target that
 * raises another one's budget by as much, in the same breath; what nobody gets is closed, and
 * so released. With the bytes that were in it: so only between programs of one user that live
 * in the daemon's pid namespace, who can read each other's memory unless something else forbids
 * it (ptrace(2)).
 */
#ifndef GS_LOCKD_GIFT_H
#define GS_LOCKD_GIFT_H

#include "common/packet.h"
#include "lockd/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;

/* Whether a program lives in this process's pid namespace; looked up when it first matters. */
enum lockd_beside { LOCKD_BESIDE_UNKNOWN, LOCKD_BESIDE_YES, LOCKD_BESIDE_NO };

struct lockd_gift {
    const struct lockd_connection *from; /* NULL: there is none */
    const uint8_t *uuid;
    struct gs_descriptors *descriptors; /* those not passed on yet */
    uint64_t bytes;                     /* of each */
};

/* How many descriptors may come in with a message: none unless they are of use, since closing
 * some kinds of them can take its time (a file of FUSE or NFS). */
unsigned lockd_gift_most(const struct lockd_server *server);

/* What has come with a state may be passed on until lockd_gift_end(). */
void lockd_gift_offer(struct lockd_connection *connection, const struct gs_wire_state *state,
                      struct gs_descriptors *descriptors);
void lockd_gift_end(struct lockd_server *server);

/* Sends a target, with as much of the gift as the rise of its budget has room for. */
void lockd_gift_send(struct lockd_connection *connection, struct gs_wire_target *target,
                     uint64_t rise);

/* A configuration was read again: the log hears whether memory is handed over now. What is with
 * a program already is not asked back: it leaves with its next turns. */
void lockd_gift_changed(const struct lockd_server *server, bool before);

#endif
