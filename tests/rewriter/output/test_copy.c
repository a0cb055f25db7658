/* SPDX-License-Identifier: Apache-2.0
 *
 * test_copy.c: copying with changes over several chunks, and that reading back finds whatever
 * is not as planned.
 */
#include "rewriter/output/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

#define SIZE ((size_t)5 * 1024 * 1024 + 12345) /* several chunks and a part of one */
#define TAIL 3000                              /* bytes, behind a gap */
#define GAP  51

struct files {
    char folder[64], path[96];
    struct elf_source original;
    struct elf_output output;
    struct elf_change changes[4];
    struct elf_image image;
    struct elf_plan plan;
    uint8_t *bytes, *expected; /* SIZE; SIZE + GAP + TAIL */
};

static const uint8_t word[] = "changed, and across the border of two chunks";

static void make_plan(struct files *f)
{
    static const uint64_t at[] = {0, ((uint64_t)1 << 20) - 10, ((uint64_t)3 << 20) + 77,
                                  SIZE - sizeof word};

    for (size_t i = 0; i < 4; i++)
        f->changes[i] =
            (struct elf_change){.offset = at[i], .length = sizeof word, .bytes = word};
    f->image.image_end = SIZE - 100;
    f->plan.image = &f->image;
    f->plan.changes.list = f->changes;
    f->plan.changes.count = 4;
    f->plan.tail.segment.offset = SIZE + GAP;
    f->plan.tail.end = SIZE + GAP + TAIL;
    f->plan.tail.bytes = malloc(TAIL);
    f->expected = calloc(1, f->plan.tail.end);
    assert_non_null(f->plan.tail.bytes);
    assert_non_null(f->expected);
    memset(f->plan.tail.bytes, 0x5a, TAIL);
    memcpy(f->expected, f->bytes, SIZE);
    for (size_t i = 0; i < 4; i++)
        memcpy(f->expected + at[i], word, sizeof word);
    memcpy(f->expected + SIZE + GAP, f->plan.tail.bytes, TAIL);
}

static int set_up(void **state)
{
    struct files *f = calloc(1, sizeof *f);
    struct elf_entry entry;
    uint32_t x = 1;
    int fd;

    assert_non_null(f);
    *state = f;
    strcpy(f->folder, "/tmp/gpushare-copy.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/new", f->folder);
    f->bytes = malloc(SIZE);
    assert_non_null(f->bytes);
    for (size_t i = 0; i < SIZE; i++) {
        x = x * 1664525u + 1013904223u;
        f->bytes[i] = (uint8_t)(x >> 24);
    }
    fd = open(f->folder, O_TMPFILE | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->bytes, SIZE), SIZE);
    f->original = (struct elf_source){.name = "original", .fd = fd, .size = SIZE};
    assert_int_equal(elf_entry_open(&entry, NULL, f->path, NULL), 0);
    assert_int_equal(elf_output_open(&f->output, &entry, f->path, NULL), 0);
    elf_entry_close(&entry);
    make_plan(f);
    return 0;
}

static int tear_down(void **state)
{
    struct files *f = *state;

    elf_output_deinit(&f->output);
    close(f->original.fd);
    assert_int_equal(rmdir(f->folder), 0);
    free(f->plan.tail.bytes);
    free(f->expected);
    free(f->bytes);
    free(f);
    return 0;
}

static void expect_content(const struct files *f, const uint8_t *expected, size_t size)
{
    uint8_t *found = malloc(size + 1);

    assert_non_null(found);
    assert_int_equal(pread(f->output.fd, found, size + 1, 0), size); /* and not one more */
    assert_memory_equal(found, expected, size);
    free(found);
}

static void sum_up(const struct files *f, uint64_t image_end, struct elf_digests *digests)
{
    struct elf_sums sums;

    elf_sums_init(&sums, image_end);
    elf_sums_update(&sums, f->bytes, SIZE);
    elf_sums_final(&sums, digests->whole, digests->image);
}

static void expect_sum(const struct files *f, const struct elf_digests *digests)
{
    struct elf_digests wanted;

    sum_up(f, SIZE - 100, &wanted);
    assert_memory_equal(&wanted, digests, sizeof wanted);
}

static void copy_patched_writes_changes_and_tail(void **state)
{
    struct files *f = *state;
    struct elf_digests digests;

    for (int sync = 0; sync < 2; sync++) {
        struct elf_copy copy = {.output = &f->output,
                                .original = &f->original,
                                .plan = &f->plan,
                                .image_end = SIZE - 100,
                                .sync = sync};

        assert_int_equal(ftruncate(f->output.fd, 0), 0);
        assert_int_equal(elf_copy_file(&copy, &digests, NULL), 0);
        expect_content(f, f->expected, f->plan.tail.end);
        expect_sum(f, &digests);
    }
}

/* what is patched, seen through its undo note, is copied back to what it was */
static void copy_original_undoes(void **state)
{
    struct files *f = *state;
    struct elf_digests digests;
    struct elf_change undo[4];
    struct elf_source patched = f->original;

    memcpy(undo, f->changes, sizeof undo);
    for (size_t i = 0; i < 4; i++)
        undo[i].bytes = f->bytes + undo[i].offset;
    assert_int_equal(pwrite(patched.fd, f->expected, f->plan.tail.end, 0), f->plan.tail.end);
    patched.undo = undo;
    patched.undo_count = 4;
    for (int sync = 0; sync < 2; sync++) {
        struct elf_copy copy = {
            .output = &f->output, .original = &patched, .image_end = SIZE - 100, .sync = sync};

        assert_int_equal(ftruncate(f->output.fd, 0), 0);
        assert_int_equal(elf_copy_file(&copy, &digests, NULL), 0);
        expect_content(f, f->bytes, SIZE);
        expect_sum(f, &digests);
    }
}

