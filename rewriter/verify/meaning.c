/* SPDX-License-Identifier: Apache-2.0
 *
 * meaning.c: checks that a patched file means the same as the original, except for the planned
 * changes.
 *
 * Looks at the new file only with the reader, not with the plan's intermediate results. No state,
 * any thread.
 */
#include "rewriter/elf/dynamic.h"
#include "rewriter/elf/names.h"
#include "rewriter/verify/meaning.h"
#include "rewriter/plan/imports.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int refuse_wrong(const struct elf_plan *plan, const char *what, uint64_t which,
                        struct gs_err *err)
{
    return gs_err_set(err, -EIO,
                      "%s: the new file's %s %llu is wrong; the old file is left unchanged. "
                      "Please report this",
                      plan->image->source.name, what, (unsigned long long)which);
}

static int is_same_load(const struct elf_plan *plan, size_t index, const Elf64_Phdr *old,
                        const Elf64_Phdr *new)
{
    Elf64_Phdr grown = *old;

    if (plan->slot.way == ELF_SLOT_PADDING && index == plan->slot.added) {
        grown.p_filesz = plan->tail.marker.offset + plan->tail.marker.size - old->p_offset;
        grown.p_memsz = grown.p_filesz;
    }
    return memcmp(&grown, new, sizeof grown) == 0;
}

/* Every PT_LOAD of the original is there, unchanged, in order; one more follows. */
static int check_loads(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    size_t j = 0;

    for (size_t i = 0; i < old->header.e_phnum; i++) {
        if (old->segments[i].p_type != PT_LOAD)
            continue;
        while (j < new->header.e_phnum &&new->segments[j].p_type != PT_LOAD)
            j++;
        if (j == new->header.e_phnum ||
            !is_same_load(plan, i, &old->segments[i], &new->segments[j]))
            return refuse_wrong(plan, "program header", j, err);
        j++;
    }
    while (j < new->header.e_phnum &&new->segments[j].p_type != PT_LOAD)
        j++;
    if (plan->slot.way == ELF_SLOT_PADDING)
        return j == new->header.e_phnum ? 0 : refuse_wrong(plan, "program header", j, err);
    if (j == new->header.e_phnum || new->segments[j].p_vaddr < old->highest)
        return refuse_wrong(plan, "program header", j, err);
    for (j++; j < new->header.e_phnum; j++)
        if (new->segments[j].p_type == PT_LOAD)
            return refuse_wrong(plan, "program header", j, err);
    return 0;
}

static int is_same_name(const struct elf_plan *plan, int64_t tag, const char *old,
                        const char *new)
{
    bool pinned = plan->origin != NULL && tag != DT_SONAME;
    char *wanted = pinned ? elf_origin_expand(old, plan->origin) : NULL;
    int same = pinned ? wanted != NULL && strcmp(wanted, new) == 0 : strcmp(old, new) == 0;

    free(wanted);
    return same;
}

static int is_same_entry(const struct elf_plan *plan, const Elf64_Dyn *a,
                         const struct elf_image *new, const Elf64_Dyn *b)
{
    const char *x, *y;

    if (a->d_tag != b->d_tag)
        return 0;
    if (!elf_dynamic_is_name(a->d_tag))
        return a->d_un.d_val == b->d_un.d_val || a->d_tag == DT_STRTAB ||
               a->d_tag == DT_STRSZ || a->d_tag == DT_HASH || a->d_tag == DT_GNU_HASH ||
               a->d_tag == DT_SYMTAB || a->d_tag == DT_VERSYM || a->d_tag == DT_VERNEED ||
               a->d_tag == DT_VERDEF || a->d_tag == DT_INIT;
    x = elf_image_string(plan->image, a->d_un.d_val);
    y = elf_image_string(new, b->d_un.d_val);
    return x == y || (x != NULL && y != NULL && is_same_name(plan, a->d_tag, x, y));
}

