/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: runs the planning steps in order, and lays out the new segment between them.
 *
 * Owns everything in struct elf_plan but image and facts. Nothing is read from or written to
 * the file system but through the image's source. No state, any thread.
 */
#include "rewriter/plan/plan.h"
#include "rewriter/elf/grow.h"
#include "rewriter/plan/plan_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Address space left free below the new segment. Nothing needs it but eu-elflint, which takes
 * the sizes of functions for sizes of their GOT entries and sees relocations "modify" a
 * read-only segment that follows closely. */
#define GAP (1ull << 20)
/* The longest hole, in bytes, that moving the program headers to the end may leave. */
#define MAX_HOLE (64ull << 20)

static uint64_t align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

static struct elf_extent place_part(const struct elf_plan *plan, uint64_t *cursor,
                                    uint64_t align, uint64_t size)
{
    struct elf_extent extent;

    *cursor = align_up(*cursor, align);
    extent.offset = *cursor;
    extent.address = plan->segment.address + (*cursor - plan->segment.offset);
    extent.size = size;
    *cursor += size;
    return extent;
}

/* Where the new segment starts. A program header table in it must be found by old kernels, too,
 * which compute its address as load address + e_phoff: so the segment's address minus its
 * offset must be that of the first segment. */
static int place_segment(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    uint64_t page = image->page, top = align_up(image->highest, page);
    uint64_t end = align_up(image->source.size, 64);

    plan->segment.offset = end;
    plan->segment.address = top + GAP + end % page;
    if (plan->slot_way == ELF_SLOT_END) {
        const Elf64_Phdr *first = image->segments;
        uint64_t base;

        while (first->p_type != PT_LOAD)
            first++;
        base = first->p_vaddr - first->p_offset;
        plan->segment.offset = align_up(end, page);
        if (plan->segment.offset + base < top)
            plan->segment.offset = top - base;
        plan->segment.address = plan->segment.offset + base;
        if (first->p_vaddr < first->p_offset ||
            plan->segment.offset - image->source.size > MAX_HOLE)
            return gs_err_set(err, -ENOEXEC,
                              "%s: no room for a program header; relink it with gpushare-cc",
                              image->source.name);
    }
    return 0;
}

static int lay_out_segment(struct elf_plan *plan, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    struct elf_extent block;
    uint64_t cursor, text = align_up(strlen(plan->marker) + 1, 8);
    int ret = place_segment(plan, err);

    if (ret != 0)
        return ret;
    cursor = plan->segment.offset;
    if (plan->slot_way == ELF_SLOT_END)
        plan->table = place_part(plan, &cursor, 8, plan->segment_count * sizeof(Elf64_Phdr));
    if (plan->block.size > 0) {
        cursor =
            align_up(cursor, 64) + plan->block.offset % 64; /* keeps every alignment up to 64 */
        block = place_part(plan, &cursor, 1, plan->block.size);
        plan->block_new = block.address;
    }
    plan->strings = place_part(plan, &cursor, 16, image->strings.size + plan->added_size);
    /* the undo note and the trailer follow, and end the segment (tail.c) */
    plan->marker_at = place_part(plan, &cursor, 8, text);
    plan->undo_at = cursor;
    return 0;
}

/* Everything new goes behind the end of the file. */
static int plan_growth(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    int ret = elf_plan_names(plan, runtime, err);

    ret = ret ?: elf_plan_needed(plan, err);
    ret = ret ?: elf_plan_origin(plan);
    ret = ret ?: elf_plan_slot(plan);
    ret = ret ?: lay_out_segment(plan, err);
    ret = ret ?: elf_plan_init(plan);
    ret = ret ?: elf_plan_sections(plan, err);
    ret = ret ?: elf_plan_needed_finish(plan);
    return ret ?: elf_plan_tail(plan, err);
}

int elf_plan_make(struct elf_plan *plan, const struct elf_image *image,
                  const struct elf_facts *facts, const struct elf_wish *wish,
                  struct gs_err *err)
{
    int ret;

    memset(plan, 0, sizeof *plan);
    plan->image = image;
    plan->facts = facts;
    plan->origin = wish->origin;
    if (strlen(wish->marker) >= sizeof plan->marker)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path of the runtime library is too long",
                          image->source.name);
    memcpy(plan->marker, wish->marker, strlen(wish->marker) + 1);
    if (elf_image_has_payload(image))
        ret = elf_plan_padding(plan, wish->runtime, err);
    else
        ret = plan_growth(plan, wish->runtime, err);
    if (ret != 0) {
        gs_err_set(err, ret, "%s: no memory",
                   image->source.name); /* if nothing else was said */
        elf_plan_deinit(plan);
    }
    return ret;
}

void elf_plan_deinit(struct elf_plan *plan)
{
    for (size_t i = 0; i < plan->change_count; i++)
        free((void *)(uintptr_t)plan->changes[i].bytes);
    free(plan->changes);
    free(plan->added);
    free(plan->dynamic);
    free(plan->segments);
    free(plan->sections);
    free(plan->tail);
    memset(plan, 0, sizeof *plan);
}

const char *elf_dynamic_way_text(enum elf_dynamic_way way)
{
    static const char *const text[] = {
        [ELF_DYNAMIC_SPARE] = "spare entry",
        [ELF_DYNAMIC_COUNT] = "in place of DT_RELACOUNT",
        [ELF_DYNAMIC_NOW] = "in place of DT_BIND_NOW",
        [ELF_DYNAMIC_VERSIONS] = "in place of DT_VERNEEDNUM",
    };

    return text[way];
}

const char *elf_slot_way_text(enum elf_slot_way way)
{
    static const char *const text[] = {
        [ELF_SLOT_NULL] = "spare PT_NULL",
        [ELF_SLOT_PROPERTY] = "in place of the PT_NOTE that duplicates PT_GNU_PROPERTY",
        [ELF_SLOT_GROW] = "table grows in place",
        [ELF_SLOT_NOTE] = "in place of the PT_GNU_PROPERTY that a PT_NOTE duplicates",
        [ELF_SLOT_PADDING] = "none: the file does not grow, the name is stored in padding",
        [ELF_SLOT_END] = "table moves to the end of the file (strip would break the file)",
    };

    return text[way];
}
