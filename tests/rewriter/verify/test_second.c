/* SPDX-License-Identifier: Apache-2.0
 *
 * test_second.c: the second reader (libelf) finds each difference between a new file, what our
 * own reader said of it, and what was planned.
 *
 * The file is this program itself, patched in a temporary file, and then damaged byte by byte.
 */
#include "rewriter/output/copy.h"
#include "rewriter/verify/second.h"
#include "rewriter/elf/reader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

struct files {
    int original, patched;
    struct elf_image image, new;
    struct elf_facts facts;
    struct elf_plan plan;
};

static void copy_bytes(int from, int to, uint64_t size)
{
    char buffer[65536];

    for (uint64_t at = 0; at < size;) {
        ssize_t n = pread(from, buffer, sizeof buffer, (off_t)at);

        assert_true(n > 0);
        assert_int_equal(pwrite(to, buffer, (size_t)n, (off_t)at), n);
        at += (uint64_t)n;
    }
}

static void write_patched(const struct files *f)
{
    const struct elf_plan *plan = &f->plan;
    size_t tail = plan->tail.end - plan->tail.segment.offset;

    copy_bytes(f->original, f->patched, f->image.source.size);
    for (size_t i = 0; i < plan->changes.count; i++)
        assert_int_equal(pwrite(f->patched, plan->changes.list[i].bytes,
                                plan->changes.list[i].length,
                                (off_t)plan->changes.list[i].offset),
                         plan->changes.list[i].length);
    assert_int_equal(
        pwrite(f->patched, plan->tail.bytes, tail, (off_t)plan->tail.segment.offset), tail);
}

static void read_patched(struct files *f)
{
    struct elf_source source = {.name = "new", .fd = f->patched, .size = f->plan.tail.end};

    assert_int_equal(elf_image_read(&f->new, &source, NULL), 0);
}

static int set_up(void **state)
{
    static const struct elf_wish wish = {.runtime = "/r/libgpushare.so.1",
                                         .marker = "tool=test\n"};
    struct files *f = calloc(1, sizeof *f);
    struct elf_source source = {.name = "original"};
    struct gs_err err = {0};
    struct stat st;

    assert_non_null(f);
    assert_non_null(dlsym(RTLD_DEFAULT, "puts")); /* the import that is routed */
    *state = f;
    source.fd = f->original = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    f->patched = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(f->original >= 0 && f->patched >= 0);
    assert_int_equal(fstat(f->original, &st), 0);
    source.size = (uint64_t)st.st_size;
    if (elf_image_read(&f->image, &source, &err) != 0 ||
        elf_facts_read(&f->facts, &f->image, true, &err) != 0 ||
        elf_plan_make(&f->plan, &f->image, &f->facts, &wish, &err) != 0)
        fail_msg("%s", err.text);
    write_patched(f);
    read_patched(f);
    return 0;
}

static int tear_down(void **state)
{
    struct files *f = *state;

    elf_image_deinit(&f->new);
    elf_plan_deinit(&f->plan);
    elf_facts_deinit(&f->facts);
    elf_image_deinit(&f->image);
    close(f->original);
    close(f->patched);
    free(f);
    return 0;
}

