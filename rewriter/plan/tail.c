/* SPDX-License-Identifier: Apache-2.0
 *
 * tail.c: the bytes behind the original's end, and the ELF header that leads to them.
 *
 * The new segment is laid out in the middle of planning, when the sizes of its parts are known.
 * Its bytes are made in the last step: every other change is known, so the undo note can be made
 * from them. No state, any thread; what is allocated belongs to the plan.
 */
#include "rewriter/plan/tail.h"
#include "rewriter/plan/block.h"
#include "rewriter/plan/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Changes the section headers and static symbols of the parts that move, and adds the
 * header of our own section.
 *
 * Programs do not need section headers, but strip, debuggers and linters do. Sections keep
 * their numbers; the new one comes last. */

#define CHUNK        256   /* symbols read at a time; the stack may be small */
#define OUR_SECTIONS 2     /* .gpushare.strings, .gpushare */
#define MAX_MENDED   65536 /* symbols; more means that we misunderstand the file */

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

    gs_each (p, image->segments, image->header.e_phnum) {
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

        if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL)
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
        return elf_refuse(image->source.name, err,
                          "its section names cannot be extended (e_shnum %zu, e_shstrndx %u)",
                          image->section_count, image->header.e_shstrndx);
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

/* Address space left free below the new segment. Nothing needs it but eu-elflint, which takes
 * the sizes of functions for sizes of their GOT entries and sees relocations "modify" a
 * read-only segment that follows closely. */
#define GAP (1ull << 20)
/* The longest hole, in bytes, that moving the program headers to the end may leave. */
#define MAX_HOLE (64ull << 20)

/* The names that are appended to the section names; the code above relies on their order. */
static const char our_names[] = ELF_OLD_STRINGS "\0" ELF_MARKER_SECTION;

static uint64_t align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

static struct elf_extent place_part(const struct elf_extent *segment, uint64_t *cursor,
                                    uint64_t align, uint64_t size)
{
    struct elf_extent extent;

    *cursor = align_up(*cursor, align);
    extent.offset = *cursor;
    extent.address = segment->address + (*cursor - segment->offset);
    extent.size = size;
    *cursor += size;
    return extent;
}

/* Decides where the new segment starts. If it contains the program header table, old kernels
 * must find that, too; they compute its address as load address + e_phoff. So the segment's
 * address minus its offset must be that of the first segment. */
static int place_segment(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    struct elf_extent *segment = &plan->tail.segment;
    uint64_t page = image->page, top = align_up(image->highest, page);
    uint64_t end = align_up(image->source.size, 64);

    segment->offset = end;
    segment->address = top + GAP + end % page;
    if (plan->slot.way == ELF_SLOT_END) {
        const Elf64_Phdr *first = image->segments;
        uint64_t base;

        while (first->p_type != PT_LOAD)
            first++;
        base = first->p_vaddr - first->p_offset;
        segment->offset = align_up(end, page);
        if (segment->offset + base < top)
            segment->offset = top - base;
        segment->address = segment->offset + base;
        if (first->p_vaddr < first->p_offset || segment->offset - image->source.size > MAX_HOLE)
            return elf_refuse(image->source.name, err,
                              "no room for a program header; relink it with gpushare-cc");
    }
    return 0;
}

