/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h: finds a library as the loader does (ld.so(8), "DESCRIPTION").
 */
#pragma once

#include "rewriter/elf/object.h"

#include <limits.h>

/* An object that asks for a library, and who asked for it. */
struct elf_asker {
    const struct elf_object *object;
    const char *path;              /* $ORIGIN is its folder */
    const struct elf_asker *asker; /* NULL: the program */
};

/* All that the loader maps for a program or library: its libraries, their libraries,
 * and so on. */

struct elf_closure_member {
    struct elf_asker as;
    char *path, *name; /* as.path, and the name by which it was asked for */
};

struct elf_closure {
    struct elf_closure_member **list; /* the first is the file itself */
    size_t count, room;
};

/* Finds the closure of the file, in the loader's order. Libraries that the loader would not
 * find are left out. 0, -ENOENT if the file is none that the loader accepts, or -ENOMEM;
 * must be deinited in any case. */
int elf_closure_make(struct elf_closure *closure, struct elf_reach *reach, const char *path);
void elf_closure_deinit(struct elf_closure *closure);

/* Whether a library of that name is in it. */
bool elf_closure_has(const struct elf_closure *closure, const char *name);

/* How a file that does not use CUDA by itself comes to use it. */

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
