/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.h: device memory that goes from the program whose bytes have left it to the one that is
 * given the room, without being released between (`hand-over`): what a driver does to
 * released memory takes the time of the engine that copies in (docs/benchmarks.md).
 *
 * The memory is a descriptor that comes with a program's report and goes on with a target that
 * raises another one's budget by as much. What cannot go at once, since who is to get it has
 * targets that it has not answered, is kept for a moment; until then the room is nobody's: each
 * rise of a budget takes its bytes of what is kept, passed on or closed, and so released. With
 * the bytes that were in it: so only between programs of one user that live in the daemon's pid
 * namespace, who can read each other's memory unless something else forbids it (ptrace(2)).
 */
#ifndef GS_LOCKD_SERVER_HANDOVER_H
#define GS_LOCKD_SERVER_HANDOVER_H

#include "common/packet.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct lockd_connection;
struct lockd_server;

/* Whether a program lives in this process's pid namespace; looked up when it first matters. */
enum lockd_beside { LOCKD_BESIDE_UNKNOWN, LOCKD_BESIDE_YES, LOCKD_BESIDE_NO };

#define LOCKD_HANDOVERS_MOST    256
#define LOCKD_HANDOVERS_OF_USER 128 /* so that others' are kept as well */

struct lockd_handover { /* a piece of memory */
    uint64_t from;      /* id of the connection that it came by */
    uint64_t bytes, at; /* at: when it came */
    uid_t uid;
    uint8_t uuid[16]; /* of the device */
    int fd;
};

struct lockd_handovers {
    struct lockd_handover piece[LOCKD_HANDOVERS_MOST]; /* the oldest first */
    unsigned count;
};

/* To be called before the lock hears of the state. Takes what has come with it out of the
 * descriptors, if it may be passed on and so much has left. What is kept is no more in use than
 * what the driver calls free: the state says so from then on. */
void lockd_handover_offer(struct lockd_connection *connection, struct gs_wire_state *state,
                          struct gs_descriptors *descriptors);

/* Sends a target, with as much of what is kept as the rise of its budget has room for. */
void lockd_handover_send(struct lockd_connection *connection, struct gs_wire_target *target,
                         uint64_t rise);

/* Closes what was kept for too long. Returns when to look again. */
uint64_t lockd_handover_tend(struct lockd_server *server, uint64_t now);

/* The daemon ends. */
void lockd_handover_deinit(struct lockd_server *server);

/* A configuration was read again: the log hears whether memory is handed over now. What is with
 * a program already is not asked back: it leaves with its next turns. */
void lockd_handover_changed(struct lockd_server *server, bool before);

#endif
