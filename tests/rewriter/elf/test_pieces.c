/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pieces.c: names, SHA-256, checksums, sources and notes.
 */
#include "rewriter/elf/facts.h"
#include "rewriter/elf/note.h"
#include "rewriter/elf/sums.h"

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
    static const char *const wrapped[] = {
#define GS_GATE(symbol, ...) #symbol,
#define GS_SYNC(symbol, ...) #symbol,
#define GS_ROOM(symbol, ...) #symbol,
#define GS_HOOK(symbol, ...) #symbol,
#include "wrap/driver_api.def"
    };
    const size_t count = sizeof wrapped / sizeof wrapped[0];

    (void)state;
    assert_true(count > 100);
    for (size_t i = 1; i < count; i++)
        assert_true(strcmp(wrapped[i - 1], wrapped[i]) < 0);
    for (size_t i = 0; i < count; i++)
        assert_true(elf_name_is_wrapped(wrapped[i]));
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

static void sum_of(const uint8_t *bytes, size_t length, size_t piece,
                   uint8_t digest[ELF_CHECKSUM_SIZE])
{
    struct elf_checksum sum;

    elf_checksum_init(&sum);
    for (size_t at = 0; at < length; at += piece)
        elf_checksum_update(&sum, bytes + at, length - at < piece ? length - at : piece);
    elf_checksum_final(&sum, digest);
}

/* The expected value is from Debian's libxxhash 0.8.1. */
static void checksum_known_values(void **state)
{
    uint8_t bytes[1000], digest[ELF_CHECKSUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 5));
    sum_of(bytes, sizeof bytes, sizeof bytes, digest);
    expect_digest(digest, "a23ba936b928d2fc036c2678c09417ef00000000000000000000000000000000");
}

static void checksum_does_not_depend_on_pieces(void **state)
{
    uint8_t bytes[1000], whole[ELF_CHECKSUM_SIZE], parts[ELF_CHECKSUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 5));
    sum_of(bytes, sizeof bytes, sizeof bytes, whole);
    for (size_t piece = 1; piece < 200; piece += 7) {
        sum_of(bytes, sizeof bytes, piece, parts);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

static void checksum_sees_every_bit_and_the_length(void **state)
{
    uint8_t bytes[200] = {0}, before[ELF_CHECKSUM_SIZE], after[ELF_CHECKSUM_SIZE];

    (void)state;
    sum_of(bytes, sizeof bytes, sizeof bytes, before);
    sum_of(bytes, sizeof bytes - 1, sizeof bytes, after); /* zeros less */
    assert_memory_not_equal(before, after, sizeof before);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sum_of(bytes, sizeof bytes, sizeof bytes, after);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
