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

#include "lockd/base/hostmem.h"
#include "tests/common/made_tree.h"

static int make_tree(void **state)
{
    if (made_tree_begin(state) != 0)
        return -1;
    made_tree_put("/proc/meminfo", "MemAvailable: 10 kB\n");
    made_tree_put("/proc/self/mountinfo", "30 20 0:26 / /groups rw - cgroup2 cgroup2 rw\n");
    made_tree_put("/proc/self/cgroup", "0::/service\n");
    made_tree_put("/groups/service/memory.max", "1\n");
    made_tree_put("/groups/box/memory.max", "4000\n");
    made_tree_put("/groups/box/small/memory.max", "100\n");
    made_tree_put("/proc/1/cgroup", "0::/box\n");
    made_tree_put("/proc/2/cgroup", "0::/box/small\n");
    made_tree_put("/proc/3/cgroup", "0::/elsewhere\n");
    return 0;
}

static struct lockd_host host_here(void)
{
    struct lockd_host host;

    lockd_host_init(&host);
    host.root = made_tree;
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

    return cmocka_run_group_tests(tests, make_tree, made_tree_end);
}
