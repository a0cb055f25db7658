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

/* Finds the library of that name (DT_NEEDED, or dlopen's) for the asker: by RPATH of it and of
 * those that asked for it, LD_LIBRARY_PATH of this run, its RUNPATH, /etc/ld.so.cache, and the
 * default folders. The object, with its path; NULL: the loader would not find it. */
const struct elf_object *elf_search(struct elf_reach *reach, const struct elf_asker *asker,
                                    const char *name, char path[PATH_MAX]);

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

/* The first member from number `from` on that uses CUDA by itself; NULL: none. */
const struct elf_asker *elf_closure_cuda(const struct elf_closure *closure, size_t from);

/* Whether a member can load plug-ins. */
bool elf_closure_can_dlopen(const struct elf_closure *closure);
