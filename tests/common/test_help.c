/* SPDX-License-Identifier: Apache-2.0
 *
 * test_help.c: where the rows of --help have their columns (common/options.c).
 */
#include "common/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void expect_row(const char *typed, const char *initial, const char *wanted)
{
    char row[128] = "";
    FILE *file = fmemopen(row, sizeof row, "w");

    assert_non_null(file);
    gs_help_row(file, typed, 12, "do it", initial);
    fclose(file);
    assert_string_equal(row, wanted);
}

static void gs_help_row_short_option_is_padded(void **state)
{
    (void)state;
    expect_row("  -x, --xyz", NULL, "  -x, --xyz do it\n");
    expect_row("  --x", "", "  --x       do it\n");
}

static void gs_help_row_long_option_has_a_line_of_its_own(void **state)
{
    (void)state;
    expect_row("  --longer WORD", NULL, "  --longer WORD\n            do it\n");
    expect_row("  --exactly 12", NULL, "  --exactly 12\n            do it\n");
}

static void gs_help_row_default_is_in_brackets(void **state)
{
    (void)state;
    expect_row("  --x", "7", "  --x       do it [7]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gs_help_row_short_option_is_padded),
        cmocka_unit_test(gs_help_row_long_option_has_a_line_of_its_own),
        cmocka_unit_test(gs_help_row_default_is_in_brackets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
