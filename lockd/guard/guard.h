/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: the guard of one checkpointed program (checkpoint.h).
 */
#ifndef GS_LOCKD_GUARD_GUARD_H
#define GS_LOCKD_GUARD_GUARD_H

#include <stdint.h>

/* The messages between daemon and guard: packets of one of these bytes and, from the guard, a
 * text. */
enum lockd_guard_word {
    LOCKD_GUARD_CHECKPOINT = 'Z', /* daemon, first: checkpoint the program */
    LOCKD_GUARD_ADOPT = 'A', /* daemon, first: it is checkpointed, and its guard was killed */
    LOCKD_GUARD_CHECKPOINTED = 'F', /* the memory has left the device */
    LOCKD_GUARD_FAILED = 'N',       /* it has not: the guard ends, the program goes on */
    LOCKD_GUARD_RESTORE = 'T', /* daemon: restore it; guard: it is restored, the guard ends */
    LOCKD_GUARD_NO_ROOM = 'E'  /* it could not be restored: say RESTORE again */
};

/* Guards the process; the guard's socket is descriptor 0. Returns an exit code. */
int lockd_guard(int32_t pid);

#endif
