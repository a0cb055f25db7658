/* SPDX-License-Identifier: Apache-2.0
 *
 * test_log.c: what others choose, such as the name of a container, reaches a terminal or a journal
 * without control characters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockd/base/log.h"

#include <string.h>
#include <unistd.h>

static void log_line_with_control_characters_is_cleaned(void **state)
{
    const int saved = dup(STDERR_FILENO);
    char said[4096] = "";
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    lockd_log_open(LOCKD_LOG_INFO);
    lockd_log(LOCKD_LOG_INFO, "container %s", "a\033[2Jb\nforged: line\302\233c");
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    assert_non_null(strstr(said, "container a?[2Jb?forged: line"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    assert_null(strchr(said, '\033'));
    assert_null(strchr(said, '\233'));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_line_with_control_characters_is_cleaned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
