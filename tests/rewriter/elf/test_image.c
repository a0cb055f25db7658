/* SPDX-License-Identifier: Apache-2.0
 *
 * test_image.c: what is read of an ELF file, and what leads out of it (image.c, facts.c).
 */
#include "tests/rewriter/small_library.h"

#include "rewriter/elf/facts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h wants the four above */
static void image_of_a_small_library_is_read(void **state)
{
    struct small s = small_make(3);
    struct elf_image image;
    struct elf_facts facts;
    struct gs_err err;

    (void)state;
    assert_int_equal(small_read(&s, &image, &err), 0);
    assert_int_equal(image.tables.symbol_count, 3);
    assert_int_equal(image.dynamic.count, 6);
    assert_int_equal(image.dynamic.room, 9);
    assert_string_equal(image.dynamic.soname, "libx.so");
    assert_int_equal(image.tables.hash.size, sizeof s.hash);
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
    s = small_make(3), s.header.e_phnum = 60000, small_refuse(&s, "e_phnum is 60000");
    s = small_make(3), s.header.e_phoff = 1ull << 60, small_refuse(&s, "outside the file");
    s = small_make(3), s.header.e_phoff = UINT64_MAX - 7, small_refuse(&s, "outside the file");
    s = small_make(3), s.header.e_shoff = 64, s.header.e_shnum = 9, s.header.e_shentsize = 64,
    small_refuse(&s, "e_shstrndx 0");
    s = small_make(3), s.segments[0].p_filesz = sizeof s + 1, small_refuse(&s, "segment 0");
    s = small_make(3), s.segments[0].p_memsz = 1, small_refuse(&s, "memsz 0x1");
    s = small_make(3), s.segments[0].p_align = 3, small_refuse(&s, "p_align 0x3");
    s = small_make(3), s.segments[1] = s.segments[0],
    small_refuse(&s, "below the end of the one before it");
    s = small_make(3), s.segments[1] = s.segments[2], small_refuse(&s, "2 PT_DYNAMIC");
    s = small_make(3), s.segments[2].p_type = PT_NULL, small_refuse(&s, "statically linked");
    s = small_make(3), s.segments[2].p_vaddr += 8, small_refuse(&s, "address of PT_DYNAMIC");
    s = small_make(3), s.dynamic[1].d_tag = DT_DEBUG, small_refuse(&s, "no DT_STRTAB");
    s = small_make(3), s.dynamic[2].d_un.d_val = 1ull << 40, small_refuse(&s, "DT_STRSZ");
    s = small_make(3), s.dynamic[2].d_un.d_val = 5, small_refuse(&s, "not a NUL byte");
    s = small_make(3), s.dynamic[0].d_un.d_val = 4000, small_refuse(&s, "a name in PT_DYNAMIC");
    s = small_make(3), s.dynamic[3].d_un.d_ptr = sizeof s - 8, small_refuse(&s, "DT_SYMTAB");
    s = small_make(3), s.dynamic[4].d_un.d_val = 16, small_refuse(&s, "DT_SYMENT");
    s = small_make(3), s.hash[1] = 1u << 31, small_refuse(&s, "DT_HASH");
    s = small_make(3), s.hash[0] = UINT32_MAX, small_refuse(&s, "DT_HASH");
    s = small_make(3), s.dynamic[5].d_tag = DT_GNU_HASH, s.hash[2] = 1u << 30,
    small_refuse(&s, "DT_GNU_HASH");
}

static struct small with_versions(int64_t tag, const void *entry, size_t size, const void *hung,
                                  size_t hung_size)
{
    struct small s = small_make(3);

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
            small_refuse(&s, "DT_VERNEED");
        else
            assert_int_equal(small_read(&s, &image, &err), 0), elf_image_deinit(&image);
        s = with_versions(DT_VERDEF, &def, sizeof def, &def_aux, sizeof def_aux);
        if (i >= 5 && i < 8)
            small_refuse(&s, "DT_VERDEF");
        else
            assert_int_equal(small_read(&s, &image, &err), 0), elf_image_deinit(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(image_of_a_small_library_is_read),
        cmocka_unit_test(image_fields_outside_are_named),
        cmocka_unit_test(image_versions_that_lead_out_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
