/* SPDX-License-Identifier: Apache-2.0
 *
 * sockets.h: the daemon's sockets and lock files, at all the places where programs look for it; and
 * the attributes that a daemon inherits from the program that started it, which it must not keep, since
 * it serves other programs as well.
 */
#pragma once

#include "common/options.h"

#include <sys/types.h>

struct lockd_spot {
    char path[GS_PATH_SIZE];
    int listener, lock_fd; /* -1: none */
    ino_t inode;           /* of the socket that this daemon made; 0: none */
};

struct lockd_sockets {
    struct lockd_spot spot[GS_PLACES];
    unsigned count;
    struct gs_places wanted;
    gid_t group;               /* its members may connect; (gid_t)-1: no group */
    bool activated;            /* systemd's socket: not ours to remove */
    bool named;                /* by --socket or GPUSHARE_SOCKET: one place, wherever it is */
    char served[GS_PATH_SIZE]; /* with LOCKD_ALREADY: the path that the other daemon serves */
};

/* Positive result: another daemon serves one of the places already. */
#define LOCKD_ALREADY 1

/* Takes the places that this user can have: by socket activation, or with lock files, in which
 * case stale sockets are replaced and new ones bound. 0, LOCKD_ALREADY, or -errno: there is
 * none. */
int lockd_sockets_take(struct lockd_sockets *sockets, const struct gs_places *places,
                       struct gs_err *err);
/* Whether some daemon listens at one of the places that this one wanted. */
bool lockd_sockets_is_served(const struct lockd_sockets *sockets);
/* Removes the sockets (ours only) and gives the places up. The listeners stay open, and the
 * lock files where they are: removing them would race. */
void lockd_sockets_leave(struct lockd_sockets *sockets);
/* Whether a service has started to which this user's programs connect first. */
bool lockd_sockets_is_superseded(const struct lockd_sockets *sockets);

#define LOCKD_DESCRIPTORS_MAX 65536u /* the daemon asks for no more */

/* Signals: none blocked, none ignored. For every daemon. */
void lockd_inherited_signals(void);
/* The other attributes, for a daemon that goes to the background: umask, groups of root,
 * limits, nice value, scheduling policy, processors, I/O priority and OOM score, as far as
 * the process may change them. The administrator sets those of a service, which keeps them. */
void lockd_inherited_drop(void);
/* Goes to the background. The caller's process ends with 0 once the daemon listens; the daemon
 * has a session of its own, / as its folder, no inherited descriptors and no terminal. 0 in the
 * daemon, or -errno. */
int lockd_detach(const struct lockd_sockets *sockets, struct gs_err *err);
/* Sends one datagram to NOTIFY_SOCKET, if that is set: sd_notify(3). */
void lockd_notify(const char *state);
