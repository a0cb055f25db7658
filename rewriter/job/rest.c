/* SPDX-License-Identifier: Apache-2.0
 *
 * rest.c: section headers and names without those of gpushare-patch's sections, for a file that
 * was laid out anew.
 *
 * Owns the tables of struct elf_rest. Section contents that are not loaded follow the loaded part
 * in their present order. No state, any thread.
 */
#include "rewriter/job/rest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DROPPED UINT32_MAX

static int refuse_section(const struct elf_rest *rest, size_t section, const char *why,
                          struct gs_err *err)
{
    return gs_err_set(err, -ENOEXEC,
                      "%s: cannot be restored: section %zu (%s) %s; install the file again "
                      "from its package or build it again",
                      rest->now->source.name, section,
                      elf_image_section_name(rest->now, section), why);
}

static bool in_segment(const struct elf_rest *rest, const Elf64_Shdr *s)
{
    const Elf64_Phdr *p = &rest->note->segment;

    return (s->sh_flags & SHF_ALLOC) && s->sh_addr >= p->p_vaddr &&
           s->sh_addr - p->p_vaddr < p->p_filesz;
}

/* Numbers the sections that stay: all except the marker's, and the section that keeps the place
 * of the strings. */
static int number_sections(struct elf_rest *rest, struct gs_err *err)
{
    const struct elf_image *now = rest->now;
    size_t marker = elf_image_section(now, ELF_MARKER_SECTION);
    size_t old_strings = elf_image_section(now, ELF_OLD_STRINGS);

    if (marker == ELF_NO_SECTION)
        return refuse_section(rest, 0, "table lacks gpushare-patch's section", err);
    rest->map = calloc(now->section_count, sizeof *rest->map);
    rest->from = calloc(now->section_count, sizeof *rest->from);
    rest->sections = calloc(now->section_count, sizeof *rest->sections);
    if (rest->map == NULL || rest->from == NULL || rest->sections == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", now->source.name);
    for (size_t i = 0; i < now->section_count; i++) {
        rest->map[i] = DROPPED;
        if (i != 0 && (i == marker || i == old_strings))
            continue;
        rest->map[i] = (uint32_t)rest->count;
        rest->from[rest->count] = (uint32_t)i;
        rest->sections[rest->count++] = now->sections[i];
    }
    return 0;
}

/* Corrects sections that refer to others by number. */
static int mend_numbers(struct elf_rest *rest, struct gs_err *err)
{
    for (size_t i = 1; i < rest->count; i++) {
        Elf64_Shdr *s = &rest->sections[i];
        bool info = (s->sh_flags & SHF_INFO_LINK) || s->sh_type == SHT_RELA;

        if (s->sh_type == SHT_SYMTAB_SHNDX || s->sh_type == SHT_GROUP)
            return refuse_section(rest, rest->from[i], "contains section numbers", err);
        if (s->sh_link >= rest->now->section_count || rest->map[s->sh_link] == DROPPED ||
            (info &&
             (s->sh_info >= rest->now->section_count || rest->map[s->sh_info] == DROPPED)))
            return refuse_section(rest, rest->from[i],
                                  "refers to a section that does not exist", err);
        s->sh_link = rest->map[s->sh_link];
        if (info)
            s->sh_info = rest->map[s->sh_info];
    }
    return 0;
}

/* Moves the contents of our segment back. */
static int move_back(struct elf_rest *rest, struct gs_err *err)
{
    const struct elf_note *note = rest->note;

    for (size_t i = 1; i < rest->count; i++) {
        Elf64_Shdr *s = &rest->sections[i];
        uint32_t copy = 0;
        uint64_t at;

        if (!in_segment(rest, s))
            continue;
        at = s->sh_addr - note->segment.p_vaddr;
        while (copy < note->head.copies &&
               (at < note->copies[copy].at ||
                at - note->copies[copy].at >= note->copies[copy].length))
            copy++;
        if (copy == note->head.copies)
            return refuse_section(rest, rest->from[i], "lies in what the patch added", err);
        at -= note->copies[copy].at;
        s->sh_addr = note->copies[copy].address + at;
        s->sh_offset = note->copies[copy].offset + at;
        if (copy == 0 && at == 0 && s->sh_type == SHT_STRTAB)
            s->sh_size = note->copies[0].length;
    }
    return 0;
}

static bool is_behind(const struct elf_rest *rest, const Elf64_Shdr *s)
{
    return !(s->sh_flags & SHF_ALLOC) && s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL &&
           (s->sh_offset > rest->note->head.image_end ||
            s->sh_size > rest->note->head.image_end - s->sh_offset);
}

struct content {
    uint64_t was; /* offset in the file as it is */
    size_t index;
};

static int compare_offsets(const void *a, const void *b)
{
    const struct content *x = a, *y = b;

    if (x->was != y->was)
        return x->was < y->was ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t section_alignment(const Elf64_Shdr *s)
{
    uint64_t align = s->sh_addralign;

    return align > 1 && align <= 4096 && (align & (align - 1)) == 0 ? align : 1;
}

static int place_sections(struct elf_rest *rest, struct gs_err *err)
{
    size_t names = rest->map[rest->now->header.e_shstrndx], count = 0;
    struct content *list = calloc(rest->count + 1, sizeof *list);
    uint64_t cursor = rest->note->head.image_end;

    if (list == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", rest->now->source.name);
    for (size_t i = 1; i < rest->count; i++)
        if (is_behind(rest, &rest->sections[i]))
            list[count++] = (struct content){rest->now->sections[rest->from[i]].sh_offset, i};
    qsort(list, count, sizeof *list, compare_offsets);
    for (size_t i = 0; i < count; i++) {
        Elf64_Shdr *s = &rest->sections[list[i].index];

        cursor = (cursor + section_alignment(s) - 1) & ~(section_alignment(s) - 1);
        s->sh_offset = cursor;
        if (list[i].index == names)
            s->sh_size = rest->names_size;
        cursor += s->sh_size;
    }
    free(list);
    rest->end = cursor;
    return 0;
}

/* Cuts one of our names out of the table, except for an ending that others share. */
static void cut_name(struct elf_rest *rest, const char *name)
{
    size_t length = strlen(name) + 1, at = 0, end;

    while (at + length <= rest->names_size && (memcmp(rest->names + at, name, length) != 0 ||
                                               (at > 0 && rest->names[at - 1] != '\0')))
        at++;
    if (at + length > rest->names_size)
        return;
    end = at + length;
    for (size_t i = 0; i < rest->count; i++)
        if (rest->sections[i].sh_name >= at && rest->sections[i].sh_name < end)
            end = rest->sections[i].sh_name;
    memmove(rest->names + at, rest->names + end, rest->names_size - end);
    rest->names_size -= end - at;
    for (size_t i = 0; i < rest->count; i++)
        if (rest->sections[i].sh_name >= end)
            rest->sections[i].sh_name -= (uint32_t)(end - at);
}

int elf_rest_plan(struct elf_rest *rest, const struct elf_image *now,
                  const struct elf_note *note, struct gs_err *err)
{
    int ret;

    *rest = (struct elf_rest){.now = now, .note = note};
    rest->names_size = now->section_names_size;
    rest->names = malloc(rest->names_size);
    if (rest->names == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", now->source.name);
    memcpy(rest->names, now->section_names, rest->names_size);
    ret = number_sections(rest, err);
    ret = ret ?: mend_numbers(rest, err);
    ret = ret ?: move_back(rest, err);
    if (ret != 0)
        return ret;
    cut_name(rest, ELF_OLD_STRINGS);
    cut_name(rest, ELF_MARKER_SECTION);
    return place_sections(rest, err);
}

void elf_rest_deinit(struct elf_rest *rest)
{
    free(rest->sections);
    free(rest->map);
    free(rest->from);
    free(rest->names);
    *rest = (struct elf_rest){0};
}
