/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pods.c: names of pods and containers from folders like kubelet's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/pods.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UID    "11111111-2222-3333-4444-555555555555"
#define STATIC "0123456789abcdef0123456789abcdef" /* of a pod from a file */

static const char *const entries[] = {
    "default_train-7d9c_" UID,
    "kube-system_proxy_" STATIC,
    "a_b_c_66666666-2222-3333-4444-555555555555",
    "_x_77777777-2222-3333-4444-555555555555",
    "x__88888888-2222-3333-4444-555555555555",
    "99999999-2222-3333-4444-555555555555",
};

#define ID     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER  "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BROKEN "e123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *const links[] = {
    "train-7d9c_default_worker-0-" ID ".log",
    "x_y_main-" OTHER ".log",
    "x_y_z_main-" BROKEN ".log", /* four parts */
    "x_y_-" BROKEN ".log",
    "x_main-" BROKEN ".log",
    "_y_main-" BROKEN ".log",
    "x__main-" BROKEN ".log",
    "x_y_main" BROKEN ".log",
    "x_y_main-" BROKEN ".txt",
    "-" BROKEN ".log",
    BROKEN,
};

#define COUNT (sizeof entries / sizeof *entries)
#define LINKS (sizeof links / sizeof *links)

static void find_known_uid_gives_names(void **state)
{
    struct pods_name name;

    assert_true(pods_find(*state, UID, &name));
    assert_string_equal(name.name, "train-7d9c");
    assert_string_equal(name.space, "default");
    assert_true(pods_find(*state, STATIC, &name));
    assert_string_equal(name.name, "proxy");
    assert_string_equal(name.space, "kube-system");
}

static void find_others_gives_nothing(void **state)
{
    static const char *const uids[] = {"",
                                       "555555555555",
                                       "66666666-2222-3333-4444-555555555555",
                                       "77777777-2222-3333-4444-555555555555",
                                       "88888888-2222-3333-4444-555555555555",
                                       "99999999-2222-3333-4444-555555555555"};
    struct pods_name name;

    for (size_t i = 0; i < sizeof uids / sizeof *uids; i++)
        assert_false(pods_find(*state, uids[i], &name));
    assert_false(pods_find("/nonexistent", UID, &name));
}

static void container_find_known_id_gives_name(void **state)
{
    char name[PODS_NAME_SIZE], little[4];

    assert_true(pods_container_find(*state, ID, name, sizeof name));
    assert_string_equal(name, "worker-0");
    assert_true(pods_container_find(*state, OTHER, name, sizeof name));
    assert_string_equal(name, "main");
    assert_true(pods_container_find(*state, OTHER, little, sizeof little));
    assert_string_equal(little, "mai");
}

static void container_find_others_gives_nothing(void **state)
{
    static const char *const ids[] = {"", BROKEN, "0123456789abcdef", ID "0",
                                      /* the end of a container's name and the id */
                                      "0-" ID "x"};
    char name[PODS_NAME_SIZE];

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        memset(name, 'x', sizeof name);
        assert_false(pods_container_find(*state, ids[i], name, sizeof name));
        assert_string_equal(name, "");
    }
    assert_false(pods_container_find("/nonexistent", ID, name, sizeof name));
}

static int make_folder(void **state)
{
    static char folder[] = "/tmp/gs-pods-XXXXXX";
    char path[256];

    if (mkdtemp(folder) == NULL)
        return -1;
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]);
        if (mkdir(path, 0700) != 0)
            return -1;
    }
    for (size_t i = 0; i < LINKS; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, links[i]);
        if (symlink("/nonexistent", path) != 0)
            return -1;
    }
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    char path[256];

    for (size_t i = 0; i < LINKS; i++) {
        snprintf(path, sizeof path, "%s/%s", (const char *)*state, links[i]);
        unlink(path);
    }
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s", (const char *)*state, entries[i]);
        rmdir(path);
    }
    return rmdir(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(find_known_uid_gives_names),
        cmocka_unit_test(find_others_gives_nothing),
        cmocka_unit_test(container_find_known_id_gives_name),
        cmocka_unit_test(container_find_others_gives_nothing),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
