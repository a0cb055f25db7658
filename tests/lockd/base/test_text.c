/* SPDX-License-Identifier: Apache-2.0
 *
 * test_text.c: other people's bytes, as text that may be shown.
 */
#include "lockd/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <string.h>

static void assert_clean(const char *bytes, const char *wanted)
{
    char text[64];

    snprintf(text, sizeof text, "%s", bytes);
    lockd_text_clean(text, sizeof text);
    assert_string_equal(text, wanted);
}

static void clean_keeps_characters_of_every_length(void **state)
{
    (void)state;
    assert_clean("", "");
    assert_clean("train \"7\"\\", "train \"7\"\\");
    assert_clean("\u00a0\u00fc\u07ff\u0800\ue000\uffff",
                 "\u00a0\u00fc\u07ff\u0800\ue000\uffff");
    assert_clean("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf");
}

static void clean_replaces_control_characters(void **state)
{
    (void)state;
    assert_clean("a\x1b[31m\n\x7f", "a?[31m??");
    assert_clean("\xc2\x9b"
                 "31m",
                 "??31m"); /* U+009B: CSI in one character */
    assert_clean("\x9b"
                 "31m",
                 "?31m"); /* ... and as 8-bit terminals know it */
}

/* What is shown behind such a name would be turned round, or on a line of its own. */
static void clean_replaces_what_turns_the_direction(void **state)
{
    (void)state;
    assert_clean("a\u202eb\u2066c\u2028d\u200ee", "a???b???c???d???e");
    assert_clean("\u200b\u200d\u2027\u202f\u2065\u206a",
                 "\u200b\u200d\u2027\u202f\u2065\u206a");
}

static void clean_replaces_malformed_bytes(void **state)
{
    (void)state;
    assert_clean("\xff\xfe", "??");
    assert_clean("\xc0\x9b", "??");                         /* overlong ESC */
    assert_clean("\xe0\x82\x9b", "???");                    /* overlong CSI */
    assert_clean("\xf0\x80\x80\x9b", "????");               /* overlong */
    assert_clean("\xed\xa0\x80", "???");                    /* half of a surrogate pair */
    assert_clean("\xf4\x90\x80\x80", "????");               /* beyond U+10FFFF */
    assert_clean("\xe3\x83\x97\xe3\x83", "\xe3\x83\x97??"); /* cut */
    assert_clean("\xe3", "?");
    assert_clean("\xf0\x9f\x98", "???");
}

static void clean_ends_an_endless_text(void **state)
{
    char text[4] = {'\xe3', '\x83', '\x97', 'x'};

    (void)state;
    lockd_text_clean(text, sizeof text);
    assert_string_equal(text, "\xe3\x83\x97");
    memset(text, '\xe3', sizeof text);
    lockd_text_clean(text, sizeof text);
    assert_string_equal(text, "???");
}

static void fit_counts_columns(void **state)
{
    char buffer[16];

    (void)state;
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        skip();
    assert_string_equal(lockd_text_fit("\u65e5\u672c", 3, buffer, sizeof buffer), "\u65e5 ");
    assert_string_equal(lockd_text_fit("e\u0301e", 1, buffer, sizeof buffer), "e\u0301");
    setlocale(LC_CTYPE, "C");
}

static void fit_cuts_and_pads_whole_characters(void **state)
{
    char buffer[16];

    (void)state;
    assert_string_equal(lockd_text_fit("ab", 4, buffer, sizeof buffer), "ab  ");
    assert_string_equal(lockd_text_fit("\u00fc\u00fc\u00fc", 2, buffer, sizeof buffer),
                        "\u00fc\u00fc");
    assert_string_equal(lockd_text_fit("\u00fc", 3, buffer, sizeof buffer), "\u00fc  ");
    assert_string_equal(lockd_text_fit("abc\u00fc", 9, buffer, 5), "abc ");
    assert_string_equal(lockd_text_fit("", 0, buffer, sizeof buffer), "");
}

static void cut_marks_what_it_cuts(void **state)
{
    char buffer[16];

    (void)state;
    setlocale(LC_CTYPE, "C");
    assert_string_equal(lockd_text_cut("abcd", 4, buffer, sizeof buffer), "abcd");
    assert_string_equal(lockd_text_cut("abcde", 4, buffer, sizeof buffer), "abc+");
    assert_string_equal(lockd_text_cut("ab", 4, buffer, sizeof buffer), "ab  ");
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        skip();
    assert_string_equal(lockd_text_cut("abcde", 4, buffer, sizeof buffer), "abc\u2026");
    assert_int_equal(lockd_text_width("\u65e5\u672ca"), 5);
    setlocale(LC_CTYPE, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_keeps_characters_of_every_length),
        cmocka_unit_test(clean_replaces_control_characters),
        cmocka_unit_test(clean_replaces_what_turns_the_direction),
        cmocka_unit_test(clean_replaces_malformed_bytes),
        cmocka_unit_test(clean_ends_an_endless_text),
        cmocka_unit_test(fit_counts_columns),
        cmocka_unit_test(fit_cuts_and_pads_whole_characters),
        cmocka_unit_test(cut_marks_what_it_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