int elf_plan_lay_out(struct elf_plan *plan, struct gs_err *err)
{
    struct elf_plan_tail *tail = &plan->tail;
    uint64_t cursor, text = align_up(strlen(plan->marker) + 1, 8);
    int ret = place_segment(plan, err);

    if (ret != 0)
        return ret;
    cursor = tail->segment.offset;
    if (plan->slot.way == ELF_SLOT_END)
        tail->table =
            place_part(&tail->segment, &cursor, 8, plan->slot.count * sizeof(Elf64_Phdr));
    if (plan->block.size > 0) {
        cursor =
            align_up(cursor, 64) + plan->block.offset % 64; /* keeps every alignment up to 64 */
        tail->block = place_part(&tail->segment, &cursor, 1, plan->block.size);
    }
    tail->strings = place_part(&tail->segment, &cursor, 16,
                               plan->image->tables.strings.size + plan->names.size);
    /* the undo note and the trailer follow, and end the segment */
    tail->marker = place_part(&tail->segment, &cursor, 8, text);
    tail->undo_at = cursor;
    return 0;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct elf_change *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The ranges of all changes, ascending, each byte once, with room for one more; `bytes` are not
 * set. */
static struct elf_change *join_ranges(const struct elf_plan *plan, size_t *count)
{
    struct elf_change *ranges = calloc(plan->changes.count + 2, sizeof *ranges);

    *count = 0;
    if (ranges == NULL)
        return NULL;
    for (size_t i = 0; i < plan->changes.count; i++)
        ranges[i] = (struct elf_change){.offset = plan->changes.list[i].offset,
                                        .length = plan->changes.list[i].length};
    qsort(ranges, plan->changes.count, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < plan->changes.count; i++) {
        struct elf_change *last = *count > 0 ? &ranges[*count - 1] : NULL;
        uint64_t end = ranges[i].offset + ranges[i].length;

        if (last != NULL && ranges[i].offset <= last->offset + last->length) {
            if (end > last->offset + last->length)
                last->length = (uint32_t)(end - last->offset);
        } else {
            ranges[(*count)++] = ranges[i];
        }
    }
    return ranges;
}

/* Fills the undo note, except for the list of changes and the checksums. */
static void fill_head(const struct elf_plan *plan, struct elf_undo_head *head,
                      struct elf_undo_copy copies[ELF_COPIES_MAX])
{
    const struct elf_image *image = plan->image;

    *head = (struct elf_undo_head){.original_size = image->source.size,
                                   .patched_size = plan->tail.end,
                                   .image_end = image->image_end};
    if (plan->slot.way == ELF_SLOT_PADDING)
        return;
    copies[head->copies++] =
        (struct elf_undo_copy){.offset = image->tables.strings.offset,
                               .address = image->tables.strings.address,
                               .at = plan->tail.strings.offset - plan->tail.segment.offset,
                               .length = image->tables.strings.size};
    if (plan->block.size > 0)
        copies[head->copies++] =
            (struct elf_undo_copy){.offset = plan->block.offset,
                                   .address = plan->block.address,
                                   .at = plan->tail.block.address - plan->tail.segment.address,
                                   .length = plan->block.size};
}

uint8_t *elf_plan_undo(struct elf_plan *plan, const struct elf_change *zeros,
                       struct gs_err *err)
{
    struct elf_undo_copy copies[ELF_COPIES_MAX];
    struct elf_undo_head head;
    size_t count, total = 0, at = 0;
    struct elf_change *ranges = join_ranges(plan, &count);
    uint8_t *original = NULL, *undo = NULL;

    if (ranges == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        total += ranges[i].length;
    original = malloc(total > 0 ? total : 1);
    if (original == NULL)
        goto out;
    for (size_t i = 0; i < count; i++) {
        if (elf_source_read(&plan->image->source, ranges[i].offset, original + at,
                            ranges[i].length, err) != 0)
            goto out;
        ranges[i].bytes = original + at;
        at += ranges[i].length;
    }
    if (zeros != NULL)
        ranges[count++] = *zeros;
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    fill_head(plan, &head, copies);
    undo = elf_undo_encode(&head, copies, ranges, count, &plan->tail.undo_size);
out:
    free(original);
    free(ranges);
    return undo;
}

/* Undo note and trailer end the segment; section names and headers follow. */
static void lay_out_rest(struct elf_plan *plan)
{
    struct elf_plan_tail *tail = &plan->tail;

    tail->marker.size = tail->undo_at + tail->undo_size + sizeof(struct elf_marker_trailer) -
                        tail->marker.offset;
    tail->end = tail->marker.offset + tail->marker.size;
    tail->segment.size = tail->end - tail->segment.offset;
    if (plan->sections == NULL)
        return;
    tail->names_at = tail->end;
    tail->names_size = plan->image->section_names_size + sizeof our_names;
    tail->sections_at = align_up(tail->names_at + tail->names_size, 8);
    tail->end = tail->sections_at + plan->section_count * sizeof(Elf64_Shdr);
    plan->sections[plan->image->header.e_shstrndx].sh_offset = tail->names_at;
    plan->sections[plan->image->header.e_shstrndx].sh_size = tail->names_size;
    plan->sections[plan->section_count - 1].sh_size = tail->marker.size;
}

/* The last two changes: the program headers, unless they are part of the tail, and the ELF
 * header. */
static int change_headers(struct elf_plan *plan)
{
    Elf64_Ehdr header = plan->image->header;

    header.e_phnum = (uint16_t)plan->slot.count;
    if (plan->slot.way == ELF_SLOT_END)
        header.e_phoff = plan->tail.table.offset;
    if (plan->sections != NULL) {
        header.e_shoff = plan->tail.sections_at;
        header.e_shnum = (uint16_t)plan->section_count;
    }
    return elf_plan_slot_finish(plan) ?: elf_plan_change(plan, 0, &header, sizeof header);
}

static uint8_t *tail_at(const struct elf_plan_tail *tail, uint64_t offset)
{
    return tail->bytes + (offset - tail->segment.offset);
}

static int fill_tail(struct elf_plan *plan, const uint8_t *undo, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    const struct elf_table *strings = &image->tables.strings;
    struct elf_plan_tail *tail = &plan->tail;
    const struct elf_marker_trailer trailer = {.magic = ELF_MARKER_MAGIC,
                                               .text_size = tail->undo_at - tail->marker.offset,
                                               .undo_offset = tail->undo_at,
                                               .undo_size = tail->undo_size};

    tail->bytes = calloc(1, (size_t)(tail->end - tail->segment.offset));
    if (tail->bytes == NULL)
        return -ENOMEM;
    if (plan->slot.way == ELF_SLOT_END)
        memcpy(tail_at(tail, tail->table.offset), plan->slot.segments, tail->table.size);
    if (plan->block.size > 0) {
        uint8_t *block = tail_at(tail, tail->block.offset);
        int ret =
            elf_source_read(&image->source, plan->block.offset, block, plan->block.size, err);

        if (ret != 0)
            return ret;
        /* all changes but the last two, the program headers and the ELF header */
        elf_changes_apply(plan->changes.list, plan->changes.count - 2, plan->block.offset,
                          block, plan->block.size);
    }
    memcpy(tail_at(tail, tail->strings.offset), image->tables.string_bytes, strings->size);
    memcpy(tail_at(tail, tail->strings.offset + strings->size), plan->names.bytes,
           plan->names.size);
    memcpy(tail_at(tail, tail->marker.offset), plan->marker, strlen(plan->marker));
    memcpy(tail_at(tail, tail->undo_at), undo, tail->undo_size);
    memcpy(tail_at(tail, tail->undo_at + tail->undo_size), &trailer, sizeof trailer);
    if (plan->sections == NULL)
        return 0;
    memcpy(tail_at(tail, tail->names_at), image->section_names, image->section_names_size);
    memcpy(tail_at(tail, tail->names_at + image->section_names_size), our_names,
           sizeof our_names);
    memcpy(tail_at(tail, tail->sections_at), plan->sections,
           plan->section_count * sizeof(Elf64_Shdr));
    return 0;
}

int elf_plan_tail(struct elf_plan *plan, struct gs_err *err)
{
    size_t count = plan->changes.count;
    /* for the ranges in the undo note; their bytes are not final */
    int ret = change_headers(plan);
    uint8_t *undo;

    if (ret != 0)
        return ret;
    undo = elf_plan_undo(plan, NULL, err);
    if (undo == NULL)
        return -ENOMEM;
    free(undo);
    lay_out_rest(plan);
    while (plan->changes.count > count)
        free((void *)(uintptr_t)plan->changes.list[--plan->changes.count].bytes);
    ret = change_headers(plan);
    undo = ret == 0 ? elf_plan_undo(plan, NULL, err) : NULL;
    if (undo == NULL)
        return -ENOMEM;
    ret = fill_tail(plan, undo, err);
    free(undo);
    return ret;
}
