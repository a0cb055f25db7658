/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: where the daemon's socket is. Used by the daemon, gpusharectl and the runtime
 * library alike.
 */
#ifndef GS_COMMON_PATHS_H
#define GS_COMMON_PATHS_H

#include <stddef.h>

#define GS_SOCKET_NAME "lockd.sock"

/* Writes the path of the daemon's socket (at most 107 bytes, the limit of sockaddr_un) into
 * buffer:
 *   1. GPUSHARE_SOCKET, if set (not for setuid programs); a full path, or it is -EINVAL;
 *   2. /run/gpushare/lockd.sock, if it exists (a service runs) or we are root;
 *   3. $XDG_RUNTIME_DIR/gpushare/lockd.sock;
 *   4. /tmp/gpushare-<uid>/lockd.sock.
 * 0, -ENAMETOOLONG or -EINVAL. */
int gs_socket_path(char *buffer, size_t size);

#endif
