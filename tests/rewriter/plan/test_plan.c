/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: images made here byte by byte: how they are read, and the plans for them.
 */
#include "rewriter/elf/names.h"
#include "rewriter/elf/note.h"
#include "rewriter/plan/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h wants the four above */
#include <cmocka.h>
/* A small library made by hand: header, 3 segments (room for a fourth unless tight), notes,
 * tables, dynamic section. */
struct small {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    uint8_t behind[64]; /* where a fourth would go: a note or something */
    Elf64_Sym symbols[3];
    uint32_t hash[2 + 1 + 3];
    char strings[32];
    Elf64_Dyn dynamic[9];
};

static struct small make_small(size_t spare)
{
    static const Elf64_Nhdr note = {.n_namesz = 4, .n_descsz = 48, .n_type = 1};
    struct small s = {.strings = "\0libx.so\0dlsym\0cuInit"};
    size_t n = 0;

    memcpy(s.header.e_ident, ELFMAG, SELFMAG);
    s.header.e_ident[EI_CLASS] = ELFCLASS64;
    s.header.e_ident[EI_DATA] = ELFDATA2LSB;
    s.header.e_ident[EI_VERSION] = EV_CURRENT;
    s.header.e_type = ET_DYN;
    s.header.e_machine = EM_X86_64;
    s.header.e_version = EV_CURRENT;
    s.header.e_phoff = offsetof(struct small, segments);
    s.header.e_ehsize = sizeof(Elf64_Ehdr);
    s.header.e_phentsize = sizeof(Elf64_Phdr);
    s.header.e_phnum = 3;
    s.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                                 .p_flags = PF_R | PF_W,
                                 .p_filesz = sizeof s,
                                 .p_memsz = sizeof s,
                                 .p_align = 0x1000};
    memcpy(s.behind, &note, sizeof note);
    memcpy(s.behind + sizeof note, "GNU", 4);
    s.segments[1] = (Elf64_Phdr){.p_type = PT_NOTE,
                                 .p_offset = offsetof(struct small, behind),
                                 .p_vaddr = offsetof(struct small, behind),
                                 .p_filesz = sizeof s.behind,
                                 .p_align = 4};
    s.symbols[1] = (Elf64_Sym){.st_name = 9, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    s.symbols[2] = (Elf64_Sym){.st_name = 15, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
    s.hash[0] = 1;
    s.hash[1] = 3;
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_SONAME, .d_un.d_val = 1};
    s.dynamic[n++] =
        (Elf64_Dyn){.d_tag = DT_STRTAB, .d_un.d_ptr = offsetof(struct small, strings)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_STRSZ, .d_un.d_val = sizeof s.strings};
    s.dynamic[n++] =
        (Elf64_Dyn){.d_tag = DT_SYMTAB, .d_un.d_ptr = offsetof(struct small, symbols)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_SYMENT, .d_un.d_val = sizeof(Elf64_Sym)};
    s.dynamic[n++] = (Elf64_Dyn){.d_tag = DT_HASH, .d_un.d_ptr = offsetof(struct small, hash)};
    n += spare;
    s.segments[2] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                 .p_flags = PF_R | PF_W,
                                 .p_offset = offsetof(struct small, dynamic),
                                 .p_vaddr = offsetof(struct small, dynamic),
                                 .p_filesz = n * sizeof(Elf64_Dyn),
                                 .p_memsz = n * sizeof(Elf64_Dyn),
                                 .p_align = 8};
    return s;
}

static int read_small(const struct small *s, struct elf_image *image, struct gs_err *err)
{
    struct elf_source source = {
        .name = "small", .fd = -1, .memory = (const uint8_t *)s, .size = sizeof *s};

    memset(err, 0, sizeof *err);
    return elf_image_read(image, &source, err);
}

