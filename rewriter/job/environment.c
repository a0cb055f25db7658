/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.c: see environment.h. A folder with pyvenv.cfg in it is an environment; its
 * programs are in its bin. No state, any thread.
 */
#include "rewriter/job/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINKS 40 /* as many as the kernel follows */

/* Finds the environment to which programs of this folder belong: its parent, or the folder
 * itself. */
static bool find_environment(const char *folder, char environment[PATH_MAX])
{
    static const char *const ways[] = {"..", "."};
    char config[PATH_MAX + 32];

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        snprintf(config, sizeof config, "%s/%s/pyvenv.cfg", folder, ways[i]);
        if (access(config, F_OK) != 0)
            continue;
        *strrchr(config, '/') = '\0';
        if (realpath(config, environment) != NULL)
            return true;
    }
    *environment = '\0';
    return false;
}

static bool is_below(const char *folder, const char *path)
{
    size_t length = strlen(folder);

    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Puts the folder that holds `path`, links resolved, into `folder`. */
static bool find_folder(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    char given[PATH_MAX] = ".";

    if (slash != NULL)
        snprintf(given, sizeof given, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    return realpath(given, folder) != NULL;
}

bool elf_environment_left(const char *name, const char *real, char environment[PATH_MAX])
{
    char link[PATH_MAX], folder[PATH_MAX], target[PATH_MAX];
    ssize_t n;

    *environment = '\0';
    snprintf(link, sizeof link, "%s", name);
    for (int i = 0; i < MAX_LINKS; i++) {
        n = readlink(link, target, sizeof target - 1);
        if (n <= 0 || !find_folder(link, folder))
            return false;
        target[n] = '\0';
        if (find_environment(folder, environment) && !is_below(environment, real))
            return true;
        *environment = '\0';
        if (*target == '/')
            memcpy(link, target, (size_t)n + 1);
        else if (snprintf(link, sizeof link, "%s/%s", folder, target) >= (int)sizeof link)
            return false;
    }
    return false;
}

bool elf_environment_is_python(const char *base)
{
    size_t length = strncmp(base, "python", 6) == 0 ? 6 : strncmp(base, "pypy", 4) == 0 ? 4 : 0;

    return length > 0 && strspn(base + length, "0123456789.dmt") == strlen(base + length);
}
