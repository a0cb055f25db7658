/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h: finds a library as the loader does (ld.so(8), "DESCRIPTION").
 */
#ifndef REWRITER_ELF_SEARCH_H
#define REWRITER_ELF_SEARCH_H

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

#endif
