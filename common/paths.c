/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: finds the daemon's socket. No state; reads the environment.
 */
#include "common/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

int gs_socket_folder(const char *socket_path)
{
    char folder[256];
    char *slash;
    struct stat st;

    if (snprintf(folder, sizeof folder, "%s", socket_path) >= (int)sizeof folder)
        return -ENAMETOOLONG;
    slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return 0;
    *slash = '\0';
    if (mkdir(folder, strncmp(folder, "/run/gpushare", 13) == 0 ? 0755 : 0700) != 0 &&
        errno != EEXIST)
        return -errno;
    if (stat(folder, &st) != 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if ((st.st_uid != geteuid() && st.st_uid != 0) ||
        ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0))
        return -EPERM;
    return 0;
}
