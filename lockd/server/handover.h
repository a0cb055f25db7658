/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.h: hands device memory of one program over to the next, without releasing it between
 * (`hand-over`). What a driver does to released memory takes time of the engine that copies
 * in (docs/benchmarks.md).
 *
 * The memory is a descriptor. It comes with the report that the bytes have left the program,
 * and goes on with a target that raises another program's budget by as much. It is kept for a
 * moment if it cannot go at once, because the next program has targets that it has not
 * answered. During that time no program has the room: each rise of a budget takes its bytes
 * from the kept memory, which is passed on or closed, and so released.
 *
 * The bytes that were in the memory go with it. So it is handed over only between programs of
 * one user in the daemon's pid namespace, which can read each other's memory unless something
 * else forbids it (ptrace(2)).
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

#define LOCKD_HANDOVERS_MOST    256
#define LOCKD_HANDOVERS_OF_USER 128 /* so that there is room for other users */

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

/* To be called before the scheduler hears of the state. Keeps the descriptors that came with
 * it, if they may be passed on and as much memory has left. Kept memory counts as free: the
 * state says so afterwards. */
void lockd_handover_offer(struct lockd_connection *connection, struct gs_wire_state *state,
                          struct gs_descriptors *descriptors);

/* Sends a target, with as much of the kept memory as the rise of its budget has room for. */
void lockd_handover_send(struct lockd_connection *connection, struct gs_wire_target *target,
                         uint64_t rise);

/* Closes memory that was kept for too long. Returns when to look again. */
uint64_t lockd_handover_tend(struct lockd_server *server, uint64_t now);

/* The daemon ends. */
void lockd_handover_deinit(struct lockd_server *server);

/* A configuration was read again: logs whether memory is handed over now. Memory that programs
 * have already stays with them until their next turns. */
void lockd_handover_changed(struct lockd_server *server, bool before);

#endif