static void copy_of_a_file_cut_meanwhile_fails(void **state)
{
    struct files *f = *state;
    struct elf_digests digests;
    struct gs_err err = {0};
    struct elf_copy copy = {.output = &f->output,
                            .original = &f->original,
                            .plan = &f->plan,
                            .image_end = SIZE - 100,
                            .sync = true};

    assert_int_equal(ftruncate(f->original.fd, SIZE - ((off_t)2 << 20)), 0);
    assert_int_equal(elf_copy_file(&copy, &digests, &err), -EIO);
    assert_non_null(strstr(err.text, "became shorter"));
}

static void copy_that_cannot_be_written_fails(void **state)
{
    struct files *f = *state;
    struct elf_digests digests;
    struct elf_output full = f->output;
    struct elf_copy copy = {.output = &full,
                            .original = &f->original,
                            .plan = &f->plan,
                            .image_end = SIZE - 100,
                            .sync = true};

    full.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    assert_true(full.fd >= 0);
    assert_int_equal(elf_copy_file(&copy, &digests, NULL), -ENOSPC);
    close(full.fd);
}

/* Checks the new file as it is now. */
static int read_back(struct files *f, bool whole)
{
    struct elf_readback back = {
        .original = &f->original,
        .plan = &f->plan,
        .new = {.name = "new", .fd = f->output.fd, .size = f->plan.tail.end},
        .whole = whole,
    };
    struct elf_digests digests;
    int ret = elf_readback_init(&back, 1000, NULL);

    sum_up(f, 1000, &digests);
    ret = ret ?: elf_readback_check(&back, 0, (uint64_t)2 << 20, NULL);
    ret = ret ?: elf_readback_check(&back, (uint64_t)2 << 20, SIZE, NULL);
    ret = ret ?: elf_readback_finish(&back, digests.whole, NULL);
    elf_readback_deinit(&back);
    return ret;
}

/* `what` is expected when one bit at `at` of the new file is wrong */
static void flip_byte(struct files *f, size_t at, bool whole, int what)
{
    uint8_t byte = f->expected[at] ^ 0x10;

    assert_int_equal(pwrite(f->output.fd, &byte, 1, (off_t)at), 1);
    if (read_back(f, whole) != what)
        fail_msg("byte %zu, whole %d: not %d", at, whole, what);
    assert_int_equal(pwrite(f->output.fd, &f->expected[at], 1, (off_t)at), 1);
    assert_int_equal(read_back(f, whole), 0);
}

static void readback_finds_what_was_not_planned(void **state)
{
    struct files *f = *state;

    assert_int_equal(pwrite(f->output.fd, f->expected, f->plan.tail.end, 0), f->plan.tail.end);
    for (int whole = 0; whole < 2; whole++) {
        flip_byte(f, 3, whole, -EIO);                      /* in a change */
        flip_byte(f, sizeof word, whole, -EIO);            /* right behind one */
        flip_byte(f, ((size_t)1 << 20) + 20, whole, -EIO); /* in one, behind the border */
        flip_byte(f, SIZE - 1, whole, -EIO);               /* last byte of the original */
        flip_byte(f, SIZE + GAP, whole, -EIO);             /* in the tail */
        flip_byte(f, SIZE + GAP + TAIL - 1, whole, -EIO);
        flip_byte(f, ((size_t)2 << 20) + 5, whole, whole ? -EIO : 0); /* far from any change */
    }
    assert_int_equal(ftruncate(f->output.fd, (off_t)f->plan.tail.end + 1), 0);
    assert_int_equal(read_back(f, false), -EIO);
    assert_int_equal(ftruncate(f->output.fd, (off_t)f->plan.tail.end - 1), 0);
    assert_int_equal(read_back(f, false), -EIO);
}

/* neither pieces nor where the section headers are said to be matter to the image's */
static void sums_of_the_image_leave_out_the_section_headers_place(void **state)
{
    uint8_t bytes[500], whole[3][ELF_CHECKSUM_SIZE], image[3][ELF_CHECKSUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
    for (size_t round = 0; round < 3; round++) {
        struct elf_sums sums;

        elf_sums_init(&sums, 300);
        for (size_t at = 0; at < sizeof bytes; at += 37)
            elf_sums_update(&sums, bytes + at, sizeof bytes - at < 37 ? sizeof bytes - at : 37);
        elf_sums_final(&sums, whole[round], image[round]);
        if (round == 0)
            bytes[offsetof(Elf64_Ehdr, e_shoff) + 2] ^= 1;
        else
            bytes[299] ^= 1;
    }
    assert_memory_equal(image[0], image[1], sizeof image[0]);
    assert_memory_not_equal(whole[0], whole[1], sizeof whole[0]);
    assert_memory_not_equal(image[1], image[2], sizeof image[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copy_patched_writes_changes_and_tail, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(copy_original_undoes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy_of_a_file_cut_meanwhile_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy_that_cannot_be_written_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(readback_finds_what_was_not_planned, set_up, tear_down),
        cmocka_unit_test(sums_of_the_image_leave_out_the_section_headers_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
