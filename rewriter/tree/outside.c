/* SPDX-License-Identifier: Apache-2.0
 *
 * outside.c: see outside.h. No state; called by one thread.
 */
#include "rewriter/tree/outside.h"
#include "rewriter/elf/facts.h"
#include "rewriter/elf/say.h"
#include "rewriter/elf/closure.h"

#include <stdlib.h>
#include <string.h>

static bool was_said(const struct elf_paths *said, const char *path)
{
    for (size_t i = 0; i < said->count; i++)
        if (strcmp(said->list[i], path) == 0)
            return true;
    return false;
}

/* Whether a file of that name is among the libraries. */
static bool is_below(const struct elf_paths *libraries, const char *name)
{
    for (size_t i = 0; i < libraries->count; i++)
        if (strcmp(strrchr(libraries->list[i], '/') + 1, name) == 0)
            return true;
    return false;
}

/* The program that loads this library may find a library that its own paths do not lead to. */
static void look_for_missing(const char *library, const struct elf_closure *closure,
                             const struct elf_paths *libraries, struct elf_paths *said)
{
    const struct elf_object *own = closure->list[0]->as.object;

    for (size_t i = 0; i < own->needed_count; i++) {
        const char *name = own->needed[i];

        if (elf_facts_is_cuda_library(name) && strncmp(name, "libcuda.so", 10) != 0 &&
            !elf_closure_has(closure, name) && !is_below(libraries, name) &&
            !was_said(said, name) && elf_paths_add(said, name) == 0)
            elf_say(
                stderr,
                "%s: note: needs %s, which uses CUDA and is not found from here: it is routed "
                "only in patched programs\n",
                library, name);
    }
}

static void look_at_closure(const struct elf_root *root, const char *library,
                            const struct elf_closure *closure, struct elf_paths *said)
{
    const struct elf_object *own = closure->list[0]->as.object;

    if (own->mute && !own->patched)
        elf_say(stderr,
                "%s: note: uses CUDA (%s), but imports nothing that its own patch could route; "
                "patch the program that loads it\n",
                library, own->why);
    for (size_t i = 1; i < closure->count; i++) {
        const struct elf_asker *as = &closure->list[i]->as;
        char real[PATH_MAX];

        if (!as->object->reaches || as->object->patched || realpath(as->path, real) == NULL ||
            elf_root_below(root, real) != NULL || was_said(said, real))
            continue;
        elf_say(
            stderr,
            "%s: note: loads %s, which uses CUDA (%s) and is outside %s: it is routed only in "
            "patched programs\n",
            library, real, as->object->why, root->path);
        if (elf_paths_add(said, real) != 0)
            return;
    }
}

void elf_outside_say(const struct elf_root *root, const struct elf_paths *libraries,
                     const struct elf_options *options)
{
    struct elf_paths said = {0};
    struct elf_closure closure;

    if (options->within.programs_only)
        return;
    for (size_t i = 0; i < libraries->count; i++) {
        if (elf_closure_make(&closure, options->reach, libraries->list[i]) == 0) {
            look_at_closure(root, libraries->list[i], &closure, &said);
            look_for_missing(libraries->list[i], &closure, libraries, &said);
        }
        elf_closure_deinit(&closure);
    }
    elf_paths_deinit(&said);
}
