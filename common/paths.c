/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: finds the daemon's sockets. No state; reads the environment.
 */
#include "common/paths.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A path that is too long for a socket is left out. */
__attribute__((format(printf, 2, 3))) static void add(struct gs_places *places,
                                                      const char *format, ...)
{
    va_list ap;
    int length;

    va_start(ap, format);
    length = vsnprintf(places->path[places->count], GS_PATH_SIZE, format, ap);
    va_end(ap);
    places->count += length > 0 && length < GS_PATH_SIZE;
}

/* True for a folder as the specification of XDG_RUNTIME_DIR wants it: this user's, and no
 * other's. su and sudo may leave that of another user in the variable. */
static bool is_runtime_folder(const char *path)
{
    struct stat st;

    return path != NULL && path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

int gs_places_name(struct gs_places *places, const char *path)
{
    *places = (struct gs_places){.named = true};
    if (path[0] != '/')
        return -EINVAL;
    add(places, "%s", path);
    return places->count == 1 ? 0 : -ENAMETOOLONG;
}

int gs_places_find(struct gs_places *places)
{
    const char *named = secure_getenv("GPUSHARE_SOCKET");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    const unsigned user = (unsigned)geteuid();
    char usual[32];

    if (named != NULL && named[0] != '\0')
        return gs_places_name(places, named);
    *places = (struct gs_places){.count = 0};
    add(places, "%s", GS_SYSTEM_SOCKET);
    snprintf(usual, sizeof usual, "/run/user/%u", user);
    if (!is_runtime_folder(runtime))
        runtime = is_runtime_folder(usual) ? usual : NULL;
    if (runtime != NULL)
        add(places, "%s/gpushare/" GS_SOCKET_NAME, runtime);
    add(places, "/tmp/gpushare-%u/" GS_SOCKET_NAME, user);
    return 0;
}
