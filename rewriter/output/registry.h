/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: the list of all files that this user has patched and not restored, so that gpushare
 * can be removed without breaking them.
 *
 * A folder with one small file for each patched file, named by a checksum of its path, so that
 * several gpushare-patch can write at the same time. Root's is /var/lib/gpushare/patched, another
 * user's is gpushare/patched below XDG_STATE_HOME; GPUSHARE_STATE=FOLDER names FOLDER/patched
 * instead. A gpushare-patch in its build folder keeps a list only there.
 * Lines of an entry, bytes below 0x21 and % as %XX:
 *     path=PATH           without links
 *     file=DEV:INODE      of the patched file, decimal
 *     original=HEX        checksum of the original, as in the undo note
 *     venv=DIR, tree=DIR  the folder that --venv or --tree was given, if so
 * Nothing of a file's content is in the list.
 */
#pragma once

#include "common/err.h"
#include "rewriter/elf/sums.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct elf_listed {
    char path[PATH_MAX];
    char root[PATH_MAX]; /* of --venv or --tree, or "" */
    bool venv;
    dev_t device;
    ino_t inode;
    uint8_t original[ELF_CHECKSUM_SIZE];
};

struct elf_registry {
    struct elf_listed *entries; /* sorted by path */
    size_t count;
};

/* The folder that holds the list (without "/patched"). False if this run keeps none. */
bool elf_registry_folder(char folder[PATH_MAX]);

/* Adds the entry, or replaces that of the same path. 0, also if this run keeps no list; or a
 * negative errno. Any thread. */
int elf_registry_add(const struct elf_listed *entry, struct gs_err *err);

/* Whether there is an entry of that path. Any thread. */
bool elf_registry_has(const char *path);

/* Takes the path out of the list, if it is there. 0 or a negative errno. Any thread. */
int elf_registry_forget(const char *path, struct gs_err *err);

/* Reads all entries; ignores files that are none. 0 or a negative errno; must be deinited
 * in any case. */
int elf_registry_read(struct elf_registry *registry, struct gs_err *err);
void elf_registry_deinit(struct elf_registry *registry);

/* Writes a path as lists have it; reads it back in place. False: a % is not followed by two
 * digits of a byte. */
void elf_path_encode(FILE *to, const char *path);
bool elf_path_decode(char *text);
