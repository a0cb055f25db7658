/* SPDX-License-Identifier: Apache-2.0
 *
 * successor.c: finds a program with a higher limit of descriptors, and waits for its daemon.
 * State: struct lockd_successor in the server.
 */
#include "lockd/server/successor.h"

#include "lockd/server/server.h"
#include "lockd/start/sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_NS 5000000000u /* a program tries again after 0.2 s, and starts a daemon */
#define LOOK_NS 20000000u

static uint64_t read_own_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

/* The limit of a daemon that this program would start; 0: it is another user's program. */
static uint64_t read_limit_through(uid_t uid, pid_t pid)
{
    struct rlimit limit;

    if (uid != geteuid() || pid <= 0 || prlimit(pid, RLIMIT_NOFILE, NULL, &limit) != 0)
        return 0;
    return limit.rlim_max < LOCKD_DESCRIPTORS_MAX ? limit.rlim_max : LOCKD_DESCRIPTORS_MAX;
}

static uint64_t read_limit_of(const struct lockd_connection *connection)
{
    return connection->client != NULL && !connection->peer.foreign && !connection->dead
               ? read_limit_through(connection->peer.uid, connection->peer.pid)
               : 0;
}

static bool can_make_way(const struct lockd_server *server)
{
    return server->successor.sockets != NULL && server->successor.until == 0 &&
           !server->loop.stop;
}

static void make_way(struct lockd_server *server, pid_t pid)
{
    lockd_log(LOCKD_LOG_INFO,
              "%llu descriptors are not enough: process %d, whose limit is higher, is "
              "to start the next gpushare-lockd",
              (unsigned long long)read_own_limit(), (int)pid);
    lockd_sockets_leave(server->successor.sockets);
    while (server->admission.listener_count > 0)
        close(server->admission.listeners
                  [--server->admission.listener_count]); /* which removes it from epoll */
    server->admission.listening = true;                  /* nothing to watch again */
    server->successor.until = lockd_now() + WAIT_NS;
}

static struct lockd_connection *find_highest_limit(struct lockd_server *server, uint64_t above)
{
    struct lockd_connection *found = NULL;

    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        const uint64_t limit = read_limit_of(each);

        if (limit > above) {
            above = limit;
            found = each;
        }
    }
    return found;
}

bool lockd_successor_look(struct lockd_server *server, int fd)
{
    struct lockd_connection *found;
    struct ucred caller;
    socklen_t size = sizeof caller;

    server->successor.wanted = true;
    if (!can_make_way(server))
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &caller, &size) == 0 &&
        read_limit_through(caller.uid, caller.pid) > read_own_limit()) {
        make_way(server, caller.pid);
        return true;
    }
    found = find_highest_limit(server, read_own_limit());
    if (found == NULL)
        return false;
    make_way(server, found->peer.pid);
    lockd_connection_kill(found, NULL);
    return true;
}

void lockd_successor_came(struct lockd_server *server, struct lockd_connection *connection)
{
    if (!server->successor.wanted || !can_make_way(server) ||
        read_limit_of(connection) <= read_own_limit())
        return;
    make_way(server, connection->peer.pid);
    lockd_connection_kill(connection, NULL);
}

static int listen_again(struct lockd_server *server, const struct lockd_sockets *sockets)
{
    for (unsigned i = 0; i < sockets->count; i++) {
        struct epoll_event event = {.events = EPOLLIN,
                                    .data.ptr = &server->admission.listeners[i]};

        server->admission.listeners[i] = sockets->spot[i].listener;
        server->admission.listener_count++;
        if (epoll_ctl(server->loop.epoll, EPOLL_CTL_ADD, server->admission.listeners[i],
                      &event) != 0)
            return -errno;
    }
    return 0;
}

/* No successor has started: this daemon continues, and may try again later. */
static void take_place_again(struct lockd_server *server)
{
    struct lockd_sockets *sockets = server->successor.sockets;
    struct lockd_sockets again;
    struct gs_err err = {0};
    int code = lockd_sockets_take(&again, &sockets->wanted, &err);

    server->successor = (struct lockd_successor){.sockets = NULL};
    if (code == LOCKD_ALREADY) {
        server->loop.stop = true;
        return;
    }
    if (code == 0) {
        *sockets = again;
        code = listen_again(server, sockets);
    }
    if (code != 0) {
        lockd_log(LOCKD_LOG_ERROR, "the socket was lost: %s",
                  err.code != 0 ? err.text : strerror(-code));
        server->loop.stop = true;
        return;
    }
    lockd_log(LOCKD_LOG_WARNING, "no other gpushare-lockd was started: this one continues");
}

uint64_t lockd_successor_tend(struct lockd_server *server, uint64_t now)
{
    if (server->successor.until == 0 || server->loop.stop)
        return LOCKD_NEVER;
    if (lockd_sockets_is_served(server->successor.sockets)) {
        lockd_log(LOCKD_LOG_INFO, "the next gpushare-lockd serves: ending");
        server->loop.stop = true;
        return now;
    }
    if (now >= server->successor.until) {
        take_place_again(server);
        return LOCKD_NEVER;
    }
    return now + LOOK_NS;
}
