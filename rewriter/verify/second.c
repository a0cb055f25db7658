/* SPDX-License-Identifier: Apache-2.0
 *
 * second.c: the second reader: libelf reads the new file, and its answers must agree with our own
 * reader and with the plan. This file has the ELF header, the program headers and the sections.
 *
 * Shares no line with the first reader. libelf reads only the parts that it is asked for
 * (ELF_C_READ, no mapping), and each table in its own short session of a few hundred KiB, so the
 * size of the file does not matter (session.c). No state, any thread.
 */
#include "rewriter/verify/kinds.h"
#include "rewriter/verify/second_parts.h"
#include "rewriter/verify/second.h"
#include "rewriter/verify/session.h"
#include "rewriter/verify/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char own[] = "gpushare-patch", planned[] = "the plan";

static int compare_both(const struct elf_second *second, const struct elf_kind *kind,
                        size_t index, const void *theirs, const void *ours, const void *plan,
                        struct gs_err *err)
{
    return elf_second_compare(second, kind, index, theirs, ours, own, err)
               ?: elf_second_compare(second, kind, index, theirs, plan, planned, err);
}

static int check_header(const struct elf_second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_plan *plan = second->plan;
    Elf64_Ehdr wanted = plan->image->header;
    GElf_Ehdr header;
    size_t segments, sections, names;

    if (gelf_getehdr(elf, &header) == NULL || elf_getphdrnum(elf, &segments) != 0 ||
        elf_getshdrnum(elf, &sections) != 0 || elf_getshdrstrndx(elf, &names) != 0)
        return elf_second_fail(second, "the ELF header", err);
    wanted.e_phnum = (Elf64_Half)plan->slot.count;
    if (plan->slot.way == ELF_SLOT_END)
        wanted.e_phoff = plan->tail.table.offset;
    if (plan->sections != NULL) {
        wanted.e_shoff = plan->tail.sections_at;
        wanted.e_shnum = (Elf64_Half)plan->section_count;
    }
    if (compare_both(second, &elf_kind_header, 0, &header, &second->new->header, &wanted, err))
        return -EIO;
    header.e_phnum = (Elf64_Half)segments; /* libelf's counts, not the stored counts */
    header.e_shnum = (Elf64_Half)sections;
    header.e_shstrndx = (Elf64_Half)names;
    return compare_both(second, &elf_kind_header, 0, &header, &second->new->header, &wanted,
                        err);
}

/* The program header that the plan wants. */
static Elf64_Phdr planned_segment(const struct elf_plan *plan, size_t index)
{
    Elf64_Phdr p;

    if (plan->slot.segments != NULL)
        return plan->slot.segments[index];
    p = plan->image->segments[index];
    if (index == plan->slot.added) /* ELF_SLOT_PADDING */
        p.p_filesz = p.p_memsz = plan->tail.marker.offset + plan->tail.marker.size - p.p_offset;
    return p;
}

static int check_segments(struct elf_second *second, Elf *elf, struct gs_err *err)
{
    size_t count = second->plan->slot.count;

    second->segments = calloc(count > 0 ? count : 1, sizeof *second->segments);
    if (second->segments == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", second->plan->image->source.name);
    second->segment_count = count;
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr *p = &second->segments[i];
        Elf64_Phdr wanted = planned_segment(second->plan, i);

        if (gelf_getphdr(elf, (int)i, p) == NULL)
            return elf_second_fail(second, "a program header", err);
        if (p->p_type == PT_LOAD && p->p_filesz == 0 && p->p_memsz == 0)
            p->p_type = PT_NULL; /* so does our reader */
        if (compare_both(second, &elf_kind_segment, i, p, &second->new->segments[i], &wanted,
                         err))
            return -EIO;
    }
    return 0;
}

static int check_sections(const struct elf_second *second, Elf *elf, struct gs_err *err)
{
    const struct elf_image *old = second->plan->image, *new = second->new;
    const struct elf_plan *plan = second->plan;
    const Elf64_Shdr *wanted = plan->sections != NULL ? plan->sections : old->sections;

    for (size_t i = 0; i < new->section_count; i++) {
        Elf_Scn *section = elf_getscn(elf, i);
        const char *theirs, *ours = elf_image_section_name(new, i);
        GElf_Shdr header;

        if (section == NULL || gelf_getshdr(section, &header) == NULL)
            return elf_second_fail(second, "a section header", err);
        if (compare_both(second, &elf_kind_section, i, &header, &new->sections[i], &wanted[i],
                         err))
            return -EIO;
        theirs = elf_strptr(elf, new->header.e_shstrndx, header.sh_name);
        if (theirs == NULL)
            return elf_second_fail(second, "the name of a section", err);
        if (strcmp(theirs, ours) != 0)
            return gs_err_set(
                err, -EIO,
                "%s: section %zu of the new file is %s according to libelf, but %s "
                "according to %s; the old file is left unchanged. Please report this",
                old->source.name, i, theirs, ours, own);
    }
    return 0;
}

int elf_verify_second(const struct elf_plan *plan, const struct elf_image *new, int fd,
                      struct gs_err *err)
{
    struct elf_second second = {.plan = plan, .new = new, .fd = fd};
    Elf *elf = elf_second_begin(&second, err);
    int ret;

    if (elf == NULL)
        return -EIO;
    ret = check_header(&second, elf, err);
    ret = ret ?: check_segments(&second, elf, err);
    ret = ret ?: check_sections(&second, elf, err);
    elf_end(elf);
    ret = ret ?: elf_second_tables(&second, err);
    free(second.segments);
    return ret;
}
