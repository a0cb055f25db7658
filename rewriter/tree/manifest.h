/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.h: the files that --tree and --venv patched below a folder, so that all of them can be
 * restored and checked.
 *
 * A text file DIR/.gpushare-manifest. The first line is "gpushare-manifest 1"; then there is one
 * line for each entry. Paths are relative to DIR, with bytes below 0x21 and % as %XX:
 *     file PATH          a patched file
 *     link PATH TARGET   a symbolic link to TARGET that a patched copy replaced
 */
#pragma once

#include "rewriter/tree/walk.h"

#define ELF_MANIFEST_NAME ".gpushare-manifest"

struct elf_manifest_entry {
    char *path;   /* relative to the folder */
    char *target; /* of the link; NULL: a file */
};

struct elf_manifest {
    struct elf_manifest_entry *entries;
    size_t count, room;
    void *paths; /* the entries' paths as a tree (tsearch), to find one among many */
};

/* Reads the manifest of folder; a missing manifest is empty. 0; -EINVAL naming the line. */
int elf_manifest_read(struct elf_manifest *manifest, const struct elf_root *root,
                      struct gs_err *err);

/* Writes it, in one step; an empty manifest is removed. */
int elf_manifest_write(const struct elf_manifest *manifest, const struct elf_root *root,
                       struct gs_err *err);

/* Adds an entry, unless the path is there. target NULL: a file. 0 or -ENOMEM. */
int elf_manifest_add(struct elf_manifest *manifest, const char *path, const char *target);

bool elf_manifest_has(const struct elf_manifest *manifest, const char *path);
void elf_manifest_deinit(struct elf_manifest *manifest);

/* Updates hash and size of the changed files in each RECORD that lists them with SHA-256, and
 * then of those RECORDs themselves in others. All paths are full paths without links, sorted by
 * strcmp; nothing outside root is opened. `lines` gets the number of lines that changed. A
 * RECORD that cannot be changed is named on stderr, and sets `failed`. 0 or -ENOMEM. */
int elf_record_update(const struct elf_root *root, const struct elf_paths *records,
                      const struct elf_paths *changed, size_t *lines, bool *failed);
