/* SPDX-License-Identifier: Apache-2.0
 *
 * move_guard.h: what daemon and guard say to each other about a move. For this room only.
 */
#ifndef GS_LOCKD_MOVE_MOVE_GUARD_H
#define GS_LOCKD_MOVE_MOVE_GUARD_H

#include "lockd/move/move_state.h"

/* Starts the guard, and asks it whether the program may be moved. bytes: that it needs on the other
 * device beside a context. 0 or -errno. */
int lockd_move_guard_ask(struct lockd_move *move, uint64_t bytes);
/* The program has stopped: the guard begins, with the record (protocol/move_record.h), which is the
 * move's from now on. */
void lockd_move_guard_go(struct lockd_move *move, int record);
/* The daemon that had begun the move is gone, perhaps its guard too: takes the move up by its
 * record, which is the move's from now on. */
void lockd_move_guard_adopt(struct lockd_move *move, int record);
/* The guard is to look again whether there is room on the other device. */
void lockd_move_guard_look(struct lockd_move *move);
/* Starts the next guard in the place of one that was killed. False: it could not be started. */
bool lockd_move_guard_again(struct lockd_move *move, uint64_t now);
/* The guard has said something, or has ended. */
void lockd_move_guard_hear(struct lockd_move *move, uint64_t now);

#endif
