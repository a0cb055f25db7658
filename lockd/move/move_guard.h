/* SPDX-License-Identifier: Apache-2.0
 *
 * move_guard.h: the messages between daemon and guard about a move. For this room only.
 */
#pragma once

#include "lockd/move/move_state.h"
#include "lockd/move/guard.h"

#include <stdbool.h>

/* The guard service's socket (systemd/gpushare-guard.socket). */
#define LOCKD_GUARD_SOCKET "/run/gpushare-guard/guard.sock"
/* Sends the next order. False: the guard has ended. */
bool lockd_guard_order(int guard, const struct lockd_guard_order *order, int with);

/* Starts the guard, and asks it whether the program may be moved. bytes: the memory that the
 * program needs on the other device beside a context. 0 or -errno. */
int lockd_move_guard_ask(struct lockd_move *move, uint64_t bytes);
/* The program has stopped: the guard begins, with the record (protocol/move_record.h),
 * which the move owns from now on. */
void lockd_move_guard_go(struct lockd_move *move, int record);
/* The daemon that began the move has gone, perhaps its guard too: continues the move by its
 * record, which the move owns from now on. aside: others do not wait for its end. */
void lockd_move_guard_adopt(struct lockd_move *move, int record, bool aside);
/* The guard is to look again whether there is room on the other device. */
void lockd_move_guard_look(struct lockd_move *move);
/* The guard takes long, or there is none. */
void lockd_move_guard_late(struct lockd_move *move);
/* Replaces a killed guard. False: the next one could not be started. */
bool lockd_move_guard_again(struct lockd_move *move, uint64_t now);
/* The guard has sent a word, or has ended. */
void lockd_move_guard_hear(struct lockd_move *move, uint64_t now);