static int check_dynamic(const struct elf_plan *plan, const struct elf_image *new,
                         struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    const char *runtime = plan->names.bytes; /* the first name that was added */
    size_t j = 0;
    int inserted = 0;

    for (size_t i = 0; i < new->dynamic.count; i++) {
        const Elf64_Dyn *entry = &new->dynamic.entries[i];
        const char *name =
            entry->d_tag == DT_NEEDED ? elf_image_string(new, entry->d_un.d_val) : NULL;

        /* this one must be ours */
        if (!inserted && name != NULL && !elf_dynamic_stays_first(name)) {
            if (strcmp(name, runtime) != 0)
                return refuse_wrong(plan, "dynamic entry", i, err);
            inserted = 1;
            continue;
        }
        if (j < old->dynamic.count &&
            !is_same_entry(plan, &old->dynamic.entries[j], new, entry) &&
            elf_dynamic_may_go(old->dynamic.entries[j].d_tag))
            j++; /* replaced by the new entry */
        if (j >= old->dynamic.count ||
            !is_same_entry(plan, &old->dynamic.entries[j], new, entry))
            return refuse_wrong(plan, "dynamic entry", i, err);
        j++;
    }
    while (j < old->dynamic.count && elf_dynamic_may_go(old->dynamic.entries[j].d_tag))
        j++;
    return inserted && j == old->dynamic.count ? 0
                                               : refuse_wrong(plan, "dynamic entry", j, err);
}

/* Tables that moved have the same bytes in their new places. */
static int check_tables(const struct elf_plan *plan, const struct elf_image *new,
                        struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    const struct elf_table *const pairs[][2] = {{&old->tables.hash, &new->tables.hash},
                                                {&old->tables.gnu_hash, &new->tables.gnu_hash}};

    if (old->tables.symbol_count != new->tables.symbol_count ||
        new->tables.strings.size < old->tables.strings.size ||
        memcmp(old->tables.string_bytes, new->tables.string_bytes, old->tables.strings.size) !=
            0 ||
        (old->interpreter == NULL) != (new->interpreter == NULL) ||
        (old->interpreter != NULL && strcmp(old->interpreter, new->interpreter) != 0))
        return refuse_wrong(plan, "string table of size", new->tables.strings.size, err);
    for (size_t i = 0; i < 2; i++) {
        const struct elf_table *a = pairs[i][0], *b = pairs[i][1];
        void *x, *y;
        int same;

        if (a->address == 0 && b->address == 0)
            continue;
        x = elf_source_load(&old->source, a->offset, a->size, err);
        y = elf_source_load(&new->source, b->offset, b->size, err);
        same = x != NULL && y != NULL && a->size == b->size && memcmp(x, y, a->size) == 0;
        free(x);
        free(y);
        if (!same)
            return refuse_wrong(plan, "hash table", i, err);
    }
    return 0;
}

static const char *read_name(const struct elf_image *image, size_t index, Elf64_Sym *symbol)
{
    if (elf_source_read(&image->source, image->tables.symbols.offset + index * sizeof *symbol,
                        symbol, sizeof *symbol, NULL) != 0)
        return NULL;
    return elf_image_string(image, symbol->st_name);
}

/* The routed imports have their new names. copy.c shows that nothing else changed. */
static int check_imports(const struct elf_plan *plan, const struct elf_image *new,
                         struct gs_err *err)
{
    for (size_t i = 0; i < plan->facts->import_count; i++) {
        const struct elf_import *import = &plan->facts->imports[i];
        const char *old_name = elf_image_string(plan->image, import->name), *name;
        bool renamed = plan->slot.way != ELF_SLOT_PADDING;
        size_t prefix = import->keeps_name || !renamed ? 0 : strlen(ELF_WRAP_PREFIX);
        Elf64_Sym symbol;
        uint16_t version = VER_NDX_GLOBAL;

        name = read_name(new, import->index, &symbol);
        if (name == NULL || strncmp(name, ELF_WRAP_PREFIX, prefix) != 0 ||
            strcmp(name + prefix, old_name) != 0 || symbol.st_shndx != SHN_UNDEF)
            return refuse_wrong(plan, "symbol", import->index, err);
        if (renamed && new->tables.versions.address != 0 &&
            (elf_source_read(&new->source,
                             new->tables.versions.offset + 2 * (uint64_t)import->index,
                             &version, sizeof version, err) != 0 ||
             version != VER_NDX_GLOBAL))
            return refuse_wrong(plan, "version of symbol", import->index, err);
    }
    return 0;
}

