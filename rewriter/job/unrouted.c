/* SPDX-License-Identifier: Apache-2.0
 *
 * unrouted.c: see unrouted.h. With --tree they are named once for all files (tree/outside.c). A
 * program that is patched with the scope process routes the calls
 * of all its libraries; otherwise each must be patched itself. No state, any thread.
 */
#include "rewriter/job/unrouted.h"
#include "rewriter/elf/say.h"

#include <stdlib.h>
#include <string.h>

typedef void take_library(FILE *to, const struct elf_job *job, const char *path,
                          const char *why, size_t number);

static bool routes_all(const struct elf_job *job)
{
    char scope[16] = "";

    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "scope", scope, sizeof scope);
    return strcmp(scope, "process") == 0;
}

static void take_each(FILE *to, const struct elf_job *job, take_library *take)
{
    struct elf_closure closure;
    char real[PATH_MAX];
    size_t number = 0;

    if (job->options->reach == NULL || routes_all(job) || job->options->folder.tree != NULL ||
        elf_closure_make(&closure, job->options->reach, job->path) != 0)
        return;
    for (size_t i = 1; i < closure.count; i++) {
        const struct elf_asker *as = &closure.list[i]->as;

        if (as->object->reaches && !as->object->patched)
            take(to, job, realpath(as->path, real) != NULL ? real : as->path, as->object->why,
                 number++);
    }
    elf_closure_deinit(&closure);
    if (number == 0 && job->way.kind == ELF_WAY_PLUGIN)
        take(to, job, job->way.path, job->way.why, number);
}

static void say_library(FILE *to, const struct elf_job *job, const char *path, const char *why,
                        size_t number)
{
    bool program = job->image.segments != NULL && job->scope == ELF_SCOPE_PROCESS;

    (void)number;
    elf_say(to, "%s: note: %s uses CUDA (%s) and is not routed; patch %s\n", job->name, path,
            why, program ? "this program" : "the program that loads it");
}

static void print_library(FILE *to, const struct elf_job *job, const char *path,
                          const char *why, size_t number)
{
    (void)job;
    fputs(number > 0 ? ",{\"file\":" : "{\"file\":", to);
    elf_say_json(to, path);
    fputs(",\"why\":", to);
    elf_say_json(to, why);
    fputc('}', to);
}

void elf_unrouted_say(FILE *to, const struct elf_job *job)
{
    take_each(to, job, say_library);
}

void elf_unrouted_json(FILE *to, const struct elf_job *job)
{
    fputc('[', to);
    take_each(to, job, print_library);
    fputc(']', to);
}
