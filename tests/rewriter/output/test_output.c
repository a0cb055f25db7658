/* SPDX-License-Identifier: Apache-2.0
 *
 * test_output.c: the new file takes the old one's place only while that is as it was read.
 */
#include "rewriter/output/output.h"

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
    struct elf_entry entry;
    struct stat old;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    write_file(path, "old");
    assert_int_equal(elf_entry_open(&entry, NULL, path, NULL), 0);
    assert_int_equal(stat(path, &old), 0);
    assert_int_equal(elf_output_open(&output, &entry, path, NULL), 0);
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
    assert_int_equal(elf_output_open(&output, &entry, path, NULL), 0);
    assert_int_equal(elf_output_write(&output, 0, "new", 3, NULL), 0);
    assert_int_equal(elf_output_commit(&output, &old, true, NULL), 0);
    elf_output_deinit(&output);
    assert_int_equal(stat(path, &old), 0);
    assert_int_equal(old.st_size, 3);
    assert_int_equal(unlink(path), 0);
    elf_entry_close(&entry);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_commit_spares_a_changed_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