static void refuse(const struct small *s, const char *why)
{
    struct elf_image image;
    struct gs_err err;

    assert_int_equal(read_small(s, &image, &err), -ENOEXEC);
    if (strstr(err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

static void image_of_a_small_library_is_read(void **state)
{
    struct small s = make_small(3);
    struct elf_image image;
    struct elf_facts facts;
    struct gs_err err;

    (void)state;
    assert_int_equal(read_small(&s, &image, &err), 0);
    assert_int_equal(image.symbol_count, 3);
    assert_int_equal(image.dynamic_count, 6);
    assert_int_equal(image.dynamic_room, 9);
    assert_string_equal(image.soname, "libx.so");
    assert_int_equal(image.hash.size, sizeof s.hash);
    assert_int_equal(elf_facts_read(&facts, &image, true, &err), 0);
    assert_int_equal(facts.import_count, elf_name_is_wrapped("cuInit") ? 2 : 1);
    assert_string_equal(facts.driver_import, "cuInit");
    elf_facts_deinit(&facts);
    elf_image_deinit(&image);
}

static void image_fields_outside_are_named(void **state)
{
    struct small s;

    (void)state;
    s = make_small(3), s.header.e_phnum = 60000, refuse(&s, "e_phnum is 60000");
    s = make_small(3), s.header.e_phoff = 1ull << 60, refuse(&s, "outside the file");
    s = make_small(3), s.header.e_phoff = UINT64_MAX - 7, refuse(&s, "outside the file");
    s = make_small(3), s.header.e_shoff = 64, s.header.e_shnum = 9, s.header.e_shentsize = 64,
    refuse(&s, "e_shstrndx 0");
    s = make_small(3), s.segments[0].p_filesz = sizeof s + 1, refuse(&s, "segment 0");
    s = make_small(3), s.segments[0].p_memsz = 1, refuse(&s, "memsz 0x1");
    s = make_small(3), s.segments[0].p_align = 3, refuse(&s, "p_align 0x3");
    s = make_small(3), s.segments[1] = s.segments[0],
    refuse(&s, "below the end of the one before it");
    s = make_small(3), s.segments[1] = s.segments[2], refuse(&s, "2 PT_DYNAMIC");
    s = make_small(3), s.segments[2].p_type = PT_NULL, refuse(&s, "statically linked");
    s = make_small(3), s.segments[2].p_vaddr += 8, refuse(&s, "address of PT_DYNAMIC");
    s = make_small(3), s.dynamic[1].d_tag = DT_DEBUG, refuse(&s, "no DT_STRTAB");
    s = make_small(3), s.dynamic[2].d_un.d_val = 1ull << 40, refuse(&s, "DT_STRSZ");
    s = make_small(3), s.dynamic[2].d_un.d_val = 5, refuse(&s, "not a NUL byte");
    s = make_small(3), s.dynamic[0].d_un.d_val = 4000, refuse(&s, "a name in PT_DYNAMIC");
    s = make_small(3), s.dynamic[3].d_un.d_ptr = sizeof s - 8, refuse(&s, "DT_SYMTAB");
    s = make_small(3), s.dynamic[4].d_un.d_val = 16, refuse(&s, "DT_SYMENT");
    s = make_small(3), s.hash[1] = 1u << 31, refuse(&s, "DT_HASH");
    s = make_small(3), s.hash[0] = UINT32_MAX, refuse(&s, "DT_HASH");
    s = make_small(3), s.dynamic[5].d_tag = DT_GNU_HASH, s.hash[2] = 1u << 30,
    refuse(&s, "DT_GNU_HASH");
}

static struct small with_versions(int64_t tag, const void *entry, size_t size, const void *hung,
                                  size_t hung_size)
{
    struct small s = make_small(3);

    s.segments[1].p_type = PT_NULL;
    memcpy(s.behind, entry, size);
    memcpy(s.behind + size, hung, hung_size);
    s.dynamic[6] = (Elf64_Dyn){.d_tag = tag, .d_un.d_ptr = offsetof(struct small, behind)};
    return s;
}

static void image_versions_that_lead_out_are_refused(void **state)
{
    const Elf64_Verneed needs = {.vn_version = 1, .vn_cnt = 1, .vn_aux = sizeof needs};
    const Elf64_Vernaux name = {.vna_name = 1};
    const Elf64_Verdef defines = {.vd_version = 1, .vd_cnt = 1, .vd_aux = sizeof defines};
    const Elf64_Verdaux own = {.vda_name = 1};
    struct elf_image image;
    struct gs_err err;

    (void)state;
    for (int i = 0; i < 9; i++) {
        Elf64_Verneed need = needs;
        Elf64_Vernaux aux = name;
        Elf64_Verdef def = defines;
        Elf64_Verdaux def_aux = own;
        uint32_t *const fields[] = {&need.vn_file, &need.vn_aux,     &need.vn_next,
                                    &aux.vna_name, &aux.vna_next,    &def.vd_aux,
                                    &def.vd_next,  &def_aux.vda_name};
        struct small s;

        if (i < 8)
            *fields[i] = 0x7fffffff;
        s = with_versions(DT_VERNEED, &need, sizeof need, &aux, sizeof aux);
        if (i < 5)
            refuse(&s, "DT_VERNEED");
        else
            assert_int_equal(read_small(&s, &image, &err), 0), elf_image_deinit(&image);
        s = with_versions(DT_VERDEF, &def, sizeof def, &def_aux, sizeof def_aux);
        if (i >= 5 && i < 8)
            refuse(&s, "DT_VERDEF");
        else
            assert_int_equal(read_small(&s, &image, &err), 0), elf_image_deinit(&image);
    }
}

static const struct elf_wish wish = {.runtime = "/r/libgpushare.so.1", .marker = "tool=test\n"};

/* Plans for s; the caller deinits all three. */
static void plan_small(const struct small *s, struct elf_image *image, struct elf_facts *facts,
                       struct elf_plan *plan)
{
    struct gs_err err;

    assert_int_equal(read_small(s, image, &err), 0);
    assert_int_equal(elf_facts_read(facts, image, true, &err), 0);
    if (elf_plan_make(plan, image, facts, &wish, &err) != 0)
        fail_msg("%s", err.text);
}

static void deinit(struct elf_image *image, struct elf_facts *facts, struct elf_plan *plan)
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
    struct small s = make_small(3);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    s.dynamic[5].d_tag = DT_GNU_HASH;
    memcpy(s.hash, hash, sizeof hash);
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(facts.import_count, 1);
    assert_false(facts.imports[0].keeps_name);
    assert_non_null(memmem(plan.added, plan.added_size, "__wrap_dlsym", 13));
    deinit(&image, &facts, &plan);

    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_FLAGS};
    memcpy(s.behind, loader, sizeof loader);
    s.segments[1].p_type = PT_INTERP;
    s.segments[1].p_filesz = sizeof loader;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(facts.import_count, 1);
    assert_true(facts.imports[0].keeps_name);
    assert_null(memmem(plan.added, plan.added_size, "__wrap_dlsym", 13));
    deinit(&image, &facts, &plan);
}

static void plan_prefers_what_moves_least(void **state)
{
    struct small s = make_small(3);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.dynamic_way, ELF_DYNAMIC_SPARE);
    assert_int_equal(plan.slot_way, ELF_SLOT_GROW);
    assert_int_equal(plan.dynamic[0].d_tag, DT_NEEDED);
    assert_int_equal(plan.dynamic[0].d_un.d_val, sizeof s.strings);
    assert_true(plan.segment.address >= image.highest);
    assert_int_equal((plan.segment.address - plan.segment.offset) % 0x1000, 0);
    deinit(&image, &facts, &plan);

    s = make_small(3), s.segments[1].p_type = PT_NULL;
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot_way, ELF_SLOT_NULL);
    assert_int_equal(plan.segment_count, 3);
    assert_int_equal(plan.segments[1].p_type, PT_LOAD);
    deinit(&image, &facts, &plan);

    s = make_small(3), s.segments[1] = (Elf64_Phdr){.p_type = PT_LOPROC,
                                                    .p_offset = offsetof(struct small, behind),
                                                    .p_filesz = 8};
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot_way, ELF_SLOT_END);
    assert_int_equal(plan.segment.address - plan.segment.offset, 0);
    deinit(&image, &facts, &plan);

    s = make_small(3), s.behind[sizeof(Elf64_Nhdr)] = 'X'; /* a note of somebody unknown */
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot_way, ELF_SLOT_END);
    deinit(&image, &facts, &plan);

    s = make_small(3), s.segments[1] = (Elf64_Phdr){.p_type = PT_GNU_STACK};
    plan_small(&s, &image, &facts, &plan); /* something that nothing describes */
    assert_int_equal(plan.slot_way, ELF_SLOT_END);
    deinit(&image, &facts, &plan);

    memset(s.behind, 0, sizeof s.behind); /* or zeros that may be constants */
    plan_small(&s, &image, &facts, &plan);
    assert_int_equal(plan.slot_way, ELF_SLOT_END);
    deinit(&image, &facts, &plan);
}

