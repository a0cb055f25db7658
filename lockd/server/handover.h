/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.h: hands device memory of one program over to the next without releasing it in between
 * (`hand-over`). A driver clears released memory, which takes time of the copy engine
 * (docs/benchmarks.md).
 *
 * The memory is a descriptor. It arrives with the report that the bytes have left the program, and
 * leaves with a target that raises another program's budget by as much. If that program has targets
 * that it has not answered, the memory is kept for a moment. During that time no other program has
 * the room: each rise of a budget takes its bytes from the kept memory, which is passed on or
 * closed, and so released.
 *
 * The memory still has its contents. So it is handed over only between programs of one user in the
 * daemon's pid namespace, which can read each other's memory unless something else forbids it
 * (ptrace(2)).
 */
#pragma once

#include "common/packet.h"
#include "lockd/protocol/wire.h"

#include <stdbool.h>

struct lockd_connection;
struct lockd_server;

#define LOCKD_HANDOVERS_MOST    256
#define LOCKD_HANDOVERS_OF_USER 128 /* so that there is room for other users */

struct lockd_handover { /* a piece of memory */
    uint64_t from;      /* id of the connection that it came from */
    uint64_t bytes, at; /* at: when it arrived */
    uid_t uid;
    uint8_t uuid[16]; /* of the device */
    bool network;     /* network cards can reach it */
    int fd;
};

struct lockd_handovers {
    struct lockd_handover piece[LOCKD_HANDOVERS_MOST]; /* the oldest first */
    unsigned count;
    uint64_t last_copy; /* number of the newest offer of contents (struct gs_wire_copy) */
};

/* To be called before the scheduler gets the state. Keeps the descriptors that came with it, if
 * they may be passed on and as much memory has left the program. Kept memory counts as free: its
 * bytes are added to the state's free memory. */
void lockd_handover_offer(struct lockd_connection *connection, struct gs_wire_state *state,
                          struct gs_descriptors *descriptors);

/* Passes contents that programs may have in common on to all programs of the sender's identity,
 * and the first word that they were taken to the program that offered them. An offer costs as much
 * as there are programs, so a user's offers beyond the rate of its messages are left out. The caller
 * closes the descriptors. */
void lockd_handover_copy(struct lockd_connection *connection, const struct gs_wire_copy *copy,
                         const struct gs_descriptors *with);

/* Closes memory that was kept for too long. Returns when to look again. */
uint64_t lockd_handover_tend(struct lockd_server *server, uint64_t now);

/* Closes all kept memory. */
void lockd_handover_deinit(struct lockd_server *server);

/* A configuration was read again: logs whether memory is handed over now. Memory that programs
 * already have stays with them until their next turns. */
void lockd_handover_changed(struct lockd_server *server, bool before);

/* Sends all targets that the scheduler has issued. To be called after each event that was passed
 * to the scheduler (lockd/sched/scheduler.h). */
void lockd_targets_send(struct lockd_server *server);
