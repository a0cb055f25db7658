/* SPDX-License-Identifier: Apache-2.0
 *
 * same.h: whether two names are names of one file.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

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
