/* SPDX-License-Identifier: Apache-2.0
 *
 * sections.c: changes the section headers and static symbols of the parts that move, and adds the
 * header of our own section.
 *
 * Programs do not need section headers, but strip, debuggers and linters do. Sections keep their
 * numbers; the new one comes last. No state, any thread.
 */
#include "rewriter/plan/block.h"
#include "rewriter/plan/sections.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK        256   /* symbols read at a time; the stack may be small */
#define OUR_SECTIONS 2     /* .gpushare.strings, .gpushare */
#define MAX_MENDED   65536 /* symbols; more means that we misunderstand the file */

static bool is_loaded(const Elf64_Shdr *s)
{
    return (s->sh_flags & SHF_ALLOC) && s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL;
}

static void move_to(Elf64_Shdr *s, const struct elf_plan *plan, uint64_t address)
{
    s->sh_addr = address;
    s->sh_offset = address - plan->tail.segment.address + plan->tail.segment.offset;
}

/* strip writes each segment anew from its sections; a segment that has no sections left is
 * damaged. So a segment that holds little but the strings (patchelf makes such) keeps a
 * section in their place. The segment of the ELF header needs none. */
static void keep_strings(struct elf_plan *plan, const Elf64_Shdr *strings, size_t *next)
{
    const struct elf_image *image = plan->image;

    for (size_t i = 0; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type != PT_LOAD || p->p_offset == 0 || strings->sh_addr < p->p_vaddr ||
            strings->sh_addr - p->p_vaddr >= p->p_filesz)
            continue;
        plan->sections[*next] = *strings;
        plan->sections[*next].sh_name =
            (uint32_t)image->section_names_size; /* our first name, see tail.c */
        plan->sections[*next].sh_type = SHT_PROGBITS;
        ++*next;
        return;
    }
}

/* The new headers of all old sections. */
static void move_sections(struct elf_plan *plan, size_t *next)
{
    const struct elf_image *image = plan->image;
    bool kept = false;

    for (size_t i = 1; i < image->section_count; i++) {
        Elf64_Shdr *s = &plan->sections[i];

        if (!is_loaded(s))
            continue;
        if (s->sh_type == SHT_STRTAB && s->sh_addr == image->tables.strings.address) {
            if (!kept) /* a damaged file may have several */
                keep_strings(plan, s, next);
            kept = true;
            move_to(s, plan, plan->tail.strings.address);
            s->sh_size = plan->tail.strings.size;
        } else if (s->sh_size > 0 && elf_plan_moved(plan, s->sh_addr) != s->sh_addr) {
            move_to(s, plan, elf_plan_moved(plan, s->sh_addr));
        }
    }
}

/* Gives a symbol in a section that moves its new address. */
static int mend_symbol(struct elf_plan *plan, uint64_t offset, const Elf64_Sym *symbol,
                       size_t *mended)
{
    const struct elf_image *image = plan->image;
    uint16_t section = symbol->st_shndx;
    uint64_t was, now, value;

    if (section == SHN_UNDEF || section >= image->section_count ||
        ELF64_ST_TYPE(symbol->st_info) == STT_TLS)
        return 0;
    was = image->sections[section].sh_addr;
    now = plan->sections[section].sh_addr;
    if (was == now)
        return 0;
    if (++*mended > MAX_MENDED)
        return -ENOEXEC;
    value = symbol->st_value - was + now;
    return elf_plan_change(plan, offset + offsetof(Elf64_Sym, st_value), &value, sizeof value);
}

static int mend_table(struct elf_plan *plan, const Elf64_Shdr *table, size_t *mended,
                      struct gs_err *err)
{
    Elf64_Sym chunk[CHUNK];
    uint64_t end = table->sh_size / sizeof chunk[0] * sizeof chunk[0];

    for (uint64_t at = 0; at < end;) {
        size_t n = end - at < sizeof chunk ? (size_t)(end - at) / sizeof chunk[0] : CHUNK;
        int ret = elf_source_read(&plan->image->source, table->sh_offset + at, chunk,
                                  n * sizeof chunk[0], err);

        for (size_t i = 0; ret == 0 && i < n; i++)
            ret = mend_symbol(plan, table->sh_offset + at + i * sizeof chunk[0], &chunk[i],
                              mended);
        if (ret != 0)
            return ret;
        at += n * sizeof chunk[0];
    }
    return 0;
}

static int mend_symbols(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    size_t mended = 0;
    int ret = 0;

    for (size_t i = 1; ret == 0 && i < image->section_count; i++)
        if (image->sections[i].sh_type == SHT_SYMTAB ||
            image->sections[i].sh_type == SHT_DYNSYM)
            ret = mend_table(plan, &image->sections[i], &mended, err);
    if (ret == -ENOEXEC)
        gs_err_set(err, ret, "%s: too many symbols in the sections that would move",
                   image->source.name);
    return ret;
}

int elf_plan_sections(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    size_t next = image->section_count;

    if (image->section_count == 0)
        return 0;
    if (image->section_count + OUR_SECTIONS >= SHN_LORESERVE ||
        (image->sections[image->header.e_shstrndx].sh_flags & SHF_ALLOC))
        return gs_err_set(
            err, -ENOEXEC,
            "%s: its section names cannot be extended (e_shnum %zu, e_shstrndx %u)",
            image->source.name, image->section_count, image->header.e_shstrndx);
    plan->sections = calloc(image->section_count + OUR_SECTIONS, sizeof *plan->sections);
    if (plan->sections == NULL)
        return -ENOMEM;
    memcpy(plan->sections, image->sections, image->section_count * sizeof *plan->sections);
    move_sections(plan, &next);
    plan->sections[next++] = (Elf64_Shdr){
        .sh_name = (uint32_t)(image->section_names_size + sizeof ELF_OLD_STRINGS),
        .sh_type = SHT_PROGBITS,
        .sh_flags = SHF_ALLOC,
        .sh_addr = plan->tail.marker.address,
        .sh_offset = plan->tail.marker.offset,
        .sh_addralign = 8,
    };
    plan->section_count = next; /* its size is set in tail.c */
    return mend_symbols(plan, err);
}
