/* SPDX-License-Identifier: Apache-2.0
 *
 * closure.c: see closure.h. Breadth first, as the loader does it: a library that is there by its
 * name or SONAME is not searched for again. No state, any thread.
 */
#include "rewriter/elf/closure.h"
#include "rewriter/elf/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void free_member(struct elf_closure_member *member)
{
    if (member == NULL)
        return;
    free(member->path);
    free(member->name);
    free(member);
}

void elf_closure_deinit(struct elf_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++)
        free_member(closure->list[i]);
    free(closure->list);
    *closure = (struct elf_closure){0};
}

static int add_member(struct elf_closure *closure, const struct elf_asker *as, const char *name)
{
    struct elf_closure_member **list =
        elf_grow(closure->list, closure->count, &closure->room, sizeof(void *));
    struct elf_closure_member *member = list != NULL ? calloc(1, sizeof *member) : NULL;

    if (list != NULL)
        closure->list = list;
    if (member == NULL)
        return -ENOMEM;
    member->as = *as;
    member->as.path = member->path = strdup(as->path);
    member->name = strdup(name);
    if (member->path == NULL || member->name == NULL) {
        free_member(member);
        return -ENOMEM;
    }
    closure->list[closure->count++] = member;
    return 0;
}

bool elf_closure_has(const struct elf_closure *closure, const char *name)
{
    for (size_t i = 1; i < closure->count; i++) {
        const char *soname = closure->list[i]->as.object->soname;

        if (strcmp(closure->list[i]->name, name) == 0 ||
            (soname != NULL && strcmp(soname, name) == 0))
            return true;
    }
    return false;
}

static bool has_object(const struct elf_closure *closure, const struct elf_object *object)
{
    for (size_t i = 0; i < closure->count; i++)
        if (closure->list[i]->as.object == object)
            return true;
    return false;
}

int elf_closure_make(struct elf_closure *closure, struct elf_reach *reach, const char *path)
{
    struct elf_asker as = {.object = elf_reach_object(reach, path), .path = path};
    char found[PATH_MAX];
    int ret = 0;

    *closure = (struct elf_closure){0};
    if (as.object == NULL || !as.object->valid)
        return -ENOENT;
    ret = add_member(closure, &as, "");
    for (size_t i = 0; ret == 0 && i < closure->count; i++) {
        const struct elf_asker *asker = &closure->list[i]->as;

        for (size_t j = 0; ret == 0 && j < asker->object->needed_count; j++) {
            const char *name = asker->object->needed[j];

            if (elf_closure_has(closure, name))
                continue;
            as = (struct elf_asker){elf_search(reach, asker, name, found), found, asker};
            if (as.object != NULL && !has_object(closure, as.object))
                ret = add_member(closure, &as, name);
        }
    }
    return ret;
}

const struct elf_asker *elf_closure_cuda(const struct elf_closure *closure, size_t from)
{
    for (size_t i = from; i < closure->count; i++)
        if (closure->list[i]->as.object->reaches)
            return &closure->list[i]->as;
    return NULL;
}

bool elf_closure_can_dlopen(const struct elf_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++)
        if (closure->list[i]->as.object->can_dlopen)
            return true;
    return false;
}
