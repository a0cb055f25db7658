/* SPDX-License-Identifier: Apache-2.0
 *
 * move_guard.h: a move, from its beginning to its end, and its guard. For this room only.
 */
#pragma once

#include "lockd/move/guard.h"
#include "lockd/move/move.h"

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

enum lockd_move_stage {
    LOCKD_MOVE_ASKING,   /* both are asked whether the program is to stop may be moved */
    LOCKD_MOVE_STOPPING, /* the program */
    LOCKD_MOVE_GUARDED,  /* the guard is at work */
};

struct lockd_move {
    struct lockd_list link; /* of moves->list */
    struct lockd_moves *moves;
    struct lockd_move_program *program;
    enum lockd_move_stage stage;
    /* The first pair: the device that the program leaves and the device that it takes. */
    struct lockd_guard_order order;
    uint32_t number;
    int guard, record; /* -1: none */
    uint64_t asker;    /* id of the connection that gets the answer; 0: none */
    bool program_may, guard_may;
    /* It takes long, or the program cannot be brought back for now: other moves do not wait. */
    bool held;
    bool away;    /* a guard has read from the driver that it is on neither device */
    bool adopted; /* of an earlier daemon: `pinned` is the program's word */
    /* The stage is abandoned then; GUARDED without a guard: the next guard is started. */
    uint64_t until;
    uint64_t began, stopped, guarded_since;
    uint64_t late_at; /* GUARDED: then it takes long; LOCKD_NEVER: that is known */
    uint64_t bytes;   /* of the program's memory; 0: not known */
    uint64_t pinned;  /* bytes that its library cannot move out: they go with it */
    unsigned guards_lost;
    uint64_t claimed;  /* bytes of the device that is taken, for which others make room */
    bool lacked;       /* there is no room for it yet */
    uint64_t again_at; /* ASKING: the guard looks again for room there; 0: it has not to */
};

/* Makes a move of the program, in the stage ASKING, without a guard. NULL without memory. */
struct lockd_move *lockd_move_new(struct lockd_moves *moves, struct lockd_move_program *program,
                                  const uint8_t from[16], const uint8_t to[16]);
/* Frees the move without an answer to the asker. Before GO the guard ends; later it continues
 * alone. */
void lockd_move_free(struct lockd_move *move);
/* The program and the guard have agreed: the program is to stop, and its memory to leave the
 * device. */
void lockd_move_stop(struct lockd_move *move);
/* Bytes of the program on the device that it leaves that its library cannot move out, as far as it
 * was allowed so many: it may say anything. */
uint64_t lockd_move_pinned(const struct lockd_move *move);
/* Ends the move: the program continues where it was. Frees the move. */
void lockd_move_end_without(struct lockd_move *move, enum lockd_move_end end, const char *why);
/* Tells the program how far the move is. */
void lockd_move_tell(const struct lockd_move *move, enum gs_move_step step, int code);
/* Answers the connection that asked for the move, once. */
void lockd_move_answer(struct lockd_move *move, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
