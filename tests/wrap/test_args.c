/* SPDX-License-Identifier: Apache-2.0
 *
 * test_args.c: words of command lines: cut, read from response files, printed so that a shell
 * reads back the same.
 */
#include "wrap/args.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_words(const struct gs_args *args, const char *const *want)
{
    size_t n = 0;

    for (; want[n] != NULL; n++) {
        assert_true(n < args->count);
        assert_string_equal(args->item[n], want[n]);
    }
    assert_int_equal(args->count, n);
    if (n != 0)
        assert_null(args->item[n]);
}

static void split_quoted_text_keeps_blanks(void **state)
{
    static const char *const want[] = {"a", "b c", "d\"e", "f\\g", "", "h i", "j'k", NULL};
    struct gs_args args = {0};

    (void)state;
    assert_int_equal(gs_args_split(&args, " a\t'b c'\n\"d\\\"e\" 'f\\g' '' h\\ i \"j'k\" "), 0);
    assert_words(&args, want);
    gs_args_deinit(&args);
}

static void split_unfinished_quote_ends_with_text(void **state)
{
    static const char *const want[] = {"a", "b c\\", NULL};
    struct gs_args args = {0};

    (void)state;
    assert_int_equal(gs_args_split(&args, "a \"b c\\"), 0);
    assert_words(&args, want);
    gs_args_deinit(&args);
}

static void split_empty_text_gives_nothing(void **state)
{
    struct gs_args args = {0};

    (void)state;
    assert_int_equal(gs_args_split(&args, " \n\t "), 0);
    assert_int_equal(args.count, 0);
    gs_args_deinit(&args);
    gs_args_deinit(NULL);
}

static void push_many_words_keeps_all(void **state)
{
    struct gs_args args = {0};

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(gs_args_push(&args, "word %d", i), 0);
    assert_int_equal(args.count, 1000);
    assert_string_equal(args.item[999], "word 999");
    assert_null(args.item[1000]);
    gs_args_deinit(&args);
}

static void read_missing_file_says_so(void **state)
{
    struct gs_args args = {0};
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(gs_args_read(&args, "/nonexistent/file", &err), -ENOENT);
    assert_int_equal(gs_args_read(&args, "/dev/null/file", &err), -ENOENT);
    assert_int_equal(gs_args_read(&args, "/dev/null", &err), -EINVAL);
    assert_non_null(strstr(err.text, "/dev/null"));
    gs_args_deinit(&args);
}

static void print_any_word_is_read_back_by_the_shell(void **state)
{
    static const char *const words[] = {"printf",    "%s\\n",      "plain-1.0/x_y",
                                        "two words", "it's",       "$HOME",
                                        "`id`",      "a\"b",       "\\",
                                        "",          "~",          "#x",
                                        "*",         "line\nline", NULL};
    struct gs_args args = {0};
    char path[] = "/tmp/gs-test-args-XXXXXX", command[64], got[256], want[256] = "";
    size_t want_length = 0;
    int fd = mkstemp(path);
    FILE *out, *in;
    size_t n;

    (void)state;
    assert_true(fd >= 0);
    out = fdopen(fd, "w");
    assert_non_null(out);
    for (size_t i = 0; words[i] != NULL; i++) {
        assert_int_equal(gs_args_push(&args, "%s", words[i]), 0);
        if (i >= 2)
            want_length += (size_t)snprintf(want + want_length, sizeof want - want_length,
                                            "%s\n", words[i]);
    }
    gs_args_print(&args, out);
    fclose(out);
    snprintf(command, sizeof command, "sh %s", path);
    in = popen(command, "r"); /* NOLINT(cert-env33-c): the shell is what is tested */
    assert_non_null(in);
    n = fread(got, 1, sizeof got - 1, in);
    got[n] = '\0';
    assert_int_equal(pclose(in), 0);
    unlink(path);
    assert_string_equal(got, want);
    gs_args_deinit(&args);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_quoted_text_keeps_blanks),
        cmocka_unit_test(split_unfinished_quote_ends_with_text),
        cmocka_unit_test(split_empty_text_gives_nothing),
        cmocka_unit_test(push_many_words_keeps_all),
        cmocka_unit_test(read_missing_file_says_so),
        cmocka_unit_test(print_any_word_is_read_back_by_the_shell),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
