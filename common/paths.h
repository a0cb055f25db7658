/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: the paths of the daemon's sockets. Used by the daemon, gpusharectl and the runtime
 * library alike.
 *
 * Processes of one user find each other however they were started, although some have
 * XDG_RUNTIME_DIR and others (cron, su, services) do not: the daemon listens in all its possible
 * places, and callers try all of them.
 */
#ifndef GS_COMMON_PATHS_H
#define GS_COMMON_PATHS_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
