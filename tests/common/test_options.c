/* SPDX-License-Identifier: Apache-2.0
 *
 * test_options.c: reading a command line (options.c): where options and arguments may stand, and what is refused.
 */
#include "common/options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define WORDS_MAX 12

struct line {
    char *words[WORDS_MAX];
    int count, index;
    bool all, brief;
    const char *path, *place;
    struct gs_option_list skip;
    uint64_t number;
    struct gs_err err;
};

/* Reads "gs" and the words of text. */
static int read_line(struct line *line, char *text, bool stop)
{
    static char name[] = "gs";
    const struct gs_option table[] = {
        {"all", NULL, GS_OPTION_FLAG, &line->all, 0, 0, "", NULL, 'a', 0},
        {"brief", NULL, GS_OPTION_FLAG, &line->brief, 0, 0, "", NULL, 'b', 0},
        {"path", "PATH", GS_OPTION_TEXT, &line->path, 0, 0, "", NULL, 'p', 0},
        {"number", "N", GS_OPTION_COUNT, &line->number, 0, 9, "", NULL, 0, 0},
        {"place", "[DIR]", GS_OPTION_TEXT, NULL, 0, 0, "", NULL, 0,
         offsetof(struct line, place)},
        {"skip", "GLOB", GS_OPTION_LIST, &line->skip, 0, 0, "", NULL, 's', 0},
        {0},
    };

    *line = (struct line){.words = {name}, .count = 1, .index = 1};
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        line->words[line->count++] = word;
    return gs_options_parse(table, line, stop, line->count, line->words, &line->index,
                            &line->err);
}

static void options_stand_anywhere_before_two_dashes(void **state)
{
    char text[] = "x -a y --path=/p --number 7 -- z --brief";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, text, false), 0);
    assert_true(line.all);
    assert_false(line.brief);
    assert_string_equal(line.path, "/p");
    assert_int_equal(line.number, 7);
    assert_int_equal(line.count - line.index, 4);
    assert_string_equal(line.words[line.index], "x");
    assert_string_equal(line.words[line.index + 1], "y");
    assert_string_equal(line.words[line.index + 3], "--brief");
}

static void letters_stand_together_and_with_their_value(void **state)
{
    char text[] = "-abp/p x";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, text, false), 0);
    assert_true(line.all && line.brief);
    assert_string_equal(line.path, "/p");
    assert_int_equal(line.index, line.count - 1);
}

static void negative_number_is_an_argument(void **state)
{
    char first[] = "-7 -a", later[] = "x -12 -a", value[] = "--path -3 x";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, first, false), 0);
    assert_true(line.all);
    assert_string_equal(line.words[line.index], "-7");
    assert_int_equal(read_line(&line, later, false), 0);
    assert_true(line.all);
    assert_string_equal(line.words[line.index + 1], "-12");
    assert_int_equal(read_line(&line, value, false), 0);
    assert_string_equal(line.path, "-3");
    assert_int_equal(line.index, line.count - 1);
}

static void value_in_brackets_may_be_left_out(void **state)
{
    char before[] = "--place -a x", last[] = "x --place", given[] = "--place /d -a x";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, before, false), 0);
    assert_ptr_equal(line.place, gs_option_left_out);
    assert_true(line.all);
    assert_int_equal(line.index, line.count - 1);
    assert_int_equal(read_line(&line, last, false), 0);
    assert_ptr_equal(line.place, gs_option_left_out);
    assert_int_equal(read_line(&line, given, false), 0);
    assert_string_equal(line.place, "/d");
    assert_true(line.all);
}

static void list_grows_until_it_is_full(void **state)
{
    char few[] = "-s a x --skip=b";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, few, false), 0);
    assert_int_equal(line.skip.count, 2);
    assert_string_equal(line.skip.texts[1], "b");
    line.skip.count = GS_OPTION_LIST_MOST;
    assert_int_equal(
        gs_option_value(
            &(struct gs_option){.name = "skip", .kind = GS_OPTION_LIST, .value = &line.skip},
            "c", &line.err),
        -EINVAL);
    assert_non_null(strstr(line.err.text, "only 64 times"));
}

static void command_ends_the_options_before_it(void **state)
{
    char text[] = "-a run -b --path /p";
    struct line line;

    (void)state;
    assert_int_equal(read_line(&line, text, true), 0);
    assert_true(line.all);
    assert_false(line.brief);
    assert_int_equal(line.count - line.index, 4);
    assert_string_equal(line.words[line.index], "run");
    assert_string_equal(line.words[line.index + 1], "-b");
}

static void what_is_wrong_is_named(void **state)
{
    struct {
        char text[24];
        const char *said;
    } lines[] = {{"--frob", "unknown option --frob"}, {"x -z", "unknown option -z"},
                 {"-az", "unknown option -z"},        {"--all=1", "--all takes no value"},
                 {"x --path", "--path needs PATH"},   {"-p", "--path needs PATH"},
                 {"--number 10", "outside 0 to 9"},   {"--number -3", "not a whole number"}};
    struct line line;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(read_line(&line, lines[i].text, false), -EINVAL);
        if (strstr(line.err.text, lines[i].said) == NULL)
            fail_msg("'%s', not '%s'", line.err.text, lines[i].said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_stand_anywhere_before_two_dashes),
        cmocka_unit_test(letters_stand_together_and_with_their_value),
        cmocka_unit_test(negative_number_is_an_argument),
        cmocka_unit_test(value_in_brackets_may_be_left_out),
        cmocka_unit_test(list_grows_until_it_is_full),
        cmocka_unit_test(command_ends_the_options_before_it),
        cmocka_unit_test(what_is_wrong_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
