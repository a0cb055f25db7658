/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c: names, SHA-256, sources, notes, and plans for images made here byte by byte.
 */
#include "rewriter/elf/names.h"
#include "rewriter/elf/note.h"
#include "rewriter/output/output.h"
#include "rewriter/plan/plan.h"
#include "rewriter/elf/sha256.h"

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

static void names_are_sorted_and_found(void **state)
{
    (void)state;
    assert_true(elf_names_wrapped_count() > 100);
    for (size_t i = 1; i < elf_names_wrapped_count(); i++)
        assert_true(strcmp(elf_names_wrapped(i - 1), elf_names_wrapped(i)) < 0);
    for (size_t i = 0; i < elf_names_wrapped_count(); i++)
        assert_true(elf_name_is_wrapped(elf_names_wrapped(i)));
    assert_true(elf_name_is_wrapped("dlsym"));
    assert_true(elf_name_is_wrapped("cuLaunchKernel"));
    assert_true(elf_name_is_wrapped("cuMemAlloc_v2"));
    assert_false(elf_name_is_wrapped("cuDriverGetVersion_v9"));
    assert_false(elf_name_is_wrapped("dlopen"));
    assert_false(elf_name_is_wrapped(""));
}

static void names_of_the_driver_and_the_runtime(void **state)
{
    (void)state;
    assert_int_equal(elf_name_driver_since("cuArray3DCreate"), 2000);
    assert_int_equal(elf_name_driver_since("cuArray3DCreate_v2"), 3020);
    assert_int_equal(elf_name_driver_since("dlsym"), 0);
    assert_true(elf_name_is_runtime_api("cudaMalloc"));
    assert_true(elf_name_is_runtime_api("__cudaRegisterFatBinary"));
    assert_false(elf_name_is_runtime_api("cuda_helper"));
}

static void expect_digest(const uint8_t digest[ELF_SHA256_SIZE], const char *hex)
{
    char text[2 * ELF_SHA256_SIZE + 1];

    for (size_t i = 0; i < ELF_SHA256_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

/* FIPS 180-4's examples, and a million times "a" in uneven pieces */
static void sha256_known_vectors(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    struct elf_sha256 sha;
    uint8_t digest[ELF_SHA256_SIZE], many[997];

    (void)state;
    elf_sha256_init(&sha);
    elf_sha256_final(&sha, digest);
    expect_digest(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    elf_sha256_init(&sha);
    elf_sha256_update(&sha, "abc", 3);
    elf_sha256_final(&sha, digest);
    expect_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    elf_sha256_init(&sha);
    elf_sha256_update(&sha, two_blocks, strlen(two_blocks));
    elf_sha256_final(&sha, digest);
    expect_digest(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(many, 'a', sizeof many);
    elf_sha256_init(&sha);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof many ? left : sizeof many;

        elf_sha256_update(&sha, many, n);
        left -= n;
    }
    elf_sha256_final(&sha, digest);
    expect_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void sha256_portable_equals_update(void **state)
{
    uint8_t bytes[64 * 9];
    uint32_t portable[8];
    struct elf_sha256 sha;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 131 + (i >> 3));
    elf_sha256_init(&sha);
    memcpy(portable, sha.state, sizeof portable);
    elf_sha256_blocks_portable(portable, bytes, 9);
    elf_sha256_update(&sha, bytes, sizeof bytes);
    assert_memory_equal(portable, sha.state, sizeof portable);
}

static void sum_of(enum elf_checksum_kind kind, const uint8_t *bytes, size_t length,
                   size_t piece, uint8_t digest[ELF_CHECKSUM_SIZE])
{
    struct elf_checksum sum;

    elf_checksum_init(&sum, kind);
    for (size_t at = 0; at < length; at += piece)
        elf_checksum_update(&sum, bytes + at, length - at < piece ? length - at : piece);
    elf_checksum_final(&sum, digest);
}

/* Of each kind: what it is for bytes that are given by a rule, known from elsewhere: XXH3 from
 * Debian's libxxhash 0.8.1, the old one from its definition in Python. */
static void checksum_known_values(void **state)
{
    uint8_t bytes[1000], digest[ELF_CHECKSUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 5));
    sum_of(ELF_CHECKSUM_XXH3, bytes, sizeof bytes, sizeof bytes, digest);
    expect_digest(digest, "a23ba936b928d2fc036c2678c09417ef00000000000000000000000000000000");
    sum_of(ELF_CHECKSUM_OLD, bytes, sizeof bytes, sizeof bytes, digest);
    expect_digest(digest, "0e868550801cbf0db83eb9ee55e48e89c6d5897f9d7f9f9051337380280a0b9b");
}

static void checksum_does_not_depend_on_pieces(void **state)
{
    static const enum elf_checksum_kind kinds[] = {ELF_CHECKSUM_XXH3, ELF_CHECKSUM_OLD};
    uint8_t bytes[1000], whole[ELF_CHECKSUM_SIZE], parts[ELF_CHECKSUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 5));
    for (size_t k = 0; k < 2; k++) {
        sum_of(kinds[k], bytes, sizeof bytes, sizeof bytes, whole);
        for (size_t piece = 1; piece < 200; piece += 7) {
            sum_of(kinds[k], bytes, sizeof bytes, piece, parts);
            assert_memory_equal(whole, parts, sizeof whole);
        }
    }
}

static void checksum_sees_every_bit_and_the_length(void **state)
{
    uint8_t bytes[200] = {0}, before[ELF_CHECKSUM_SIZE], after[ELF_CHECKSUM_SIZE];

    (void)state;
    sum_of(ELF_CHECKSUM_XXH3, bytes, sizeof bytes, sizeof bytes, before);
    sum_of(ELF_CHECKSUM_XXH3, bytes, sizeof bytes - 1, sizeof bytes, after); /* zeros less */
    assert_memory_not_equal(before, after, sizeof before);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sum_of(ELF_CHECKSUM_XXH3, bytes, sizeof bytes, sizeof bytes, after);
        assert_memory_not_equal(before, after, sizeof before);
        memset(bytes, 0, sizeof bytes);
    }
}

