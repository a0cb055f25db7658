/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h: checkpoints a holder that does not stop (`stuck = checkpoint`): the driver moves
 * its memory off the device and makes its CUDA calls wait. The program continues when its turn
 * comes.
 *
 * The driver's calls take long and may hang, so a guard makes them: a separate process for each
 * program (gpushare-lockd --guard PID, guard.h). A guard without a daemon brings its program back
 * by itself. The scheduler does not know of checkpoints: the daemon reports to it in place of a
 * checkpointed program.
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
    uint64_t look_at; /* when to look for stuck programs again */
};

/* Starts guards for stuck programs, and brings back programs whose turn has come. Returns when
 * to look again. */
uint64_t lockd_checkpoint_tend(struct lockd_server *server, uint64_t now);
/* True if tag is a guard's: its message is read and acted on. */
bool lockd_checkpoint_event(struct lockd_server *server, const void *tag);
/* Whether the program is checkpointed: it gets no messages, and its own do not count. */
bool lockd_checkpoint_holds(const struct lockd_connection *connection);
/* Keeps a target for a checkpointed program. */
void lockd_checkpoint_target(struct lockd_connection *connection,
                             const struct gs_wire_target *target);
/* Reports to the scheduler for the programs that got such a target. True if there were any. */
bool lockd_checkpoint_answer(struct lockd_server *server);
/* The connection ends. Its guard brings the program back, unless it is dead. */
void lockd_checkpoint_gone(struct lockd_connection *connection);

#endif
