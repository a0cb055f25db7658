/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h: a holder that does not stop is checkpointed by the driver (`stuck = checkpoint`):
 * its memory leaves the card, its CUDA calls wait, and it goes on where it was when its turn
 * comes.
 *
 * The driver's calls take long and may hang, so they are made by a guard, a process of its own
 * (gpushare-lockd --guard PID), for each program; the guard brings the program back by itself
 * when the daemon is gone. The lock knows nothing of it: what a frozen program would report is
 * reported for it.
 */
#ifndef GS_LOCKD_SERVER_CHECKPOINT_H
#define GS_LOCKD_SERVER_CHECKPOINT_H

#include "lockd/base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct gs_wire_target;
struct lockd_connection;
struct lockd_checkpoint;
struct lockd_server;

struct lockd_checkpoints {
    struct lockd_list list;
    uint64_t look_at; /* when it looks for stuck programs again */
};

/* Starts guards for those who are stuck, and thaws whose turn has come. Returns when to look
 * again. */
uint64_t lockd_checkpoint_tend(struct lockd_server *server, uint64_t now);
/* True if tag is a guard's: it has said something, which is taken. */
bool lockd_checkpoint_event(struct lockd_server *server, const void *tag);
/* The program cannot hear or say anything that counts. */
bool lockd_checkpoint_holds(const struct lockd_connection *connection);
/* Keeps a target for such a program. */
void lockd_checkpoint_target(struct lockd_connection *connection,
                             const struct gs_wire_target *target);
/* Reports to the lock for those who were sent a target. True if there were any. */
bool lockd_checkpoint_answer(struct lockd_server *server);
/* The connection ends: its guard finds the program dead, or brings it back. */
void lockd_checkpoint_gone(struct lockd_connection *connection);

#endif
