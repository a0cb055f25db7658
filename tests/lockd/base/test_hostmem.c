/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hostmem.c: the limit that all programs share (lockd/base/hostmem.c), with a made-up /proc and
 * /sys. What one group leaves is test_memory_left.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lockd/base/hostmem.h"

static char root[] = "/tmp/gs-test-hostmem-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    FILE *file;

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + sizeof root; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (mkdir(full, 0700) != 0)
            assert_int_equal(errno, EEXIST);
        *at = '/';
    }
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_tree(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL)
        return -1;
    put("/proc/meminfo", "MemAvailable: 10 kB\n");
    put("/proc/self/mountinfo", "30 20 0:26 / /groups rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/service\n");
    put("/groups/service/memory.max", "1\n");
    put("/groups/box/memory.max", "4000\n");
    put("/groups/box/small/memory.max", "100\n");
    put("/proc/1/cgroup", "0::/box\n");
    put("/proc/2/cgroup", "0::/box/small\n");
    put("/proc/3/cgroup", "0::/elsewhere\n");
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static int remove_tree(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct lockd_host host_here(void)
{
    struct lockd_host host;

    lockd_host_init(&host);
    host.root = root;
    return host;
}

static void available_noProgram_whatTheMachineHas(void **state)
{
    const struct lockd_host host = host_here();

    (void)state;
    assert_int_equal(lockd_host_available(&host), 10240); /* our own limit is our own */
}

static void available_allInOneGroup_itsLimit(void **state)
{
    struct lockd_host host = host_here();

    (void)state;
    assert_true(lockd_host_came(&host, true, 2));
    assert_int_equal(lockd_host_available(&host), 100);
    assert_false(lockd_host_came(&host, false, 2));
    assert_true(lockd_host_came(&host, false, 1));
    assert_int_equal(lockd_host_available(&host), 4000);
    assert_true(lockd_host_came(&host, false, 3));
    assert_int_equal(lockd_host_available(&host), 10240);
    assert_true(lockd_host_came(&host, true, 1)); /* all others have left */
    assert_int_equal(lockd_host_available(&host), 4000);
}

static void available_oneCannotBeSeen_whatTheMachineHas(void **state)
{
    static const int unseen[] = {0, 4};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct lockd_host host = host_here();

        assert_true(lockd_host_came(&host, true, 2));
        assert_true(lockd_host_came(&host, false, unseen[i]));
        assert_int_equal(lockd_host_available(&host), 10240);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(available_noProgram_whatTheMachineHas),
        cmocka_unit_test(available_allInOneGroup_itsLimit),
        cmocka_unit_test(available_oneCannotBeSeen_whatTheMachineHas),
    };

    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
