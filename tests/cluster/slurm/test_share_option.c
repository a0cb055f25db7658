/* SPDX-License-Identifier: Apache-2.0
 *
 * What --gpushare and plugstack.conf may say.
 */
#include "cluster/slurm/share_option.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void option_good_words_are_taken(void **state)
{
    static const struct {
        const char *text, *class;
        unsigned weight;
    } rows[] = {
        {NULL, "", 0},           {"", "", 0},
        {"auto", "auto", 0},     {"interactive", "interactive", 0},
        {"batch:1", "batch", 1}, {"background:10000", "background", 10000},
        {":250", "", 250},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gs_share_option option = {.class = "old", .weight = 7};
        struct gs_err err = {0};

        assert_int_equal(gs_share_option_parse(rows[i].text, &option, &err), 0);
        assert_string_equal(option.class, rows[i].class);
        assert_int_equal(option.weight, rows[i].weight);
    }
}

static void option_bad_words_are_refused_with_what_is_allowed(void **state)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"fast", "auto, interactive, batch or background"},
        {"batc", "the class must be"},
        {"batch2", "the class must be"},
        {"Batch", "the class must be"},
        {"batch ", "the class must be"},
        {"batch:", "from 1 to 10000"},
        {":", "from 1 to 10000"},
        {"batch:0", "from 1 to 10000"},
        {"batch:10001", "from 1 to 10000"},
        {"batch:-5", "'-5'"},
        {"batch:+5", "'+5'"},
        {"batch: 5", "must be a number"},
        {"batch:5x", "'5x'"},
        {"batch:5:6", "'5:6'"},
        {"batch:99999999999999999999", "from 1 to 10000"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gs_share_option option;
        struct gs_err err = {0};

        assert_int_equal(gs_share_option_parse(rows[i].text, &option, &err), -EINVAL);
        if (strstr(err.text, rows[i].reason) == NULL)
            fail_msg("%s: %s", rows[i].text, err.text);
    }
}

static void config_without_words_names_the_installed_programs(void **state)
{
    struct gs_share_config config;
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(gs_share_config_parse(0, NULL, &config, &err), 0);
    assert_true(config.door[0] == '/' && strstr(config.door, "/gpushare-door") != NULL);
    assert_true(config.ctl[0] == '/' && strstr(config.ctl, "/gpusharectl") != NULL);
    assert_true(config.record && !config.shards);
}

static void config_words_are_taken(void **state)
{
    char door[] = "door=/opt/door", ctl[] = "ctl=/opt/ctl", shards[] = "shards",
         norecord[] = "norecord";
    char *words[] = {door, ctl, shards, norecord};
    struct gs_share_config config;
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(gs_share_config_parse(4, words, &config, &err), 0);
    assert_string_equal(config.door, "/opt/door");
    assert_string_equal(config.ctl, "/opt/ctl");
    assert_true(config.shards && !config.record);
}

static void config_bad_words_are_refused(void **state)
{
    char relative[] = "door=door", none[] = "ctl=", other[] = "shard",
         large[PATH_MAX + 8] = "door=/";
    char *words[] = {relative, none, other, large};

    (void)state;
    memset(large + 6, 'x', sizeof large - 7);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct gs_share_config config;
        struct gs_err err = {0};

        assert_int_equal(gs_share_config_parse(1, words + i, &config, &err), -EINVAL);
        assert_non_null(strstr(err.text, i == 2 ? "takes door=PATH" : "give the full path"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(option_good_words_are_taken),
        cmocka_unit_test(option_bad_words_are_refused_with_what_is_allowed),
        cmocka_unit_test(config_without_words_names_the_installed_programs),
        cmocka_unit_test(config_words_are_taken),
        cmocka_unit_test(config_bad_words_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