static void refuse_small_plan(const struct small *s, const char *why)
{
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;
    struct gs_err err;

    assert_int_equal(read_small(s, &image, &err), 0);
    assert_int_equal(elf_facts_read(&facts, &image, true, &err), 0);
    assert_int_equal(elf_plan_make(&plan, &image, &facts, &wish, &err), -ENOEXEC);
    if (strstr(err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    deinit(&image, &facts, &plan);
}

/* What is given up for the new entry where there is none to spare; and that nothing else is. */
static void plan_gives_up_what_is_not_needed(void **state)
{
    static const struct {
        int64_t tag;
        enum elf_dynamic_way way;
    } cases[] = {{DT_RELACOUNT, ELF_DYNAMIC_COUNT}, {DT_VERNEEDNUM, ELF_DYNAMIC_VERSIONS}};
    struct small s = make_small(1);
    struct elf_image image;
    struct elf_facts facts;
    struct elf_plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        s.dynamic[0] = (Elf64_Dyn){.d_tag = cases[i].tag, .d_un.d_val = 0};
        plan_small(&s, &image, &facts, &plan);
        assert_int_equal(plan.dynamic_way, cases[i].way);
        assert_int_equal(plan.dynamic_count, 7);
        for (size_t j = 0; j < plan.dynamic_count; j++)
            assert_int_not_equal(plan.dynamic[j].d_tag, cases[i].tag);
        deinit(&image, &facts, &plan);
    }
    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_DEBUG}; /* debuggers need it */
    refuse_small_plan(&s, "no free entry");
    s.dynamic[0] = (Elf64_Dyn){.d_tag = DT_BIND_NOW}; /* no flag says the same */
    refuse_small_plan(&s, "no free entry");
}

