/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: a guard: the process that makes the driver's checkpoint calls for one program, which it
 * brings back whatever happens to the daemon. It serves a program that does not stop
 * (server/checkpoint.h), or one that changes devices (move/move.h).
 */
#ifndef GS_LOCKD_GUARD_GUARD_H
#define GS_LOCKD_GUARD_GUARD_H

#include <stdint.h>

#define LOCKD_GUARD_TEXT  200
#define LOCKD_GUARD_PAIRS 64

/* The messages between daemon and guard: packets that begin with one of these bytes. The daemon's
 * are struct lockd_guard_order, or the byte alone; the guard's go on with a text. */
enum lockd_guard_word {
    LOCKD_GUARD_CHECKPOINT = 'Z', /* daemon, first: checkpoint the program */
    LOCKD_GUARD_ADOPT = 'A', /* daemon, first: it is checkpointed, and its guard was killed */
    LOCKD_GUARD_CHECKPOINTED = 'F', /* the memory has left the device */
    LOCKD_GUARD_FAILED = 'N',       /* it has not: the guard ends, the program goes on */
    LOCKD_GUARD_UNABLE = 'U',       /* the same, since no program could be checkpointed */
    LOCKD_GUARD_RESTORE = 'T', /* daemon: restore it; guard: it is restored, the guard ends */
    LOCKD_GUARD_NO_ROOM =
        'E', /* it could not be restored: say RESTORE again. A move: there is no
                                  room on the other device, of so many bytes (decimal, before
                                  the text): say MOVE again */

    /* a move */
    LOCKD_GUARD_MOVE = 'V',   /* daemon, first: may it be moved from one device to the other? */
    LOCKD_GUARD_MAY = 'K',    /* it may; FAILED, UNABLE: it may not */
    LOCKD_GUARD_CANNOT = 'D', /* it may not, because of the other device */
    LOCKD_GUARD_GO = 'G',     /* daemon: move it. With the record (protocol/move_record.h) */
    LOCKD_GUARD_TAKE_UP =
        'W', /* daemon, first: the guard that was to move it was killed. With the
                                  record */
    LOCKD_GUARD_MOVED = 'M',  /* it runs on the other device: the guard ends */
    LOCKD_GUARD_STAYED = 'S', /* it runs where it was: the guard ends */
    LOCKD_GUARD_HELD =
        'H', /* it cannot be brought back to either device now; the guard tries it
                               again every second, and says how that ends */
};

struct lockd_guard_pair {
    uint8_t from[16], to[16]; /* UUIDs */
};

struct lockd_guard_order {
    char word; /* enum lockd_guard_word */
    uint8_t
        count; /* pairs; those of MOVE: the one device that is left and the one that is taken */
    uint16_t zero;
    int32_t pid;
    uint64_t bytes; /* MOVE: that the program needs on the other device beside a context */
    struct lockd_guard_pair pairs[LOCKD_GUARD_PAIRS];
};

/* Guards the process; the guard's socket is descriptor 0. pid 0: the process that the first order
 * names. Returns an exit code. */
int lockd_guard(int32_t pid);

#endif
