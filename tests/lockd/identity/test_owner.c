/* SPDX-License-Identifier: Apache-2.0
 *
 * test_owner.c: to whom the system gave a uid (lockd/programs/identity.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lockd/programs/identity.h"

static void write_file(char *path, const char *text)
{
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void uid_of_a_range_is_its_owners(void **state)
{
    static const struct {
        uid_t uid, owner;
    } cases[] = {
        {0, 0},           {1000, 1000},     {99999, 99999}, {100000, 1000},
        {165535, 1000},   {165536, 165536}, {200000, 1001}, {200009, 1001},
        {200010, 200010}, {300005, 300000}, /* no such user */
        {400000, 400000},                   /* the line is broken */
        {500000, 1000},
    };
    char long_line[6000];
    char subuid[] = "/tmp/gpushare-subuid.XXXXXX", passwd[] = "/tmp/gpushare-passwd.XXXXXX";

    (void)state;
    write_file(subuid, "# comment\nann:100000:65536\n1001:200000:10\nghost:300000:100\n"
                       "ann:400000\nann:x400000:5\n:\n\nann:500000:1");
    snprintf(long_line, sizeof long_line,
             "root:x:0:0:%04000d:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n", 0);
    write_file(passwd, long_line);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(lockd_owner_of(cases[i].uid, subuid, passwd), cases[i].owner);
    assert_int_equal(lockd_owner_of(100000, subuid, "/nonexistent"), 100000);
    assert_int_equal(lockd_owner_of(100001, "/nonexistent", passwd), 100001);
    unlink(subuid);
    unlink(passwd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(uid_of_a_range_is_its_owners)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
