/* SPDX-License-Identifier: Apache-2.0
 *
 * imports.c: the names that a patched file needs, the symbols that get them, and $ORIGIN in names.
 *
 * A routed import S gets the name __wrap_S and the version index 1 (global, unversioned). It
 * keeps its place, since undefined symbols are in no GNU hash table. There are exceptions: an
 * import with an address (a canonical PLT entry of non-PIE code) is in the table, and mold puts
 * others there. In a program such imports keep their names and are routed by interposition
 * instead: libgpushare, the first DT_NEEDED, exports S as well. In a library they are renamed
 * nevertheless, since no search of the table finds an undefined symbol. No state, any thread.
 */
#include "rewriter/plan/imports.h"
#include "rewriter/elf/names.h"
#include "rewriter/plan/block.h"
#include "rewriter/elf/dynamic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Appends prefix + text and returns its offset in the new string table. */
static uint64_t append_name(struct elf_plan *plan, const char *prefix, const char *text)
{
    uint64_t offset = plan->image->tables.strings.size + plan->names.size;

    memcpy(plan->names.bytes + plan->names.size, prefix, strlen(prefix));
    plan->names.size += strlen(prefix);
    memcpy(plan->names.bytes + plan->names.size, text, strlen(text) + 1);
    plan->names.size += strlen(text) + 1;
    return offset;
}

int elf_plan_names(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    const uint16_t global = VER_NDX_GLOBAL;
    size_t length = strlen(runtime) + 1;

    for (size_t i = 0; i < plan->facts->import_count; i++)
        length += strlen(ELF_WRAP_PREFIX) +
                  strlen(elf_image_string(image, plan->facts->imports[i].name)) + 1;
    plan->names.bytes = calloc(1, length);
    if (plan->names.bytes == NULL)
        return -ENOMEM;
    plan->names.needed = append_name(plan, "", runtime);
    for (size_t i = 0; i < plan->facts->import_count; i++) {
        const struct elf_import *import = &plan->facts->imports[i];
        uint64_t symbol = image->tables.symbols.offset + import->index * sizeof(Elf64_Sym);
        uint32_t name;
        int ret = 0;

        if (image->tables.versions.address != 0)
            ret = elf_plan_change(plan,
                                  image->tables.versions.offset + import->index * sizeof global,
                                  &global, sizeof global);
        if (ret == 0 && !import->keeps_name) {
            name = (uint32_t)append_name(plan, ELF_WRAP_PREFIX,
                                         elf_image_string(image, import->name));
            ret = elf_plan_change(plan, symbol + offsetof(Elf64_Sym, st_name), &name,
                                  sizeof name);
        }
        if (ret != 0)
            return ret;
    }
    if (image->tables.strings.size + plan->names.size > UINT32_MAX)
        return elf_refuse(image->source.name, err, "its string table is full");
    return 0;
}

/* Replaces $ORIGIN in the names of the dynamic section by the program's old folder, for a
 * copy of a program in another folder, which must still find its libraries. */

/* The first $ORIGIN of a name by glibc's rules (elf/dl-load.c, is_dst), and its length; or
 * NULL. */
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

/* Adds the entry's new name behind those of elf_plan_names(). 0 or -ENOMEM. */
static int pin_name(struct elf_plan *plan, Elf64_Dyn *entry)
{
    char *name =
        elf_origin_expand(elf_image_string(plan->image, entry->d_un.d_val), plan->origin);
    char *bytes =
        name != NULL ? realloc(plan->names.bytes, plan->names.size + strlen(name) + 1) : NULL;

    if (bytes != NULL) {
        plan->names.bytes = bytes;
        entry->d_un.d_val = append_name(plan, "", name);
    }
    free(name);
    return bytes != NULL ? 0 : -ENOMEM;
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
