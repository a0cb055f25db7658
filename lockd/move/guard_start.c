/* SPDX-License-Identifier: Apache-2.0
 *
 * guard_start.c: starts a guard (guard.h) and receives its messages. Where the guard service runs
 * and admits this user, systemd starts a guard for the connection. Else the guard is this program
 * again, in a process of its own that has one end of a socket pair and no other descriptor of the
 * daemon. No state. The daemon does not wait for guards (SIGCHLD is ignored).
 */
#include "lockd/move/guard_start.h"

#include "common/packet.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
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

/* Connects to a guard of the service, which may checkpoint programs of all users. -errno: there
 * is none. */
static int call_service(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *named = getenv("GPUSHARE_GUARD_SOCKET");
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int code = fd < 0 ? -errno : 0;

    snprintf(address.sun_path, sizeof address.sun_path, "%s",
             named != NULL && *named != '\0' ? named : LOCKD_GUARD_SOCKET);
    if (code == 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        code = -errno;
    if (code == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return code;
}

static int start_own(const struct lockd_guard_order *order)
{
    int ends[2], code;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    code = fcntl(ends[1], F_SETFL, 0) == 0 ? spawn_guard(order->pid, ends[1]) : -errno;
    close(ends[1]);
    if (code == 0)
        return ends[0];
    close(ends[0]);
    return code;
}

bool lockd_guard_order(int guard, const struct lockd_guard_order *order, int with)
{
    const struct gs_descriptors one = {.fd = {with}, .count = 1};

    return gs_packet_send(guard, order, sizeof *order, with >= 0 ? &one : NULL) ==
           (ssize_t)sizeof *order;
}

int lockd_guard_start(const struct lockd_guard_order *order, int with, int epoll, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    int guard = call_service(), code;

    if (guard < 0)
        guard = start_own(order);
    if (guard < 0)
        return guard;
    code = lockd_guard_order(guard, order, with) ? 0 : -EIO;
    if (code == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, guard, &event) != 0)
        code = -errno;
    if (code == 0)
        return guard;
    close(guard);
    return code;
}

bool lockd_guard_read(int guard, char word[LOCKD_GUARD_TEXT + 1])
{
    const ssize_t size = recv(guard, word, LOCKD_GUARD_TEXT, MSG_DONTWAIT);

    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (size > 0)
        word[size] = '\0';
    else
        snprintf(word, LOCKD_GUARD_TEXT, "?the guard ended");
    lockd_text_clean(word, LOCKD_GUARD_TEXT + 1);
    return true;
}

const char *lockd_guard_advice(void)
{
    const int fd = call_service();

    if (fd >= 0) {
        close(fd);
        return "";
    }
    return "; this daemon may not checkpoint programs itself: `systemctl enable --now "
           "gpushare-guard.socket` allows it (gpushare-lockd(8), MOVES)";
}
