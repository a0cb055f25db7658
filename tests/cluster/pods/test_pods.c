/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pods.c: names of pods from a folder like kubelet's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/pods/pods.h"

#include <stdio.h>
#include <stdlib.h>
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

#define COUNT (sizeof entries / sizeof *entries)

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

static int make_folder(void **state)
{
    static char folder[] = "/tmp/gs-pods-XXXXXX";
    char path[128];

    if (mkdtemp(folder) == NULL)
        return -1;
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]);
        if (mkdir(path, 0700) != 0)
            return -1;
    }
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    char path[128];

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
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
