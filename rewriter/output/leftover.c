/* SPDX-License-Identifier: Apache-2.0
 *
 * leftover.c: see leftover.h. A run holds a lock (flock) on its new file, which the kernel
 * releases when the run ends. If a file system cannot lock, leftovers stay.
 *
 * No state, any thread.
 */
#include "rewriter/output/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX ".gpushare-patch."

static void print_name(char name[NAME_MAX + 1], uint64_t number)
{
    snprintf(name, NAME_MAX + 1, PREFIX "%016llx", (unsigned long long)number);
}

void elf_leftover_name(char name[NAME_MAX + 1], const char *base)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *base != '\0'; base++)
        hash = (hash ^ (unsigned char)*base) * 0x100000001b3u;
    print_name(name, hash);
}

void elf_leftover_random_name(char name[NAME_MAX + 1])
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = (uint64_t)getpid();
    print_name(name, random);
}

bool elf_leftover_is_one(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

void elf_leftover_hold(int fd)
{
    flock(fd, LOCK_EX | LOCK_NB);
}

static bool is_same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static void sweep_file(int folder, const char *name, int fd, const struct stat *st)
{
    struct stat now;

    if (flock(fd, LOCK_SH | LOCK_NB) == 0 &&
        fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && is_same_inode(&now, st))
        unlinkat(folder, name, 0);
}

/* Removes a folder with a file in it. A run that has made its folder but not yet the file would
 * fail then, but it would work on the same target as this run. */
static void sweep_folder(int folder, const char *name, int fd)
{
    int file = openat(fd, ELF_LEFTOVER_INNER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode))
        sweep_file(fd, ELF_LEFTOVER_INNER, file, &st);
    if (file >= 0)
        close(file);
    unlinkat(folder, name, AT_REMOVEDIR); /* if it is empty now */
}

void elf_leftover_sweep(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ELOOP)
        unlinkat(folder, name, 0); /* a link, which no run uses for long */
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        sweep_file(folder, name, fd, &st);
    else if (S_ISDIR(st.st_mode))
        sweep_folder(folder, name, fd);
    close(fd);
}
