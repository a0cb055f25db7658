/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_reader.c: libFuzzer target: any bytes are read, planned for, patched in memory, read
 * again and undone.
 *
 * Beyond crashes it checks that a plan which was made is a good one: the result is read without
 * error and undoes to the very bytes it came from.
 */
#include "rewriter/elf/note.h"
#include "rewriter/plan/plan.h"
#include "rewriter/job/relaid.h"
#include "rewriter/elf/reader.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_true(int condition)
{
    if (!condition)
        abort();
}

static void check_undo(const struct elf_source *new, const struct elf_source *old)
{
    struct elf_note note;
    struct elf_source back = *new;
    uint8_t *bytes = malloc(old->size);

    require_true(bytes != NULL && elf_note_find(&note, new) == ELF_NOTE_FOUND &&
                 note.lost.code == 0 && !note.relaid);
    back.size = note.head.original_size;
    back.undo = note.undo;
    back.undo_count = note.undo_count;
    require_true(note.head.original_size == old->size &&
                 elf_source_read(&back, 0, bytes, old->size, NULL) == 0);
    require_true(memcmp(bytes, old->memory, old->size) == 0);
    free(bytes);
    elf_note_deinit(&note);
}

static void carry_out(const struct elf_plan *plan, const struct elf_source *old)
{
    struct elf_source new = {.name = "new", .fd = -1, .size = plan->tail.end};
    struct elf_image image;
    uint8_t *bytes;

    if (plan->tail.end > (16u << 20)) /* a hole for a large bss */
        return;
    bytes = calloc(1, plan->tail.end);
    require_true(bytes != NULL);
    memcpy(bytes, old->memory, old->size);
    elf_changes_apply(plan->changes.list, plan->changes.count, 0, bytes, plan->tail.end);
    memcpy(bytes + plan->tail.segment.offset, plan->tail.bytes,
           plan->tail.end - plan->tail.segment.offset);
    new.memory = bytes;
    check_undo(&new, old);
    if (elf_image_read(&image, &new, NULL) ==
        0) /* overlapping tables may not survive; act.c refuses then */
        elf_image_deinit(&image);
    free(bytes);
}

/* A file that was laid out anew: its section table without ours stays inside its bounds. */
static void plan_rest(const struct elf_note *note, const struct elf_source *source)
{
    struct elf_image now;
    struct elf_rest rest;

    if (elf_image_read(&now, source, NULL) != 0)
        return;
    if (now.section_count > 0) {
        if (elf_rest_plan(&rest, &now, note, NULL) == 0)
            for (size_t i = 1; i < rest.count; i++)
                require_true(rest.from[i] < now.section_count &&
                             rest.sections[i].sh_link < now.section_count);
        elf_rest_deinit(&rest);
    }
    elf_image_deinit(&now);
}

static void read_undone(struct elf_note *note, const struct elf_source *source)
{
    const struct elf_source original = elf_note_undone(note, source);
    struct elf_image image;

    if (note->lost.code == 0 && !note->relaid && elf_image_read(&image, &original, NULL) == 0)
        elf_image_deinit(&image);
    if (note->lost.code == 0)
        plan_rest(note, source);
    elf_note_deinit(note);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct elf_source source = {.name = "fuzz", .fd = -1, .memory = data, .size = size};
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;
    struct elf_note note;

    if (size == 0)
        return 0;
    if (elf_note_find(&note, &source) == ELF_NOTE_FOUND) {
        read_undone(&note, &source); /* never planned for as if it were an original */
        return 0;
    }
    if (elf_image_read(&image, &source, NULL) != 0)
        return 0;
    if (elf_facts_read(&facts, &image, true, NULL) == 0) {
        const struct elf_wish wish = {
            .runtime = "/r/libgpushare.so.1",
            .marker = "tool=fuzz\n",
            .origin = size % 2 == 1 && elf_origin_is_used(&image) ? "/some/folder" : NULL};

        if (elf_plan_make(&plan, &image, &facts, &wish, NULL) == 0) {
            carry_out(&plan, &source);
            elf_plan_deinit(&plan);
        }
        elf_facts_deinit(&facts);
    }
    elf_image_deinit(&image);
    return 0;
}