/* Carries a plan out in memory, reads the result, finds the note, and undoes it. */
static void plan_carried_out_can_be_undone(void **state)
{
    struct small s = make_small(3);
    struct elf_image image, again;
    struct elf_facts facts;
    struct elf_plan plan;
    struct elf_note note;
    struct gs_err err = {0};
    struct elf_source source = {.name = "new", .fd = -1};
    uint8_t *bytes, back[sizeof s];

    (void)state;
    plan_small(&s, &image, &facts, &plan);
    bytes = calloc(1, plan.end);
    assert_non_null(bytes);
    memcpy(bytes, &s, sizeof s);
    elf_changes_apply(plan.changes, plan.change_count, 0, bytes, plan.end);
    memcpy(bytes + plan.segment.offset, plan.tail, plan.end - plan.segment.offset);
    source.memory = bytes;
    source.size = plan.end;
    assert_int_equal(elf_image_read(&again, &source, &err), 0);
    assert_string_equal(elf_image_string(&again, again.dynamic[0].d_un.d_val),
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
    source = (struct elf_source){.name = "new", .fd = -1, .memory = bytes, .size = plan.end};
    memset(bytes + plan.undo_at + sizeof(struct elf_undo_head) +
               note.head.copies * sizeof(struct elf_undo_copy),
           0xff, 8);
    assert_int_equal(elf_note_find(&note, &source), ELF_NOTE_FOUND);
    assert_int_equal(note.lost.code, -ENOEXEC);
    assert_null(note.undo);
    elf_image_deinit(&again);
    deinit(&image, &facts, &plan);
    free(bytes);
}

static void plan_keeps_an_appended_payload(void **state)
{
    struct {
        struct small s;
        char payload[100];
    } file = {.s = make_small(3), .payload = "archive"};
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
        cmocka_unit_test(image_of_a_small_library_is_read),
        cmocka_unit_test(image_fields_outside_are_named),
        cmocka_unit_test(image_versions_that_lead_out_are_refused),
        cmocka_unit_test(import_in_the_hash_table_keeps_its_name_in_a_program),
        cmocka_unit_test(plan_prefers_what_moves_least),
        cmocka_unit_test(plan_gives_up_what_is_not_needed),
        cmocka_unit_test(plan_carried_out_can_be_undone),
        cmocka_unit_test(plan_keeps_an_appended_payload),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
