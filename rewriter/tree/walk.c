/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.c: lists ELF files and wheel records below a folder.
 *
 * Owns the lists. Symbolic links are not followed, so that nothing outside the folder is ever
 * touched. fts keeps its state to itself: any thread.
 */
#include "rewriter/tree/walk.h"
#include "rewriter/elf/grow.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

int elf_paths_add(struct elf_paths *paths, const char *path)
{
    char **list = elf_grow(paths->list, paths->count, &paths->room, sizeof *list);

    if (list == NULL)
        return -ENOMEM;
    paths->list = list;
    paths->list[paths->count] = strdup(path);
    if (paths->list[paths->count] == NULL)
        return -ENOMEM;
    paths->count++;
    return 0;
}

void elf_paths_deinit(struct elf_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->list[i]);
    free(paths->list);
    *paths = (struct elf_paths){0};
}

void elf_walk_deinit(struct elf_walk *walk)
{
    elf_paths_deinit(&walk->files);
    elf_paths_deinit(&walk->records);
}

static bool is_excluded(const struct elf_options *options, const char *below, const char *name)
{
    for (size_t i = 0; i < options->exclude_count; i++)
        if (fnmatch(options->excludes[i], name, 0) == 0 ||
            fnmatch(options->excludes[i], below, 0) == 0)
            return true;
    return false;
}

bool elf_walk_excludes(const struct elf_options *options, const char *below)
{
    char part[PATH_MAX];

    for (size_t i = 0; below[i] != '\0'; i++) { /* the folders on the way, then itself */
        if (below[i + 1] != '/' && below[i + 1] != '\0')
            continue;
        if (i + 1 >= sizeof part)
            return false;
        memcpy(part, below, i + 1);
        part[i + 1] = '\0';
        if (is_excluded(options, part,
                        strrchr(part, '/') != NULL ? strrchr(part, '/') + 1 : part))
            return true;
    }
    return false;
}

/* Whether it starts as a program or library does; everything else is checked later. A program
 * that may not be read is one as well: that it cannot be looked at has to be said. */
static bool is_elf(const char *path, mode_t mode)
{
    unsigned char head[EI_NIDENT + 2];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0)
        return errno == EACCES && (mode & 0111) != 0;
    n = read(fd, head, sizeof head);
    close(fd);
    return n == (ssize_t)sizeof head && memcmp(head, ELFMAG, SELFMAG) == 0 &&
           head[EI_CLASS] == ELFCLASS64 &&
           (head[EI_NIDENT] == ET_EXEC || head[EI_NIDENT] == ET_DYN);
}

/* Folders of the kernel's (/proc, /sys) hold no programs, and many that even root may not read.
 */
static bool is_kernels(const FTSENT *entry)
{
    struct statfs mounted;

    if (entry->fts_level == 0 ||
        entry->fts_statp->st_dev == entry->fts_parent->fts_statp->st_dev ||
        statfs(entry->fts_path, &mounted) != 0)
        return false;
    return mounted.f_type == PROC_SUPER_MAGIC || mounted.f_type == SYSFS_MAGIC;
}

static bool is_record(const FTSENT *entry)
{
    static const char end[] = ".dist-info/RECORD";
    size_t length = sizeof end - 1;

    return entry->fts_pathlen > length &&
           strcmp(entry->fts_path + entry->fts_pathlen - length, end) == 0;
}

static int look_at(struct elf_walk *walk, FTS *fts, FTSENT *entry, size_t skip,
                   const struct elf_options *options, struct gs_err *err)
{
    const char *below = entry->fts_pathlen > skip ? entry->fts_path + skip : "";

    switch (entry->fts_info) {
    case FTS_DNR:
    case FTS_ERR:
        if (entry->fts_errno == ENOENT)
            return 0; /* it went away meanwhile */
        return gs_err_errno(err, -entry->fts_errno, "%s: cannot read (--exclude leaves it out)",
                            entry->fts_path);
    case FTS_D:
        if (entry->fts_level > 0 &&
            (is_excluded(options, below, entry->fts_name) || is_kernels(entry)))
            fts_set(fts, entry, FTS_SKIP);
        return 0;
    case FTS_NS: /* in a folder that may be listed and not searched; or its path is too long */
    case FTS_F:
        break;
    default:
        return 0;
    }
    if (is_excluded(options, below, entry->fts_name) ||
        strncmp(entry->fts_name, ".gpushare-", 10) == 0)
        return 0;
    if (entry->fts_info == FTS_NS)
        return entry->fts_errno == ENOENT
                   ? 0
                   : gs_err_errno(err, -entry->fts_errno,
                                  "%s: cannot look at it (--exclude leaves it out)",
                                  entry->fts_path);
    if (is_record(entry))
        return elf_paths_add(&walk->records, entry->fts_path);
    return is_elf(entry->fts_path, entry->fts_statp->st_mode)
               ? elf_paths_add(&walk->files, entry->fts_path)
               : 0;
}

static int compare(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

int elf_walk(struct elf_walk *walk, const char *folder, const struct elf_options *options,
             struct gs_err *err)
{
    char *const roots[] = {(char *)(uintptr_t)folder, NULL};
    size_t skip = strlen(folder) + 1;
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare);
    FTSENT *entry;
    int ret = 0;

    *walk = (struct elf_walk){0};
    if (fts == NULL)
        return gs_err_errno(err, -errno, "%s: cannot read", folder);
    while (ret == 0 && (entry = fts_read(fts)) != NULL)
        ret = look_at(walk, fts, entry, skip, options, err);
    if (ret == -ENOMEM)
        gs_err_set(err, ret, "%s: no memory", folder);
    fts_close(fts);
    return ret;
}