static void flip_bit(const struct files *f, uint64_t at)
{
    uint8_t byte;

    assert_int_equal(pread(f->patched, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(f->patched, &byte, 1, (off_t)at), 1);
}

/* One bit at `at` is wrong: it is refused with a message that has all the words. */
static void expect_words(struct files *f, uint64_t at, const char *what, const char *field)
{
    struct gs_err err = {0};
    int ret;

    flip_bit(f, at);
    ret = elf_verify_second(&f->plan, &f->new, f->patched, &err);
    flip_bit(f, at);
    if (ret != -EIO || strstr(err.text, what) == NULL || strstr(err.text, field) == NULL ||
        strstr(err.text, "libelf") == NULL)
        fail_msg("%s, %s (byte 0x%llx): %d, %s", what, field, (unsigned long long)at, ret,
                 err.text);
    assert_int_equal(elf_verify_second(&f->plan, &f->new, f->patched, NULL), 0);
}

/* The same for a byte of an entry: the message says which. */
static void expect_refused(struct files *f, uint64_t entry, size_t byte, const char *what)
{
    char words[96];

    snprintf(words, sizeof words, "byte %zu of %s", byte, what);
    expect_words(f, entry + byte, words, "according to");
}

static uint64_t offset_of(const struct files *f, int64_t tag)
{
    const Elf64_Dyn *entry = elf_image_dynamic(&f->new, tag);
    uint64_t offset = 0;

    assert_non_null(entry);
    assert_int_equal(elf_image_offset(&f->new, entry->d_un.d_ptr, 1, &offset), 0);
    return offset;
}

static void second_agrees_on_a_good_file(void **state)
{
    struct files *f = *state;
    struct gs_err err = {0};

    assert_true(f->facts.import_count > 0);
    if (elf_verify_second(&f->plan, &f->new, f->patched, &err) != 0)
        fail_msg("%s", err.text);
}

static void second_refuses_other_headers(void **state)
{
    struct files *f = *state;
    uint64_t segment = f->new.header.e_phoff + f->plan.slot.added * sizeof(Elf64_Phdr);
    uint64_t section = f->new.header.e_shoff + 2 * sizeof(Elf64_Shdr);
    size_t names = f->new.header.e_shstrndx;

    expect_refused(f, 0, offsetof(Elf64_Ehdr, e_entry), "ELF header");
    expect_refused(f, 0, offsetof(Elf64_Ehdr, e_flags), "ELF header");
    expect_refused(f, 0, offsetof(Elf64_Ehdr, e_phnum), "ELF header");
    expect_refused(f, 0, offsetof(Elf64_Ehdr, e_machine), "ELF header");
    expect_words(f, EI_CLASS, "64-bit", "gpushare-patch");
    expect_words(f, 0, "64-bit", "gpushare-patch"); /* no ELF file at all */
    expect_refused(f, segment, offsetof(Elf64_Phdr, p_flags), "program header");
    expect_refused(f, segment, offsetof(Elf64_Phdr, p_vaddr), "program header");
    expect_refused(f, segment, offsetof(Elf64_Phdr, p_align), "program header");
    expect_refused(f, section, offsetof(Elf64_Shdr, sh_name), "section 2");
    expect_refused(f, section, offsetof(Elf64_Shdr, sh_addr), "section 2");
    expect_refused(f, section, offsetof(Elf64_Shdr, sh_entsize), "section 2");
    expect_words(f, f->new.sections[names].sh_offset + f->new.sections[2].sh_name + 1,
                 "section 2", f->new.section_names + f->new.sections[2].sh_name);
}

static void second_refuses_other_dynamic_entries(void **state)
{
    struct files *f = *state;
    uint64_t dynamic = f->new.segments[f->new.dynamic_segment].p_offset;

    for (size_t i = 0; i < f->plan.dynamic.count; i++) {
        uint64_t entry = dynamic + i * sizeof(Elf64_Dyn);

        expect_refused(f, entry, offsetof(Elf64_Dyn, d_tag), "dynamic entry");
        expect_refused(f, entry, offsetof(Elf64_Dyn, d_un), "dynamic entry");
    }
}

static void second_refuses_other_tables(void **state)
{
    struct files *f = *state;
    uint64_t symbol =
        f->new.tables.symbols.offset + f->facts.imports[0].index * sizeof(Elf64_Sym);
    uint64_t needed = offset_of(f, DT_VERNEED);
    Elf64_Verneed entry;
    char hash[64];

    assert_int_equal(pread(f->patched, &entry, sizeof entry, (off_t)needed), sizeof entry);
    expect_refused(f, f->new.tables.strings.offset + 1, 0, "data at offset");
    expect_refused(f, f->new.tables.strings.offset + f->plan.names.needed, 0, "data at offset");
    snprintf(hash, sizeof hash, "data at offset %llu of the new file",
             (unsigned long long)offset_of(f, DT_GNU_HASH));
    expect_refused(f, offset_of(f, DT_GNU_HASH), 0, hash);
    expect_words(f, symbol + offsetof(Elf64_Sym, st_name), "symbol", "according to the plan");
    expect_refused(f, symbol, offsetof(Elf64_Sym, st_shndx), "symbol");
    expect_refused(f, symbol, offsetof(Elf64_Sym, st_size), "symbol");
    expect_refused(f, f->new.tables.versions.offset + 2 * (uint64_t)f->facts.imports[0].index,
                   0, "version of symbol");
    expect_refused(f, needed + offsetof(Elf64_Verneed, vn_file), 0, "data at offset");
    expect_refused(f, needed + entry.vn_aux + offsetof(Elf64_Vernaux, vna_hash), 0,
                   "data at offset");
    expect_refused(f, offset_of(f, DT_RELA), offsetof(Elf64_Rela, r_info), "relocation 0");
    expect_refused(f, offset_of(f, DT_RELA) + sizeof(Elf64_Rela),
                   offsetof(Elf64_Rela, r_addend), "relocation 1");
}

/* Both readers say the same, but not what was planned. */
static void second_refuses_what_was_not_planned(void **state)
{
    struct files *f = *state;
    uint64_t symbol =
        f->new.tables.symbols.offset + f->facts.imports[0].index * sizeof(Elf64_Sym);
    uint64_t segment = f->new.header.e_phoff + f->plan.slot.added * sizeof(Elf64_Phdr);
    const struct {
        uint64_t at;
        const char *what;
    } cases[] = {{offsetof(Elf64_Ehdr, e_flags), "ELF header"},
                 {segment + offsetof(Elf64_Phdr, p_flags), "program header"},
                 {symbol + offsetof(Elf64_Sym, st_name), "__wrap_"},
                 {symbol + offsetof(Elf64_Sym, st_size), "symbol"},
                 {f->new.tables.strings.offset + f->plan.names.needed + 1, "data at offset"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gs_err err = {0};

        flip_bit(f, cases[i].at);
        elf_image_deinit(&f->new);
        read_patched(f);
        assert_int_equal(elf_verify_second(&f->plan, &f->new, f->patched, &err), -EIO);
        if (strstr(err.text, cases[i].what) == NULL ||
            strstr(err.text, "according to the plan") == NULL)
            fail_msg("%s: %s", cases[i].what, err.text);
        flip_bit(f, cases[i].at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(second_agrees_on_a_good_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_refuses_other_headers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_refuses_other_dynamic_entries, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(second_refuses_other_tables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(second_refuses_what_was_not_planned, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
