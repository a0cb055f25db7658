/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: finds the daemon's socket. No state; reads the environment.
 */
#include "common/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

static const char system_socket[] = "/run/gpushare/" GS_SOCKET_NAME;

int gs_socket_path(char *buffer, size_t size)
{
    const char *path = secure_getenv("GPUSHARE_SOCKET");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    const size_t limit = sizeof((struct sockaddr_un *)0)->sun_path;
    int length;

    if (path != NULL && *path != '\0' && *path != '/')
        return -EINVAL;
    if (path != NULL && *path != '\0')
        length = snprintf(buffer, size, "%s", path);
    else if (geteuid() == 0 || access(system_socket, F_OK) == 0)
        length = snprintf(buffer, size, "%s", system_socket);
    else if (runtime != NULL && *runtime == '/')
        length = snprintf(buffer, size, "%s/gpushare/" GS_SOCKET_NAME, runtime);
    else
        length = snprintf(buffer, size, "/tmp/gpushare-%u/" GS_SOCKET_NAME, (unsigned)getuid());
    return length < 0 || (size_t)length >= size || (size_t)length >= limit ? -ENAMETOOLONG : 0;
}
