/* SPDX-License-Identifier: Apache-2.0
 *
 * test_classes.c: the classes that the configuration gives to users and units (lockd/start/config.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lockd/protocol/setting_table.h"
#include "lockd/start/config.h"

#define AUTO        GS_CLASS_AUTO
#define INTERACTIVE GS_CLASS_INTERACTIVE
#define BATCH       GS_CLASS_BATCH
#define BACKGROUND  GS_CLASS_BACKGROUND

static int take_text(struct lockd_lines *classes, const char *name, const char *value,
                     struct gs_err *err)
{
    return lockd_lines_read(classes, "classes", lockd_setting_find("class"), name, value, err);
}

static void take_line(struct lockd_lines *classes, const char *name, const char *value)
{
    struct gs_err err = {0};

    if (take_text(classes, name, value, &err) != 0)
        fail_msg("%s = %s: %s", name, value, err.text);
}

static void grant_without_a_line_is_what_was_asked(void **state)
{
    struct lockd_lines classes = {0};

    (void)state;
    take_line(&classes, "7", "background");
    take_line(&classes, "a.service", "background");
    for (unsigned asked = 0; asked < GS_CLASS_COUNT; asked++)
        assert_int_equal(
            lockd_classes_grant(&classes, 8, "/b.slice/aa.service/a.service.d", asked), asked);
}

static void grant_is_never_more_than_the_line_says(void **state)
{
    static const struct {
        const char *line;
        unsigned granted[GS_CLASS_COUNT]; /* to one that asks for none, interactive, ... */
    } cases[] = {
        {"auto", {AUTO, AUTO, BATCH, BACKGROUND}},
        {"interactive", {INTERACTIVE, INTERACTIVE, BATCH, BACKGROUND}},
        {"batch", {BATCH, BATCH, BATCH, BACKGROUND}},
        {"background", {BACKGROUND, BACKGROUND, BACKGROUND, BACKGROUND}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lockd_lines classes = {0};

        take_line(&classes, "7", cases[i].line);
        for (unsigned asked = 0; asked < GS_CLASS_COUNT; asked++)
            assert_int_equal(lockd_classes_grant(&classes, 7, "", asked),
                             cases[i].granted[asked]);
    }
}

static void grant_the_innermost_unit_counts_before_the_user(void **state)
{
    struct lockd_lines classes = {0};

    (void)state;
    take_line(&classes, "inner.service", "interactive");
    take_line(&classes, "outer.slice", "batch");
    take_line(&classes, "7", "background");
    assert_int_equal(lockd_classes_grant(&classes, 7, "/outer.slice/inner.service", AUTO),
                     INTERACTIVE);
    assert_int_equal(lockd_classes_grant(&classes, 7, "/inner.service/outer.slice", AUTO),
                     BATCH);
    assert_int_equal(lockd_classes_grant(&classes, 7, "/outer.slice/other.service/", AUTO),
                     BATCH);
    assert_int_equal(lockd_classes_grant(&classes, 7, "//other.slice/", AUTO), BACKGROUND);
    assert_int_equal(lockd_classes_grant(&classes, 8, "/", AUTO), AUTO);
}

/* jupyter.service may have a higher class, but not one that a user has named so. */
static void grant_a_users_own_unit_only_lowers(void **state)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    struct lockd_lines classes = {.count = 0};
    char path[200];

    (void)state;
    take_line(&classes, "7", "batch");
    take_line(&classes, "jupyter.service", "interactive");
    take_line(&classes, "nightly.service", "background");
    take_line(&classes, "gpu.slice", "batch");
    assert_int_equal(lockd_classes_grant(&classes, 7, "/system.slice/jupyter.service", AUTO),
                     INTERACTIVE);
    assert_int_equal(
        lockd_classes_grant(&classes, 7, "/user.slice/user@7.service/jupyter.service", AUTO),
        BATCH);
    assert_int_equal(lockd_classes_grant(&classes, 7,
                                         "/user.slice/user@7.service/jupyter.service",
                                         INTERACTIVE),
                     BATCH);
    assert_int_equal(
        lockd_classes_grant(&classes, 7, "/user.slice/user@7.service/nightly.service", AUTO),
        BACKGROUND);
    assert_int_equal(
        lockd_classes_grant(&classes, 8, "/user.slice/user@8.service/jupyter.service", AUTO),
        INTERACTIVE);
    snprintf(path, sizeof path, "/gpu.slice/docker-%s.scope/jupyter.service", id);
    assert_int_equal(lockd_classes_grant(&classes, 8, path, INTERACTIVE), BATCH);
    snprintf(path, sizeof path, "/gpu.slice/docker-%s.scope/nightly.service", id);
    assert_int_equal(lockd_classes_grant(&classes, 8, path, AUTO), BACKGROUND);
}

static void take_a_later_line_of_the_same_name_counts(void **state)
{
    struct lockd_lines classes = {0};

    (void)state;
    take_line(&classes, "root", "batch");
    take_line(&classes, "0", "background");
    take_line(&classes, "a.scope", "batch");
    take_line(&classes, "a.scope", "interactive");
    assert_int_equal(classes.count, 2);
    assert_int_equal(lockd_classes_grant(&classes, 0, "", AUTO), BACKGROUND);
    assert_int_equal(lockd_classes_grant(&classes, 1, "/a.scope", AUTO), INTERACTIVE);
}

static void take_more_lines_than_there_is_room_for_is_refused(void **state)
{
    struct lockd_lines classes = {0};
    struct gs_err err = {0};
    char name[32];

    (void)state;
    for (int i = 0; i < LOCKD_LINES; i++) {
        snprintf(name, sizeof name, "%d", i);
        take_line(&classes, name, "batch");
    }
    take_line(&classes, "5", "background"); /* no more of them than before */
    assert_int_equal(take_text(&classes, "x.service", "batch", &err), -EINVAL);
    assert_non_null(strstr(err.text, "x.service"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grant_without_a_line_is_what_was_asked),
        cmocka_unit_test(grant_is_never_more_than_the_line_says),
        cmocka_unit_test(grant_the_innermost_unit_counts_before_the_user),
        cmocka_unit_test(grant_a_users_own_unit_only_lowers),
        cmocka_unit_test(take_a_later_line_of_the_same_name_counts),
        cmocka_unit_test(take_more_lines_than_there_is_room_for_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
