/* SPDX-License-Identifier: Apache-2.0
 *
 * same.h: whether two names are names of one file, or one is a program's; the name of this program's
 * file, and of its Python environment.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline bool gs_same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Links are followed. False: they are two files, or one of them cannot be looked at. */
static inline bool gs_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && gs_same_inode(&x, &y);
}

/* A file that this user may execute. */
static inline bool gs_is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Cuts the last parts off a path. False: it has fewer. */
static inline bool gs_cut_parts(char *path, int parts)
{
    char *slash;

    for (; parts > 0 && (slash = strrchr(path, '/')) != NULL; parts--)
        *slash = '\0';
    return parts == 0;
}

/* The absolute path of this program's file without its last parts: with 1 its folder ("": the
 * root). False: it cannot be found. */
static inline bool gs_own_path(char path[PATH_MAX], int parts)
{
    const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

    path[length > 0 ? length : 0] = '\0';
    return length > 0 && gs_cut_parts(path, parts);
}

/* The Python environment that this program is installed in, else the active one. False: there is
 * none. */
static inline bool gs_own_environment(char folder[PATH_MAX])
{
    const char *active = getenv("VIRTUAL_ENV");
    char config[PATH_MAX + 16];

    for (gs_own_path(folder, 0); gs_cut_parts(folder, 1);) {
        snprintf(config, sizeof config, "%s/pyvenv.cfg", folder);
        if (access(config, F_OK) == 0)
            return true;
    }
    return active != NULL && *active != '\0' &&
           snprintf(folder, PATH_MAX, "%s", active) < PATH_MAX;
}
