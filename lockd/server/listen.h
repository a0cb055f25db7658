/* SPDX-License-Identifier: Apache-2.0
 *
 * listen.h: the daemon's place in the file system: socket, lock file, detaching, and what
 * systemd wants to know.
 */
#ifndef GS_LOCKD_SERVER_LISTEN_H
#define GS_LOCKD_SERVER_LISTEN_H

#include "common/err.h"
#include "lockd/base/options.h"

#include <stdbool.h>
#include <sys/types.h>

struct lockd_place {
    char path[LOCKD_PATH_SIZE];
    int listener, lock_fd;
    ino_t inode;    /* of the socket that we made; 0: none */
    gid_t group;    /* members of it may connect; (gid_t)-1: nobody */
    bool activated; /* systemd's socket: not ours to remove */
};

/* Positive result: another daemon serves this socket. */
#define LOCKD_ALREADY 1

/* Takes the place at path (a full one): socket activation, or a lock file, a stale socket
 * replaced, a socket bound and listening. 0, LOCKD_ALREADY, or -errno. */
int lockd_place_take(struct lockd_place *place, const char *path, struct gs_err *err);
/* Whether some daemon listens there. */
bool lockd_place_is_served(const struct lockd_place *place);
/* Removes the socket (ours only) and gives the place up. The lock file stays: removing it would
 * race. */
void lockd_place_leave(struct lockd_place *place);

/* Goes to the background: the caller's process ends with 0 once the daemon listens; own
 * session, / as folder, no inherited descriptors, no terminal. 0 in the daemon, or -errno. */
int lockd_detach(const struct lockd_place *place, struct gs_err *err);
/* sd_notify(3): one datagram to NOTIFY_SOCKET, if there is one. */
void lockd_notify(const char *state);

#endif
