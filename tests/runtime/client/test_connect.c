/* SPDX-License-Identifier: Apache-2.0
 *
 * test_connect.c: a program that takes the library's number while the library connects
 * (connect.c). The daemon is a socket of this test. One thread: the number is taken within the
 * library's call of getsockopt().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/client/connect.h"
#include "runtime/client/start.h"

enum taken { CLOSED, FILE_THERE, SOCKET_THERE, TAKEN_COUNT };

static enum taken how;
static int to_be_taken; /* so often yet */
static int number;      /* that was taken last */
static int others;      /* the other end of the program's socket; -1: it has none */

void gs_log(const char *format, ...)
{
    (void)format;
}

void gs_say_once(bool *said, const char *format, ...)
{
    (void)said;
    fail_msg("%s", format);
}

int gs_start_daemon(const struct gs_places *places, struct gs_err *why)
{
    (void)places;
    (void)why;
    fail_msg("a daemon is there");
    return -EAGAIN;
}

static void take_number(int fd)
{
    struct stat file = {0};
    int new[2] = {-1, -1};

    assert_int_equal(fstat(fd, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    number = fd;
    close(fd);
    if (how == FILE_THERE)
        new[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (how == SOCKET_THERE)
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, new), 0);
    if (new[0] >= 0 && new[0] != fd) {
        assert_int_equal(dup2(new[0], fd), fd);
        close(new[0]);
    }
    others = new[1];
}

/* Not hidden, as in test_told.c. */
__attribute__((visibility("default"))) int __real_getsockopt(int fd, int level, int option,
                                                             void *value, socklen_t *size);
__attribute__((visibility("default"))) int __wrap_getsockopt(int fd, int level, int option,
                                                             void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
    if (to_be_taken > 0) {
        to_be_taken--;
        take_number(fd);
    }
    return __real_getsockopt(fd, level, option, value, size);
}

static int listen_in(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

/* The last of the callers says HELLO, the others say nothing. */
static void hear_hello(int listener, unsigned callers)
{
    struct gs_wire_hello hello;

    for (unsigned i = 0; i < callers; i++) {
        const int caller = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        assert_int_equal(recv(caller, &hello, sizeof hello, 0),
                         i == callers - 1 ? (ssize_t)sizeof hello : 0);
        close(caller);
    }
}

static void taken_while_it_connects(void **state)
{
    char folder[] = "/tmp/gpushare-connect-XXXXXX", path[64], byte;
    int listener;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/lockd.sock", folder);
    listener = listen_in(path);
    setenv("GPUSHARE_SOCKET", path, 1);
    for (how = CLOSED; how < TAKEN_COUNT; how++) {
        struct gs_own_fd connection = {.number = 0};
        struct gs_err why = {0};
        struct stat there;

        to_be_taken = 2;
        others = -1;
        assert_int_equal(gs_connect(true, &connection, &why), 0);
        assert_int_equal(to_be_taken, 0);
        assert_true(gs_own_fd(&connection) >= 0);
        hear_hello(listener, 3);
        if (how != CLOSED) {
            assert_int_not_equal(gs_own_fd(&connection), number);
            assert_int_equal(fstat(number, &there), 0); /* the program's still */
            close(number);
        }
        if (others >= 0) { /* ... and nothing was said in it */
            assert_int_equal(recv(others, &byte, sizeof byte, MSG_DONTWAIT), 0);
            close(others);
        }
        gs_own_fd_close(&connection);
    }
    close(listener);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taken_while_it_connects)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
