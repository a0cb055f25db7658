/* SPDX-License-Identifier: Apache-2.0
 *
 * way.h: how a file that does not use CUDA by itself comes to use it.
 */
#pragma once

#include "rewriter/elf/search.h"

enum elf_way_kind {
    ELF_WAY_NONE,
    ELF_WAY_LIBRARY, /* a library of its closure uses CUDA */
    ELF_WAY_PLUGIN   /* it can load a library that does */
};

struct elf_way {
    enum elf_way_kind kind;
    char path[PATH_MAX]; /* of the library that uses CUDA */
    char why[ELF_WHY_MAX];
    bool in_vain; /* plug-ins were looked for, and none uses CUDA */
};

/* Finds a way to CUDA for the file at `path` (links resolved), itself apart. `plugins`: a
 * program that can call dlopen may load what lies beside it: in its folder, in folders
 * below, and if its folder is a bin, in lib beside that. `plugin`: a library that uses CUDA
 * in the same tree, or NULL. A program of the system is surrounded by everybody's
 * libraries: only folders named after it count then. 0 or -ENOMEM. */
int elf_way_find(struct elf_way *way, struct elf_reach *reach, const char *path, bool plugins,
                 const char *plugin);
