/* SPDX-License-Identifier: Apache-2.0
 *
 * origin.c: replaces $ORIGIN in the names of the dynamic section by the program's old folder, for
 * a copy of a program in another folder, which must still find its libraries.
 *
 * No state, any thread; what is allocated belongs to the plan or the caller.
 */
#include "rewriter/elf/dynamic.h"
#include "rewriter/plan/imports.h"
#include "rewriter/plan/origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first $ORIGIN of a name by glibc's rules (elf/dl-load.c, is_dst), and its length; or NULL. */
static const char *find_token(const char *text, size_t *length)
{
    static const char *const tokens[] = {"$ORIGIN", "${ORIGIN}"};

    for (; (text = strchr(text, '$')) != NULL; text++)
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            *length = strlen(tokens[i]);
            if (strncmp(text, tokens[i], *length) == 0)
                return text;
        }
    return NULL;
}

char *elf_origin_expand(const char *text, const char *origin)
{
    size_t count = 0, length = 0;
    const char *at = text, *next;
    char *made, *to;

    for (; (at = find_token(at, &length)) != NULL; at += length)
        count++;
    made = malloc(strlen(text) + count * strlen(origin) + 1);
    if (made == NULL)
        return NULL;
    for (at = text, to = made; (next = find_token(at, &length)) != NULL; at = next + length) {
        to = mempcpy(to, at, (size_t)(next - at));
        to = stpcpy(to, origin);
    }
    memcpy(to, at, strlen(at) + 1);
    return made;
}

static bool has_origin(const struct elf_image *image, const Elf64_Dyn *entry)
{
    const char *name = elf_dynamic_is_name(entry->d_tag) && entry->d_tag != DT_SONAME
                           ? elf_image_string(image, entry->d_un.d_val)
                           : NULL;
    size_t length;

    return name != NULL && find_token(name, &length) != NULL;
}

bool elf_origin_is_used(const struct elf_image *image)
{
    for (size_t i = 0; i < image->dynamic.count; i++)
        if (has_origin(image, &image->dynamic.entries[i]))
            return true;
    return false;
}

static int pin_name(struct elf_plan *plan, Elf64_Dyn *entry)
{
    char *name =
        elf_origin_expand(elf_image_string(plan->image, entry->d_un.d_val), plan->origin);
    int ret = name != NULL ? elf_plan_add_name(plan, name, &entry->d_un.d_val) : -ENOMEM;

    free(name);
    return ret;
}

int elf_plan_origin(struct elf_plan *plan)
{
    int ret = 0;

    if (plan->origin == NULL)
        return 0;
    for (size_t i = 0; ret == 0 && i < plan->dynamic.count; i++)
        if (has_origin(plan->image, &plan->dynamic.entries[i]))
            ret = pin_name(plan, &plan->dynamic.entries[i]);
    return ret;
}
