/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: a guard is the process that makes the driver's checkpoint calls for one program. It
 * brings the program back whatever happens to the daemon. A guard serves a program that
 * changes devices (move/move.h).
 */
#pragma once

#include <stdint.h>

#define LOCKD_GUARD_TEXT  200
#define LOCKD_GUARD_PAIRS 64

/* The messages between daemon and guard: packets that begin with one of these bytes. The daemon
 * sends a struct lockd_guard_order or the byte alone; the guard sends the byte and a text. */
enum lockd_guard_word {
    LOCKD_GUARD_MOVE = 'V',   /* daemon, first: check whether it may be moved */
    LOCKD_GUARD_MAY = 'K',    /* it may */
    LOCKD_GUARD_FAILED = 'N', /* it may not: the guard ends, the program continues */
    LOCKD_GUARD_UNABLE = 'U', /* the same, since no program could be checkpointed */
    LOCKD_GUARD_CANNOT = 'D', /* it may not, because of the other device */
    /* The other device lacks so many bytes (decimal, before the text); the daemon sends MOVE
     * again. */
    LOCKD_GUARD_NO_ROOM = 'E',
    LOCKD_GUARD_GO = 'G',      /* daemon: move it. With the record (protocol/move_record.h) */
    LOCKD_GUARD_TAKE_UP = 'W', /* daemon, first: replace a killed guard. With the record */
    LOCKD_GUARD_MOVED = 'M',   /* it runs on the other device: the guard ends */
    LOCKD_GUARD_STAYED = 'S',  /* it runs where it was: the guard ends */
    LOCKD_GUARD_HELD = 'H',    /* on neither device: it tries each second, then tells */
    LOCKD_GUARD_WAITS = 'L',   /* the same, but the driver does not say that it has left both */
};

struct lockd_guard_pair {
    uint8_t from[16], to[16]; /* UUIDs */
};

struct lockd_guard_order {
    char word;     /* enum lockd_guard_word */
    uint8_t count; /* of pairs; in MOVE: the device that it leaves, the device that it takes */
    uint16_t zero;
    int32_t pid;
    uint64_t bytes; /* MOVE: needed on the other device beside a context */
    uint64_t
        started; /* when the process was, as /proc/PID/stat has it: its number may pass on */
    struct lockd_guard_pair pairs[LOCKD_GUARD_PAIRS];
};

/* Guards the process. The guard's socket is descriptor 0. pid 0: the first order names the
 * process. Returns an exit code. */
int lockd_guard(int32_t pid);