/* Sections keep number, name and type; ours are there and lead to marker and note. */
static int check_sections(const struct elf_plan *plan, const struct elf_image *new,
                          struct gs_err *err)
{
    const struct elf_image *old = plan->image;
    size_t marker = elf_image_section(new, ELF_MARKER_SECTION);

    if (plan->slot.way == ELF_SLOT_PADDING) /* the very same headers */
        return new->section_count == old->section_count &&
                       (old->section_count == 0 ||
                        memcmp(old->sections, new->sections,
                               old->section_count * sizeof *old->sections) == 0)
                   ? 0
                   : refuse_wrong(plan, "section", 0, err);
    if (old->section_count == 0)
        return new->section_count == 0 ? 0 : refuse_wrong(plan, "section", 0, err);
    if (new->section_count <= old->section_count || marker == ELF_NO_SECTION ||
        new->sections[marker].sh_offset != plan->tail.marker.offset ||
        new->sections[marker].sh_size != plan->tail.marker.size)
        return refuse_wrong(plan, "section", marker, err);
    for (size_t i = 1; i < old->section_count; i++)
        if (old->sections[i].sh_type != new->sections[i].sh_type ||
            strcmp(elf_image_section_name(old, i), elf_image_section_name(new, i)) != 0)
            return refuse_wrong(plan, "section", i, err);
    return 0;
}

/* The undo note must give the original back. copy.c compared everything outside the changes;
 * this checks the changes. */
static int check_undo(const struct elf_plan *plan, const struct elf_source *source,
                      struct gs_err *err)
{
    struct elf_note note;
    int ret = 0;

    if (elf_note_find(&note, source) != ELF_NOTE_FOUND || note.lost.code != 0 || note.relaid ||
        note.head.original_size != plan->image->source.size ||
        strcmp(note.text, plan->marker) != 0)
        ret = refuse_wrong(plan, "undo note of size", plan->tail.undo_size, err);
    for (size_t i = 0; ret == 0 && i < note.undo_count; i++) {
        uint8_t *original = elf_source_load(&plan->image->source, note.undo[i].offset,
                                            note.undo[i].length, err);

        if (original == NULL || memcmp(original, note.undo[i].bytes, note.undo[i].length) != 0)
            ret = refuse_wrong(plan, "undo entry", i, err);
        free(original);
    }
    for (size_t i = 0; ret == 0 && i < plan->changes.count; i++) {
        const struct elf_change *change = &plan->changes.list[i];
        size_t j = 0;

        while (j < note.undo_count &&
               (change->offset < note.undo[j].offset ||
                change->offset + change->length > note.undo[j].offset + note.undo[j].length))
            j++;
        if (j == note.undo_count)
            ret = refuse_wrong(plan, "change without undo,", i, err);
    }
    elf_note_deinit(&note);
    return ret;
}

int elf_verify_meaning(const struct elf_plan *plan, const struct elf_image *new,
                       struct gs_err *err)
{
    int ret = check_loads(plan, new, err);

    ret = ret ?: check_dynamic(plan, new, err);
    ret = ret ?: check_tables(plan, new, err);
    ret = ret ?: check_imports(plan, new, err);
    ret = ret ?: check_sections(plan, new, err);
    return ret ?: check_undo(plan, &new->source, err);
}

int elf_verify_untouched(const struct elf_image *original, const struct elf_source *raw,
                         const char *runtime, const char *origin, struct gs_err *err)
{
    const struct elf_plan said = {
        .image = original, .origin = origin, .names.bytes = (char *)(uintptr_t)runtime};
    struct elf_image now;
    int ret = elf_image_read(&now, raw, err);

    if (ret != 0)
        return ret;
    if (check_dynamic(&said, &now, NULL) != 0 ||
        memcmp(original->tables.string_bytes, now.tables.string_bytes,
               original->tables.strings.size < now.tables.strings.size
                   ? original->tables.strings.size
                   : now.tables.strings.size) != 0)
        ret = gs_err_set(err, -ENOEXEC,
                         "%s: its dynamic section was edited after it was patched (chrpath, "
                         "patchelf?), and patching it again would undo that; restore it with "
                         "--restore (which drops the edit too), edit it, then patch it",
                         raw->name);
    elf_image_deinit(&now);
    return ret;
}
