/* SPDX-License-Identifier: Apache-2.0
 *
 * tail.c: the bytes behind the original's end, and the ELF header that leads to them.
 *
 * Last step of planning: every other change is known, so the undo note can be made from them.
 * No state, any thread; what is allocated belongs to the plan.
 */
#include "rewriter/plan/plan.h"
#include "rewriter/plan/changes.h"
#include "rewriter/plan/plan_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The names that are appended to the section names; sections.c counts on the order. */
static const char our_names[] = ELF_OLD_STRINGS "\0" ELF_MARKER_SECTION;

static int compare_ranges(const void *a, const void *b)
{
    const struct elf_change *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The ranges of all changes, ascending, each byte once; `bytes` are not set. */
static struct elf_change *join_ranges(const struct elf_plan *plan, size_t *count)
{
    struct elf_change *ranges = calloc(plan->change_count + 1, sizeof *ranges);

    *count = 0;
    if (ranges == NULL)
        return NULL;
    for (size_t i = 0; i < plan->change_count; i++)
        ranges[i] = (struct elf_change){.offset = plan->changes[i].offset,
                                        .length = plan->changes[i].length};
    qsort(ranges, plan->change_count, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < plan->change_count; i++) {
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

void elf_plan_undo_head(const struct elf_plan *plan, struct elf_undo_head *head,
                        struct elf_undo_copy copies[ELF_COPIES_MAX])
{
    const struct elf_image *image = plan->image;

    *head = (struct elf_undo_head){.original_size = image->source.size,
                                   .patched_size = plan->end,
                                   .image_end = image->image_end};
    if (plan->slot_way == ELF_SLOT_PADDING)
        return;
    copies[head->copies++] =
        (struct elf_undo_copy){.offset = image->strings.offset,
                               .address = image->strings.address,
                               .at = plan->strings.offset - plan->segment.offset,
                               .length = image->strings.size};
    if (plan->block.size > 0)
        copies[head->copies++] =
            (struct elf_undo_copy){.offset = plan->block.offset,
                                   .address = plan->block.address,
                                   .at = plan->block_new - plan->segment.address,
                                   .length = plan->block.size};
}

/* The end of the file, which the note says, is known from the second time on. */
static uint8_t *encode_undo(struct elf_plan *plan, struct gs_err *err)
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
    elf_plan_undo_head(plan, &head, copies);
    undo = elf_undo_encode(&head, copies, ranges, count, &plan->undo_size);
out:
    free(original);
    free(ranges);
    return undo;
}

static uint64_t align_to_8(uint64_t value)
{
    return (value + 7) & ~7ull;
}

/* Undo note and trailer end the segment; section names and headers follow. */
static void lay_out_rest(struct elf_plan *plan)
{
    plan->marker_at.size = plan->undo_at + plan->undo_size + sizeof(struct elf_marker_trailer) -
                           plan->marker_at.offset;
    plan->end = plan->marker_at.offset + plan->marker_at.size;
    plan->segment.size = plan->end - plan->segment.offset;
    if (plan->sections == NULL)
        return;
    plan->names_at = plan->end;
    plan->names_size = plan->image->section_names_size + sizeof our_names;
    plan->sections_at = align_to_8(plan->names_at + plan->names_size);
    plan->end = plan->sections_at + plan->section_count * sizeof(Elf64_Shdr);
}

static void finish_sections(struct elf_plan *plan)
{
    Elf64_Shdr *names = &plan->sections[plan->image->header.e_shstrndx];

    names->sh_offset = plan->names_at;
    names->sh_size = plan->names_size;
    plan->sections[plan->section_count - 1].sh_size = plan->marker_at.size;
}

static int change_header(struct elf_plan *plan)
{
    Elf64_Ehdr header = plan->image->header;

    header.e_phnum = (uint16_t)plan->segment_count;
    if (plan->slot_way == ELF_SLOT_END)
        header.e_phoff = plan->table.offset;
    if (plan->sections != NULL) {
        header.e_shoff = plan->sections_at;
        header.e_shnum = (uint16_t)plan->section_count;
    }
    return elf_plan_change(plan, 0, &header, sizeof header);
}

static uint8_t *tail_at(struct elf_plan *plan, uint64_t offset)
{
    return plan->tail + (offset - plan->segment.offset);
}

static void fill_marker(struct elf_plan *plan)
{
    struct elf_marker_trailer trailer = {.magic = ELF_MARKER_MAGIC,
                                         .text_size = plan->undo_at - plan->marker_at.offset,
                                         .undo_offset = plan->undo_at,
                                         .undo_size = plan->undo_size};

    memcpy(tail_at(plan, plan->marker_at.offset), plan->marker, strlen(plan->marker));
    memcpy(tail_at(plan, plan->undo_at + plan->undo_size), &trailer, sizeof trailer);
}

static int fill_tail(struct elf_plan *plan, const uint8_t *undo, struct gs_err *err)
{
    const struct elf_image *image = plan->image;

    plan->tail = calloc(1, (size_t)(plan->end - plan->segment.offset));
    if (plan->tail == NULL)
        return -ENOMEM;
    if (plan->slot_way == ELF_SLOT_END)
        memcpy(tail_at(plan, plan->table.offset), plan->segments, plan->table.size);
    if (plan->block.size > 0) {
        uint8_t *block =
            tail_at(plan, plan->block_new - plan->segment.address + plan->segment.offset);
        int ret =
            elf_source_read(&image->source, plan->block.offset, block, plan->block.size, err);

        if (ret != 0)
            return ret;
        /* all but the program headers, which are the last two changes: header and table */
        elf_changes_apply(plan->changes, plan->change_count - 2, plan->block.offset, block,
                          plan->block.size);
    }
    memcpy(tail_at(plan, plan->strings.offset), image->string_bytes, image->strings.size);
    memcpy(tail_at(plan, plan->strings.offset + image->strings.size), plan->added,
           plan->added_size);
    fill_marker(plan);
    memcpy(tail_at(plan, plan->undo_at), undo, plan->undo_size);
    if (plan->sections == NULL)
        return 0;
    memcpy(tail_at(plan, plan->names_at), image->section_names, image->section_names_size);
    memcpy(tail_at(plan, plan->names_at + image->section_names_size), our_names,
           sizeof our_names);
    memcpy(tail_at(plan, plan->sections_at), plan->sections,
           plan->section_count * sizeof(Elf64_Shdr));
    return 0;
}

/* The last two changes: the program headers, unless they are part of the tail, and the ELF
 * header. */
static int change_headers(struct elf_plan *plan)
{
    return elf_plan_slot_finish(plan) ?: change_header(plan);
}

static void drop_changes(struct elf_plan *plan, size_t count)
{
    while (plan->change_count > count)
        free((void *)(uintptr_t)plan->changes[--plan->change_count].bytes);
}

int elf_plan_tail(struct elf_plan *plan, struct gs_err *err)
{
    size_t count = plan->change_count;
    /* for the ranges that the undo note lists; their bytes are not final */
    int ret = change_headers(plan);
    uint8_t *undo;

    if (ret != 0)
        return ret;
    undo = encode_undo(plan, err);
    if (undo == NULL)
        return -ENOMEM;
    free(undo);
    lay_out_rest(plan);
    if (plan->sections != NULL)
        finish_sections(plan);
    drop_changes(plan, count);
    ret = change_headers(plan);
    undo = ret == 0 ? encode_undo(plan, err) : NULL;
    if (undo == NULL)
        return -ENOMEM;
    ret = fill_tail(plan, undo, err);
    free(undo);
    return ret;
}
