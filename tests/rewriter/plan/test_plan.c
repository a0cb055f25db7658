/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: images made here byte by byte: how they are read, and the plans for them.
 */
#include "tests/rewriter/small_library.h"

#include "rewriter/elf/facts.h"
#include "rewriter/elf/note.h"
#include "rewriter/plan/plan.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h wants the four above */
static const struct elf_wish wish = {.runtime = "/r/libgpushare.so.1", .marker = "tool=test\n"};

/* Plans for s; the caller deinits all three. */
static void plan_small(const struct small *s, struct elf_image *image, struct elf_facts *facts,
                       struct elf_plan *plan)
{
    struct gs_err err;

    assert_int_equal(small_read(s, image, &err), 0);
    assert_int_equal(elf_facts_read(facts, image, true, &err), 0);
    if (elf_plan_make(plan, image, facts, &wish, &err) != 0)
        fail_msg("%s", err.text);
}

static void deinit_all(struct elf_image *image, struct elf_facts *facts, struct elf_plan *plan)
{
    elf_plan_deinit(plan);
    elf_facts_deinit(facts);
    elf_image_deinit(image);
}

/* As mold makes it: an undefined symbol in DT_GNU_HASH. */
static void import_in_the_hash_table_keeps_its_name_in_a_program(void **state)
{
    static const uint32_t hash[] = {1, 1, 0, 0, 1, 1}; /* one bucket, one symbol, no filter */
    static const char loader[] = "/lib64/ld-linux-x86-64.so.2";
    struct small s = small_make(3);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    s.dynamic[5].d_tag = DT_GNU_HASH;
    memcpy(s.hash, hash, sizeof hash);
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(facts.import_count, 1);
    assert_false(facts.imports[0].keeps_name);
    assert_non_null(memmem(plan.names.bytes, plan.names.size, "__wrap_dlsym", 13));
    deinit_all(&image, &facts, &plan);

    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_FLAGS};
    memcpy(s.behind, loader, sizeof loader);
    s.segments[1].p_type = PT_INTERP;
    s.segments[1].p_filesz = sizeof loader;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(facts.import_count, 1);
    assert_true(facts.imports[0].keeps_name);
    assert_null(memmem(plan.names.bytes, plan.names.size, "__wrap_dlsym", 13));
    deinit_all(&image, &facts, &plan);
}

static void plan_prefers_what_moves_least(void **state)
{
    struct small s = small_make(3);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.dynamic.way, ELF_DYNAMIC_SPARE);
    assert_int_equal(plan.slot.way, ELF_SLOT_GROW);
    assert_int_equal(plan.dynamic.entries[0].d_tag, DT_NEEDED);
    assert_int_equal(plan.dynamic.entries[0].d_un.d_val, sizeof s.strings);
    assert_true(plan.tail.segment.address >= image.highest);
    assert_int_equal((plan.tail.segment.address - plan.tail.segment.offset) % 0x1000, 0);
    deinit_all(&image, &facts, &plan);

    s = small_make(3), s.segments[1].p_type = PT_NULL;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot.way, ELF_SLOT_NULL);
    assert_int_equal(plan.slot.count, 3);
    assert_int_equal(plan.slot.segments[1].p_type, PT_LOAD);
    deinit_all(&image, &facts, &plan);

    s = small_make(3), s.segments[1] = (Elf64_Phdr){.p_type = PT_LOPROC,
                                                    .p_offset = offsetof(struct small, behind),
                                                    .p_filesz = 8};
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot.way, ELF_SLOT_END);
    assert_int_equal(plan.tail.segment.address - plan.tail.segment.offset, 0);
    deinit_all(&image, &facts, &plan);

    s = small_make(3), s.behind[sizeof(Elf64_Nhdr)] = 'X'; /* a note of somebody unknown */
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot.way, ELF_SLOT_END);
    deinit_all(&image, &facts, &plan);

    s = small_make(3), s.segments[1] = (Elf64_Phdr){.p_type = PT_GNU_STACK};
    plan_small(&s, &image, &facts, &plan); /* something that nothing describes */
    assert_int_equal(plan.slot.way, ELF_SLOT_END);
    deinit_all(&image, &facts, &plan);

    memset(s.behind, 0, sizeof s.behind); /* or zeros that may be constants */
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot.way, ELF_SLOT_END);
    deinit_all(&image, &facts, &plan);
}