static void source_read_outside_is_refused(void **state)
{
    static const uint8_t bytes[16] = "0123456789abcdef";
    struct elf_source source = {.name = "mem", .fd = -1, .memory = bytes, .size = sizeof bytes};
    struct gs_err err = {0};
    uint8_t out[16];

    (void)state;
    assert_int_equal(elf_source_read(&source, 16, out, 1, &err), -ENOEXEC);
    assert_non_null(strstr(err.text, "mem: "));
    assert_int_equal(elf_source_read(&source, UINT64_MAX, out, 2, NULL), -ENOEXEC);
    assert_int_equal(elf_source_read(&source, 8, out, 9, NULL), -ENOEXEC);
    assert_int_equal(elf_source_read(&source, 16, out, 0, NULL), 0);
    assert_null(elf_source_load(&source, 4, UINT64_MAX - 2, NULL));
}

static void source_undo_is_seen_through(void **state)
{
    static const uint8_t bytes[] = "0123456789";
    static const struct elf_change undo[] = {
        {.offset = 2, .length = 3, .bytes = (const uint8_t *)"xyz"},
        {.offset = 8, .length = 1, .bytes = (const uint8_t *)"!"}};
    struct elf_source source = {
        .name = "mem", .fd = -1, .memory = bytes, .size = 9, .undo = undo, .undo_count = 2};
    char out[10] = "";

    (void)state;
    assert_int_equal(elf_source_read(&source, 0, out, 9, NULL), 0);
    assert_string_equal(out, "01xyz567!");
    memset(out, 0, sizeof out);
    assert_int_equal(elf_source_read(&source, 3, out, 3, NULL), 0);
    assert_string_equal(out, "yz5");
}

static void note_value_finds_whole_keys(void **state)
{
    char value[16];

    (void)state;
    elf_note_value("tool=x 1\nscope=process\nruntime=/a/b\n", "runtime", value, sizeof value);
    assert_string_equal(value, "/a/b");
    elf_note_value("xscope=1\nscope=process\n", "scope", value, sizeof value);
    assert_string_equal(value, "process");
    elf_note_value("scope=process\n", "sco", value, sizeof value);
    assert_string_equal(value, "");
    elf_note_value("runtime=/longer/than/the/buffer\n", "runtime", value, sizeof value);
    assert_string_equal(value, "");
}

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

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* somebody replaces the file between our reading and our renaming */
static void output_commit_spares_a_changed_file(void **state)
{
    char folder[] = "/tmp/gpushare-test.XXXXXX", path[64], text[16] = "";
    struct elf_output output;
    struct elf_place place;
    struct stat old;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    write_file(path, "old");
    assert_int_equal(elf_place_open(&place, NULL, path, NULL), 0);
    assert_int_equal(stat(path, &old), 0);
    assert_int_equal(elf_output_open(&output, &place, path, NULL), 0);
    assert_int_equal(elf_output_write(&output, 0, "new", 3, NULL), 0);
    write_file(path, "newer");
    assert_int_equal(elf_output_commit(&output, &old, true, NULL), -ESTALE);
    elf_output_deinit(&output);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "newer");

    assert_int_equal(stat(path, &old), 0);
    assert_int_equal(elf_output_open(&output, &place, path, NULL), 0);
    assert_int_equal(elf_output_write(&output, 0, "new", 3, NULL), 0);
    assert_int_equal(elf_output_commit(&output, &old, true, NULL), 0);
    elf_output_deinit(&output);
    assert_int_equal(stat(path, &old), 0);
    assert_int_equal(old.st_size, 3);
    assert_int_equal(unlink(path), 0);
    elf_place_close(&place);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_sorted_and_found),
        cmocka_unit_test(names_of_the_driver_and_the_runtime),
        cmocka_unit_test(sha256_known_vectors),
        cmocka_unit_test(sha256_portable_equals_update),
        cmocka_unit_test(checksum_known_values),
        cmocka_unit_test(checksum_does_not_depend_on_pieces),
        cmocka_unit_test(checksum_sees_every_bit_and_the_length),
        cmocka_unit_test(source_read_outside_is_refused),
        cmocka_unit_test(source_undo_is_seen_through),
        cmocka_unit_test(note_value_finds_whole_keys),
        cmocka_unit_test(image_of_a_small_library_is_read),
        cmocka_unit_test(image_fields_outside_are_named),
        cmocka_unit_test(image_versions_that_lead_out_are_refused),
        cmocka_unit_test(import_in_the_hash_table_keeps_its_name_in_a_program),
        cmocka_unit_test(plan_prefers_what_moves_least),
        cmocka_unit_test(plan_gives_up_what_is_not_needed),
        cmocka_unit_test(plan_carried_out_can_be_undone),
        cmocka_unit_test(plan_keeps_an_appended_payload),
        cmocka_unit_test(output_commit_spares_a_changed_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
