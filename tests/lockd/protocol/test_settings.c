/* SPDX-License-Identifier: Apache-2.0
 *
 * test_settings.c: the table of settings (settings.def): every row is right in itself, its default is within its
 * bounds, and what is written of a value is read as that value.
 */
#include "lockd/protocol/setting_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* A table without rows would pass every test. */
static const struct lockd_setting *first_row(void)
{
    assert_non_null(lockd_settings[0].name);
    return lockd_settings;
}

#define each_row(row)                                                                          \
    const struct lockd_setting *row = first_row();                                             \
    row->name != NULL;                                                                         \
    row++

static void every_default_is_read_and_within_its_bounds(void **state)
{
    (void)state;
    for (each_row(row)) {
        char text[GS_OPTION_NAME_SIZE] = "unset", back[64];
        uint64_t value = 0;
        const bool is_text = row->kind == GS_OPTION_NAME;
        const struct gs_option option =
            lockd_setting_option(row, is_text ? (void *)text : &value);
        struct gs_err err = {0};

        if (gs_option_value(&option, row->initial, &err) != 0)
            fail_msg("%s: %s", row->name, err.text);
        if (is_text) {
            assert_string_equal(text, row->initial);
            continue;
        }
        assert_true(lockd_setting_allows(row, value));
        assert_string_equal(lockd_setting_format(row, value, false, back, sizeof back),
                            row->initial);
    }
}

static void bounds_are_allowed_and_nothing_beyond(void **state)
{
    (void)state;
    for (each_row(row)) {
        if (row->kind == GS_OPTION_NAME)
            continue;
        assert_true(lockd_setting_allows(row, row->high));
        assert_false(lockd_setting_allows(row, row->high + 1));
        if (row->kind == GS_OPTION_SIGNED) {
            assert_true(lockd_setting_allows(row, (uint64_t) - (int64_t)row->high));
            assert_false(lockd_setting_allows(row, (uint64_t)(-(int64_t)row->high - 1)));
            continue;
        }
        assert_true(lockd_setting_allows(row, row->low));
        assert_true(row->low == 0 || !lockd_setting_allows(row, row->low - 1));
        assert_int_equal(lockd_setting_allows(row, UINT64_MAX),
                         gs_option_word(row->kind, row->argument) != NULL);
    }
}

static void written_bounds_are_read_as_they_were(void **state)
{
    (void)state;
    for (each_row(row)) {
        const uint64_t bounds[] = {row->low, row->high};

        for (size_t i = 0; i < 2 && row->kind != GS_OPTION_NAME; i++) {
            uint64_t value = 1;
            const struct gs_option option = lockd_setting_option(row, &value);
            struct gs_err err = {0};
            char text[64];

            lockd_setting_format(row, bounds[i], false, text, sizeof text);
            if (gs_option_value(&option, text, &err) != 0)
                fail_msg("%s = %s: %s", row->name, text, err.text);
            assert_int_equal(value, bounds[i]);
        }
    }
}

static void rows_are_told_apart(void **state)
{
    (void)state;
    for (each_row(row)) {
        assert_ptr_equal(lockd_setting_find(row->name), row);
        assert_true(strlen(row->name) < sizeof(((struct gs_wire_setting *)0)->name));
        assert_true(strlen(row->help) <= 130);
        assert_null(strpbrk(row->help, ";\n"));
        assert_true(row->section[0] != '\0' || row->scope == LOCKD_SCOPE_PROGRAM);
        if (row->op == 0)
            continue;
        assert_ptr_equal(lockd_setting_of_op(row->op), row);
        assert_true(row->op != GS_CONTROL_PAUSE && row->op != GS_CONTROL_RESUME &&
                    row->op != GS_CONTROL_EVICT && row->op != GS_CONTROL_SUSPEND &&
                    row->op != GS_CONTROL_RELOAD);
    }
}

/* A choice's bound is its last word; one word more in either place would be found here. */
static void choices_have_as_many_words_as_values(void **state)
{
    (void)state;
    for (each_row(row)) {
        uint64_t bars = 0;

        if (row->kind != GS_OPTION_CHOICE)
            continue;
        for (const char *at = row->argument; *at != '\0'; at++)
            bars += *at == '|';
        assert_int_equal(bars, row->high);
    }
    assert_int_equal(lockd_setting_find("policy")->high, GS_POLICY_COUNT - 1);
}

static void values_are_written_with_their_unit(void **state)
{
    const struct {
        const char *name;
        uint64_t value;
        const char *text, *range;
    } rows[] = {{"quantum", 1500000, "1.5 ms", "1 to 3600000 ms, or auto"},
                {"idle-exit", UINT64_MAX, "never", "0 to 86400 s, or never"},
                {"switch-share", 25000, "2.5 %", "0.1 to 50 %, or auto"},
                {"reserve", 3ull << 30, "3GiB", "0 to 256TiB, or auto"},
                {"priority", (uint64_t)-7, "-7", "-100 to 100"},
                {"policy", GS_POLICY_RR, "rr", "fair|fifo|rr|priority"}};
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct lockd_setting *row = lockd_setting_find(rows[i].name);

        assert_string_equal(lockd_setting_format(row, rows[i].value, true, text, sizeof text),
                            rows[i].text);
        assert_string_equal(lockd_setting_range(row, text, sizeof text), rows[i].range);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_read_and_within_its_bounds),
        cmocka_unit_test(bounds_are_allowed_and_nothing_beyond),
        cmocka_unit_test(written_bounds_are_read_as_they_were),
        cmocka_unit_test(rows_are_told_apart),
        cmocka_unit_test(choices_have_as_many_words_as_values),
        cmocka_unit_test(values_are_written_with_their_unit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