static void refuse_small_plan(const struct small *s, const char *why)
{
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;
    struct gs_err err;

    assert_int_equal(small_read(s, &image, &err), 0);
    assert_int_equal(elf_facts_read(&facts, &image, true, &err), 0);
    assert_int_equal(elf_plan_make(&plan, &image, &facts, &wish, &err), -ENOEXEC);
    if (strstr(err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    deinit_all(&image, &facts, &plan);
}

/* What is given up for the new entry where there is none to spare; and that nothing else is. */
static void plan_gives_up_what_is_not_needed(void **state)
{
    static const struct {
        int64_t tag;
        enum elf_dynamic_way way;
    } cases[] = {{DT_RELACOUNT, ELF_DYNAMIC_COUNT}, {DT_VERNEEDNUM, ELF_DYNAMIC_VERSIONS}};
    struct small s = small_make(1);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s.dynamic[0] = (Elf64_Dyn){.d_tag = cases[i].tag, .d_un.d_val = 0};
        plan_small(&s, &image, &facts, &plan);
        assert_int_equal(plan.dynamic.way, cases[i].way);
        assert_int_equal(plan.dynamic.count, 7);
        for (size_t j = 0; j < plan.dynamic.count; j++)
            assert_int_not_equal(plan.dynamic.entries[j].d_tag, cases[i].tag);
        deinit_all(&image, &facts, &plan);
    }
    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_DEBUG}; /* debuggers need it */
    refuse_small_plan(&s, "no free entry");
    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_BIND_NOW}; /* no flag says the same */
    refuse_small_plan(&s, "no free entry");
}

/* Carries a plan out in memory, reads the result, finds the note, and undoes it. */
static void plan_carried_out_can_be_undone(void **state)
{
    struct small s = small_make(3);
    struct elf_image image, again;
    struct elf_facts facts;
    struct elf_plan plan;
    struct elf_note note;
    struct gs_err err = {0};
    struct elf_source source = {.name = "new", .fd = -1};
    uint8_t *bytes, back[sizeof s];

    (void)state;
    plan_small(&s, &image, &facts, &plan);
    bytes = calloc(1, plan.tail.end);
    assert_non_null(bytes);
    memcpy(bytes, &s, sizeof s);
    elf_changes_apply(plan.changes.list, plan.changes.count, 0, bytes, plan.tail.end);
    memcpy(bytes + plan.tail.segment.offset, plan.tail.bytes,
           plan.tail.end - plan.tail.segment.offset);
    source.memory = bytes;
    source.size = plan.tail.end;
    assert_int_equal(elf_image_read(&again, &source, &err), 0);
    assert_string_equal(elf_image_string(&again, again.dynamic.entries[0].d_un.d_val),
                        "/r/libgpushare.so.1");
    assert_int_equal(elf_note_find(&note, &source), ELF_NOTE_FOUND);
    assert_int_equal(note.lost.code, 0);
    assert_string_equal(note.text, "tool=test\n");
    source.size = note.head.original_size;
    source.undo = note.undo;
    source.undo_count = note.undo_count;
    assert_int_equal(note.head.original_size, sizeof s);
    assert_int_equal(elf_source_read(&source, 0, back, sizeof back, NULL), 0);
    assert_memory_equal(back, &s, sizeof s);

    /* a note whose range leaves the file is lost, not followed */
    elf_note_deinit(&note);
    source =
        (struct elf_source){.name = "new", .fd = -1, .memory = bytes, .size = plan.tail.end};
    memset(bytes + plan.tail.undo_at + sizeof(struct elf_undo_head) +
               note.head.copies * sizeof(struct elf_undo_copy),
           0xff, 8);
    assert_int_equal(elf_note_find(&note, &source), ELF_NOTE_FOUND);
    assert_int_equal(note.lost.code, -ENOEXEC);
    assert_null(note.undo);
    elf_image_deinit(&again);
    deinit_all(&image, &facts, &plan);
    free(bytes);
}

static void plan_keeps_an_appended_payload(void **state)
{
    struct {
        struct small s;
        char payload[100];
    } file = {.s = small_make(3), .payload = "archive"};
    struct elf_source source = {
        .name = "file", .fd = -1, .memory = (const uint8_t *)&file, .size = sizeof file};
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(elf_image_read(&image, &source, &err), 0);
    assert_int_equal(elf_facts_read(&facts, &image, true, &err), 0);
    assert_int_equal(elf_plan_make(&plan, &image, &facts, &wish, &err), -ENOEXEC);
    assert_non_null(strstr(err.text, "appended to the program"));
    elf_facts_deinit(&facts);
    elf_image_deinit(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(import_in_the_hash_table_keeps_its_name_in_a_program),
        cmocka_unit_test(plan_prefers_what_moves_least),
        cmocka_unit_test(plan_gives_up_what_is_not_needed),
        cmocka_unit_test(plan_carried_out_can_be_undone),
        cmocka_unit_test(plan_keeps_an_appended_payload),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
