/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_start.c: starts a guard (checkpoint.h): this program again, in a process of its own
 * that has one end of a socket pair and no other descriptor of the daemon. No state. The daemon
 * does not wait for guards (SIGCHLD is ignored).
 */
#include "lockd/guard/guard_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

static int spawn_guard(int32_t pid, int its_end)
{
    char number[16], name[] = "gpushare-lockd", option[] = "--guard";
    char *argv[] = {name, option, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t guard;
    int code;

    snprintf(number, sizeof number, "%d", (int)pid);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, its_end, STDIN_FILENO);
    code = posix_spawn(&guard, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -code;
}

int lockd_guard_start(int32_t pid, char order)
{
    int ends[2], code;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    code = fcntl(ends[1], F_SETFL, 0) == 0 && send(ends[0], &order, 1, MSG_NOSIGNAL) == 1
               ? spawn_guard(pid, ends[1])
               : -errno;
    close(ends[1]);
    if (code == 0)
        return ends[0];
    close(ends[0]);
    return code;
}
