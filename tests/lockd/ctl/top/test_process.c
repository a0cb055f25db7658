/* SPDX-License-Identifier: Apache-2.0 */
#include "lockd/ctl/watch/top_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t start_child(void)
{
    const pid_t pid = fork();

    if (pid == 0) {
        pause();
        _exit(1);
    }
    assert_true(pid > 0);
    return pid;
}

static void end_child(pid_t pid, int number)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
}

static void signal_right_process_ends(void **state)
{
    struct gs_wire_client client = {.pid = start_child(), .uid = geteuid(), .connected_ns = 0};
    struct gs_err err = {0};
    const int fd = top_process_open(&client, &err);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(top_process_signal(fd, SIGTERM, &err), 0);
    end_child(client.pid, SIGTERM);
    assert_int_equal(top_process_signal(fd, SIGTERM, &err),
                     -ESRCH); /* whoever has its number now */
    close(fd);
}

static void open_process_younger_than_its_connection_is_refused(void **state)
{
    struct gs_wire_client client = {
        .pid = start_child(), .uid = geteuid(), .connected_ns = 60000000000u};
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(top_process_open(&client, &err), -ESRCH);
    assert_non_null(err.text);
    kill(client.pid, SIGKILL);
    end_child(client.pid, SIGKILL);
}

static void open_process_of_another_user_or_namespace_is_refused(void **state)
{
    struct gs_wire_client client = {.pid = start_child(), .uid = geteuid() + 1};
    struct gs_err err = {0};

    (void)state;
    assert_int_equal(top_process_open(&client, &err), -ESRCH);
    client.uid = geteuid();
    client.flags = GS_CLIENT_FOREIGN;
    assert_int_equal(top_process_open(&client, &err), -ESRCH);
    client.flags = 0;
    kill(client.pid, SIGKILL);
    end_child(client.pid, SIGKILL);
    assert_int_equal(top_process_open(&client, &err), -ESRCH);
    client.pid = 0;
    assert_int_equal(top_process_open(&client, &err), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signal_right_process_ends),
        cmocka_unit_test(open_process_younger_than_its_connection_is_refused),
        cmocka_unit_test(open_process_of_another_user_or_namespace_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
