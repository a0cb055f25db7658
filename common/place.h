/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h: where the daemon's sockets are, and a connection to the daemon there whose identity is
 * known. Used by the daemon, gpusharectl and the runtime library alike.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The paths of the daemon's sockets. Processes of one user find each other however they
 * were started, although some have XDG_RUNTIME_DIR and others (cron, su, services) do not:
 * the daemon listens in all its possible places, and callers try all of them. */
#define GS_SOCKET_NAME   "lockd.sock"
#define GS_SYSTEM_FOLDER "/run/gpushare" /* of a service that serves several users */
#define GS_SYSTEM_SOCKET GS_SYSTEM_FOLDER "/" GS_SOCKET_NAME
#define GS_PLACES        3
#define GS_PATH_SIZE     108 /* of sun_path */

struct gs_places {
    char path[GS_PLACES][GS_PATH_SIZE]; /* of sockets, in the order in which they are tried */
    unsigned count;
    bool named; /* a place that somebody has named, and no other */
};

/* The places of the daemon:
 *  - GPUSHARE_SOCKET alone, if it is set (not for setuid programs); else
 *  - GS_SYSTEM_SOCKET, a service's or root's;
 *  - gpushare/lockd.sock in the run-time folder: XDG_RUNTIME_DIR or, where that is not set, not
 *    there or not this user's, /run/user/<uid>; left out where that is not there either;
 *  - /tmp/gpushare-<uid>/lockd.sock.
 * 0; -EINVAL, -ENAMETOOLONG: GPUSHARE_SOCKET is no full path, or too long for a socket. */
int gs_places_find(struct gs_places *places);

/* That path alone. As gs_places_find(). */
int gs_places_name(struct gs_places *places, const char *path);

/* Looks at the folder of a socket path as gs_place_connect() does. make: makes it (mode 0700, or
 * 0755 for GS_SYSTEM_FOLDER) if it is not there. 0 or -errno, with the reason in err. */
int gs_place_look(const char *socket_path, bool make, struct gs_err *err);

/* Connects the socket to the daemon at a full path, if that daemon may be trusted with this
 * process's memory:
 *  - the folder is no symbolic link, belongs to this user or root, and others cannot replace
 *    what is in it;
 *  - the socket is no symbolic link either;
 *  - the daemon (SO_PEERCRED) belongs to this user or root; in GS_SYSTEM_FOLDER, if only root
 *    can have made that folder, it may belong to the folder's owner as well. That is also how
 *    host root's service looks from within a user namespace: both show the overflow user.
 * 0; or -errno, with the reason in err, and the socket must be closed:
 *  -ENOENT, -ECONNREFUSED: nobody serves there; -EAGAIN: a daemon has more callers than it
 *  answers; -EPERM: a folder or a daemon that is not to be trusted; -ENOTSOCK, -EPROTOTYPE:
 *  something else is there; -EACCES: this user may not connect. Any thread. */
int gs_place_connect(int socket, const char *socket_path, struct gs_err *err);

/* Opens a socket and connects it: as gs_place_connect(). */
typedef int gs_place_caller(void *context, const char *socket_path, struct gs_err *err);

/* Tries the places in their order until a daemon is there: 0, or -EAGAIN if it is busy, and
 * *which is its place. Else -ENOENT or -ECONNREFUSED, if nobody serves at one of them, or what
 * is wrong with the last place. Nothing that is wrong with one place keeps from another. */
int gs_places_try(const struct gs_places *places, gs_place_caller *call, void *context,
                  unsigned *which, struct gs_err *err);

bool gs_place_is_empty(int code); /* nobody serves there: -ENOENT, -ECONNREFUSED */
