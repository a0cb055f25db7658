/* SPDX-License-Identifier: Apache-2.0
 *
 * folder_entry.h: the place of a file: its folder, which is held open, and its name in there.
 *
 * A user with write access to a folder can replace a file in it by a link between two of our
 * steps. So a path is walked once, and every later step (read, write, rename) uses the descriptor
 * of the folder that was found then.
 */
#pragma once

#include "common/err.h"

#include <limits.h>
#include <stdbool.h>

/* A folder; nothing outside it is touched (--tree, --venv). */
struct elf_root {
    int fd;              /* for reading its entries; -1: not open */
    char path[PATH_MAX]; /* links resolved; for messages and to name what is below it */
};

struct elf_entry {
    int folder; /* O_PATH; -1: not open */
    char base[NAME_MAX + 1];
};

/* Opens the folder of that name, links followed. 0 or -errno; close accepts an entry that
 * failed. */
int elf_root_open(struct elf_root *root, const char *name, struct gs_err *err);
/* The same for an absolute path without links, as it was resolved before: a link that has
 * appeared on the way since is not followed. */
int elf_root_open_resolved(struct elf_root *root, const char *path, struct gs_err *err);
void elf_root_close(struct elf_root *root);

/* The part of path behind the root's, "" for the root itself; NULL if it does not begin with the
 * root's. Does not check for links on the way. */
const char *elf_root_below(const struct elf_root *root, const char *path);

/* Opens a folder below the root to read its entries; no link is followed. `below` is "" for the
 * root itself. The descriptor or -errno: -ENOTDIR or -ELOOP if a link is in the way. */
int elf_root_folder(const struct elf_root *root, const char *below);

/* Finds the entry of path. With a root, path must be below it and no symbolic link is followed
 * on the way; without one (NULL) links to folders are followed. The last part need not exist,
 * and may be a link. 0 or -errno; close accepts an entry that failed. */
int elf_entry_open(struct elf_entry *entry, const struct elf_root *root, const char *path,
                   struct gs_err *err);
void elf_entry_close(struct elf_entry *entry);
