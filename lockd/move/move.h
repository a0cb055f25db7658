/* SPDX-License-Identifier: Apache-2.0
 *
 * move.h: programs that change to another device while they run. The program is paused and its
 * movable memory leaves as for any other program's turn; then a guard (guard.c) makes the
 * driver checkpoint the small rest of it and restore it on the other device. There it continues as
 * a program that has all of its memory on the host.
 *
 * All that can be known is checked before the program is stopped. A refusal leaves the program as
 * it was, and so does a failure before the driver has locked the process.
 *
 * The room knows programs, not connections: for all that needs a connection it uses the functions
 * of struct lockd_move_calls, which the server provides.
 */
#pragma once

#include "common/err.h"
#include "common/packet.h"
#include "lockd/base/list.h"
#include "lockd/programs/identity.h"
#include "lockd/sched/scheduler.h"
#include "lockd/programs/track.h"

struct lockd_connection;
struct lockd_move;

/* How a move ends. */
enum lockd_move_end {
    LOCKD_MOVE_DONE,      /* the program is on the other device */
    LOCKD_MOVE_LATER,     /* nothing was tried, and nothing is wrong: ask again */
    LOCKD_MOVE_NOT_THERE, /* not to that device: another device may be possible */
    LOCKD_MOVE_NOT_IT,    /* this program cannot be moved at present */
    LOCKD_MOVE_NOBODY,    /* no program can be moved on this machine */
};

/* The functions of the server that a move uses. owner: that of the program. */
struct lockd_move_calls {
    /* Sends the program a message; after STOP and LEFT it may send descriptors. */
    void (*tell)(struct lockd_connection *owner, const struct gs_wire_move *message);
    /* Sends the answer to the connection with that id, if it still exists. */
    void (*answer)(void *context, uint64_t asker, const struct gs_wire_end *end);
    /* Holds the program back, or stops holding it back. */
    void (*pause)(struct lockd_connection *owner, bool paused);
    /* Adds a remark about the program to the status. */
    void (*remark)(const struct lockd_connection *owner, const char *text);
    /* The program has left that device. */
    void (*left)(struct lockd_connection *owner, const uint8_t *uuid);
    /* The move takes long, perhaps for ever: others do not wait for its end. */
    void (*held)(struct lockd_connection *owner);
    /* Each move that has begun ends with this call, unless the program has gone. ns: since it
     * began, 0: it was held; bytes: of the program's memory. */
    void (*over)(struct lockd_connection *owner, enum lockd_move_end end, uint64_t ns,
                 uint64_t bytes);
    /* Closes a descriptor that came from the program. */
    void (*close)(struct lockd_connection *owner, int fd);
    /* The program comes in the middle of a move of an earlier daemon. True: others do not wait for
     * the end of it, since the user had such a move a short time ago. */
    bool (*adopted)(struct lockd_connection *owner);
    /* Bytes that the program's user may still have on a device. */
    uint64_t (*room)(const struct lockd_connection *owner, const uint8_t *uuid);
    /* The reason why the program may not be moved now; NULL: it may. */
    const char *(*refuse)(struct lockd_connection *owner);
    /* The program has gone, and lockd_move_gone() will follow. */
    bool (*is_gone)(struct lockd_connection *owner);
};

/* A program, as its connection describes it. */
struct lockd_move_program {
    struct lockd_connection *owner;
    int32_t pid;
    const char *name;
    struct sched_client *client;
    const struct lockd_identity *identity;
    struct lockd_tracks *tracks;
    struct lockd_sees sees;
    struct lockd_move *move; /* NULL: it is not being moved */
    uint64_t away_bytes; /* on neither device, and only by its word: they count for its user */
    bool taken_up;       /* it has sent GS_MOVE_LEFT with a record: once on a connection */
};

struct lockd_moves {
    struct lockd_list list; /* one begun here at most; others are held or older */
    uint32_t number;        /* of the last one */
    int epoll;              /* watches the guards; a guard's tag is its move */
    struct sched *sched;
    const struct lockd_move_calls *calls;
    void *context; /* of calls->answer */
};

void lockd_move_init(struct lockd_moves *moves, int epoll, struct sched *sched,
                     const struct lockd_move_calls *calls, void *context);

/* Begins to move the program from one of its devices to another. asker: id of the connection
 * that gets the answer; 0: none. Returns 0; -errno: the move cannot begin, with the reason in
 * *end and why. */
int lockd_move_begin(struct lockd_moves *moves, struct lockd_move_program *program,
                     const uint8_t from[16], const uint8_t to[16], uint64_t asker,
                     enum lockd_move_end *end, struct gs_err *why);
/* The device that a program leaves when it is moved to `to`: the device that it uses. NULL: there
 * is none, with the reason in why. */
const uint8_t *lockd_move_source(const struct lockd_move_program *program, const uint8_t to[16],
                                 struct gs_err *why);
/* Takes a message of the program. NULL; else the reason why its connection is to end. */
const char *lockd_move_take(struct lockd_moves *moves, struct lockd_move_program *program,
                            const struct gs_wire_move *message, struct gs_descriptors *with);
/* True if tag is the guard of a move: its message is read and acted on. */
bool lockd_move_event(struct lockd_moves *moves, const void *tag);
/* Abandons moves that take too long, and continues those of killed guards. Returns when to look
 * again. */
uint64_t lockd_move_tend(struct lockd_moves *moves, uint64_t now);
/* The time since the program's move began, ns; 0: others do not wait for its end. */
uint64_t lockd_move_took(const struct lockd_move_program *program, uint64_t now);
/* The program disconnects. Its guard finishes a move that it has begun. */
void lockd_move_gone(struct lockd_move_program *program);
