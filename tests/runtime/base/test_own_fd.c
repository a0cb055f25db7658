/* SPDX-License-Identifier: Apache-2.0
 *
 * test_own_fd.c: descriptors whose numbers a program closes and uses for files of its own. One
 * thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/own_fd.h"

static struct gs_own_fd own;

static int new_file(void)
{
    const int fd = memfd_create("file", 0);

    assert_true(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static rlim_t limit_numbers(rlim_t most)
{
    struct rlimit limit;
    rlim_t before;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    before = limit.rlim_cur;
    limit.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void own_fd_set_moves_it_above_the_programs_numbers(void **state)
{
    const int fd = new_file();

    (void)state;
    gs_own_fd_set(&own, fd);
    assert_true(gs_own_fd(&own) >= gs_own_fd_floor());
    assert_false(is_open(fd));
    assert_true((fcntl(gs_own_fd(&own), F_GETFD) & FD_CLOEXEC) != 0);
    gs_own_fd_close(&own);
    assert_int_equal(gs_own_fd(&own), -1);
}

/* closed, closed and opened anew, replaced: nothing that is the program's is used or closed */
static void own_fd_of_a_number_that_was_taken_is_none(void **state)
{
    int number, file;

    (void)state;
    gs_own_fd_set(&own, new_file());
    number = gs_own_fd(&own);
    close(number);
    errno = ENOTTY;
    assert_int_equal(gs_own_fd(&own), -1);
    gs_own_fd_close(&own);
    assert_int_equal(errno, ENOTTY);
    gs_own_fd_set(&own, new_file());
    number = gs_own_fd(&own);
    file = new_file();
    assert_int_equal(dup2(file, number), number);
    assert_int_equal(gs_own_fd(&own), -1);
    gs_own_fd_close(&own);
    assert_true(is_open(number));
    close(number);
    close(file);
}

static void own_fd_floor_fits_the_limit(void **state)
{
    const rlim_t before = limit_numbers(64);

    (void)state;
    assert_int_equal(gs_own_fd_floor(), 56);
    gs_own_fd_set(&own, new_file());
    assert_in_range(gs_own_fd(&own), 56, 63);
    gs_own_fd_close(&own);
    limit_numbers(before < 4096 ? before : 4096);
    assert_int_equal(gs_own_fd_floor(), before < 1170 ? before - before / 8 : 1024);
    limit_numbers(before);
}

/* No higher number is left: it keeps the one it has. */
static void own_fd_set_without_a_higher_number_keeps_it(void **state)
{
    const int fd = new_file();
    rlim_t before;

    (void)state;
    before = limit_numbers((rlim_t)fd + 1);
    gs_own_fd_set(&own, fd);
    limit_numbers(before);
    assert_int_equal(gs_own_fd(&own), fd);
    gs_own_fd_close(&own);
    assert_false(is_open(fd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_fd_set_moves_it_above_the_programs_numbers),
        cmocka_unit_test(own_fd_of_a_number_that_was_taken_is_none),
        cmocka_unit_test(own_fd_floor_fits_the_limit),
        cmocka_unit_test(own_fd_set_without_a_higher_number_keeps_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
