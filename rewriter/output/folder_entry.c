/* SPDX-License-Identifier: Apache-2.0
 *
 * folder_entry.c: see folder_entry.h. Below a root each part of a path is opened by itself, from
 * the folder before it and without following links. openat2() could do that in one call, but only
 * since Linux 5.6 and not in every container, so this would be needed as well.
 *
 * Owns the descriptors until they are closed. No state, any thread.
 */
#include "rewriter/output/folder_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PASS (O_PATH | O_DIRECTORY | O_CLOEXEC)

int elf_root_open(struct elf_root *root, const char *name, struct gs_err *err)
{
    root->fd = -1;
    if (realpath(name, root->path) == NULL)
        return gs_err_errno(err, -errno, "%s: cannot open", name);
    root->fd = open(root->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return root->fd >= 0 ? 0 : gs_err_errno(err, -errno, "%s: cannot open", root->path);
}

void elf_root_close(struct elf_root *root)
{
    if (root->fd >= 0)
        close(root->fd);
    root->fd = -1;
}

const char *elf_root_below(const struct elf_root *root, const char *path)
{
    size_t length = strcmp(root->path, "/") == 0 ? 0 : strlen(root->path);

    if (strncmp(path, root->path, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return NULL;
    return path + length + (path[length] == '/');
}

/* Takes the next part of *path into name. False at the end; ".." is no part. */
static bool take_part(const char **path, char name[NAME_MAX + 1], int *error)
{
    size_t length;

    *path += strspn(*path, "/");
    length = strcspn(*path, "/");
    *error = length > NAME_MAX                                 ? -ENAMETOOLONG
             : length == 2 && memcmp(*path, "..", length) == 0 ? -EXDEV
                                                               : 0;
    if (length == 0 || *error != 0)
        return false;
    memcpy(name, *path, length);
    name[length] = '\0';
    *path += length;
    return true;
}

/* Opens the folder of the last part, which goes into base: "." if path has no part. */
static int walk_below(const struct elf_root *root, const char *path, struct elf_entry *entry)
{
    int ret = 0;

    strcpy(entry->base, ".");
    entry->folder = openat(root->fd, ".", PASS);
    if (entry->folder < 0)
        return -errno;
    if (!take_part(&path, entry->base, &ret))
        return ret;
    while (path[strspn(path, "/")] != '\0' && ret == 0) {
        const int next = openat(entry->folder, entry->base, PASS | O_NOFOLLOW);

        ret = next >= 0 ? 0 : -errno;
        close(entry->folder);
        entry->folder = next;
        if (ret == 0 && !take_part(&path, entry->base, &ret))
            break;
    }
    return ret;
}

int elf_root_folder(const struct elf_root *root, const char *below)
{
    struct elf_entry entry;
    int ret = walk_below(root, below, &entry);

    if (ret == 0) {
        ret = openat(entry.folder, entry.base,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ret = ret >= 0 ? ret : -errno;
    }
    elf_entry_close(&entry);
    return ret;
}

int elf_root_open_resolved(struct elf_root *root, const char *path, struct gs_err *err)
{
    struct elf_root top;
    int ret = elf_root_open(&top, "/", err);

    *root = (struct elf_root){.fd = -1};
    if (ret != 0)
        return ret;
    ret = snprintf(root->path, sizeof root->path, "%s", path) < PATH_MAX
              ? elf_root_folder(&top, path)
              : -ENAMETOOLONG;
    elf_root_close(&top);
    root->fd = ret;
    if (ret >= 0)
        return 0;
    if (ret == -ENOTDIR || ret == -ELOOP || ret == -EXDEV)
        return gs_err_set(err, -ELOOP,
                          "%s: is no folder any more, or its path now contains a symbolic "
                          "link; nothing there is changed",
                          path);
    return gs_err_errno(err, ret, "%s: cannot open", path);
}

int elf_entry_open(struct elf_entry *entry, const struct elf_root *root, const char *path,
                   struct gs_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    char folder[PATH_MAX] = ".";

    *entry = (struct elf_entry){.folder = -1};
    if (root != NULL) {
        const char *below = elf_root_below(root, path);
        int ret = below != NULL ? walk_below(root, below, entry) : -EXDEV;

        if (ret == 0)
            return 0;
        elf_entry_close(entry);
        if (ret == -ENOTDIR || ret == -ELOOP || ret == -EXDEV)
            return gs_err_set(
                err, -ELOOP,
                "%s: its path now contains a symbolic link; nothing outside %s is changed",
                path, root->path);
        return gs_err_errno(err, ret, "%s: cannot open", path);
    }
    if (strlen(base) > NAME_MAX || strlen(path) >= sizeof folder)
        return gs_err_set(err, -ENAMETOOLONG, "%s: is not a valid file name", path);
    snprintf(entry->base, sizeof entry->base, "%s", *base != '\0' ? base : ".");
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    entry->folder = open(folder, PASS);
    if (entry->folder >= 0)
        return 0;
    return gs_err_errno(err, -errno, "%s: cannot open the folder %s", path, folder);
}

void elf_entry_close(struct elf_entry *entry)
{
    if (entry->folder >= 0)
        close(entry->folder);
    entry->folder = -1;
}
