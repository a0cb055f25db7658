/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the daemon's event loop: accepts connections of those who may connect, wakes the
 * lock when it asked for it, frees connections that ended, and leaves when told to or when
 * nobody has needed it for a while. One thread, nothing blocks.
 *
 * A connection is only marked dead while events are handled and freed after them, so no event
 * can meet a freed one.
 */
#include "lockd/server.h"
#include "lockd/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_PER_USER 2048
#define FDS_OF_OUR_OWN       16u
#define EVENTS               64
#define FIRST_PROGRAM_NS     1000000000u
#define GROUPS_MAX           1024

uint64_t lockd_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* As many descriptors as the system allows; the rest of them is what clients may use. */
static uint32_t raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    return limit.rlim_cur > 2ul * FDS_OF_OUR_OWN ? (uint32_t)limit.rlim_cur - FDS_OF_OUR_OWN
                                                 : FDS_OF_OUR_OWN;
}

static int watch(struct lockd_server *server, int fd, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};

    return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0 ? -errno : 0;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int lockd_server_init(struct lockd_server *server, const struct lockd_server_options *options,
                      int listener, gid_t group, struct gs_err *err)
{
    int code = 0;

    memset(server, 0, sizeof *server);
    server->options = *options;
    server->listener = listener;
    server->group = group;
    server->started = server->programs_gone = lockd_now();
    server->connection_limit = raise_fd_limit();
    lockd_list_init(&server->connections);
    lockd_list_init(&server->dead);
    server->signals = open_signals();
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->lock = lockd_lock_new(&options->settings, server->started);
    if (server->signals < 0 || server->epoll < 0)
        code = -errno;
    else if (server->lock == NULL)
        code = -ENOMEM;
    code = code != 0 ? code : watch(server, server->signals, &server->signals);
    code = code != 0 ? code : watch(server, listener, &server->listener);
    server->listening = code == 0;
    return code == 0 ? 0 : gs_err_errno(err, code, "cannot set up the event loop");
}

static bool in_group(int fd, const struct ucred *peer, gid_t group)
{
    gid_t groups[GROUPS_MAX];
    socklen_t size = sizeof groups;

    if (group == (gid_t)-1)
        return false;
    if (peer->gid == group)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0)
        return false;
    for (size_t i = 0; i < size / sizeof groups[0]; i++) {
        if (groups[i] == group)
            return true;
    }
    return false;
}

static uint32_t connections_of(const struct lockd_server *server, uid_t uid)
{
    uint32_t count = 0;

    for (const struct lockd_list *at = server->connections.next; at != &server->connections;
         at = at->next)
        count += lockd_entry(at, struct lockd_connection, link)->uid == uid;
    return count;
}

/* Decides whether a new connection is let in; says why not in the log. */
static bool admitted(struct lockd_server *server, int fd, struct ucred *peer)
{
    socklen_t size = sizeof *peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size) != 0)
        return false;
    if (peer->uid != geteuid() && peer->uid != 0 && !in_group(fd, peer, server->group)) {
        lockd_log(LOCKD_LOG_WARNING, "process %d of user %u may not connect", (int)peer->pid,
                  (unsigned)peer->uid);
        return false;
    }
    if (connections_of(server, peer->uid) >= CONNECTIONS_PER_USER) {
        lockd_log(LOCKD_LOG_WARNING, "user %u has %d connections: no more are accepted",
                  (unsigned)peer->uid, CONNECTIONS_PER_USER);
        return false;
    }
    return true;
}

static void listen_again(struct lockd_server *server, bool listening)
{
    struct epoll_event event = {.events = listening ? EPOLLIN : 0,
                                .data.ptr = &server->listener};

    if (server->listening == listening)
        return;
    if (epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listener, &event) == 0)
        server->listening = listening;
}

static void accept_one(struct lockd_server *server)
{
    struct lockd_connection *connection;
    struct ucred peer;
    const int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            lockd_log(LOCKD_LOG_WARNING, "cannot accept a connection: %s", strerror(errno));
            listen_again(server, false); /* until one ends */
        }
        return;
    }
    if (!admitted(server, fd, &peer)) {
        close(fd);
        return;
    }
    connection = lockd_connection_new(server, fd);
    if (connection == NULL) {
        close(fd);
        return;
    }
    connection->uid = peer.uid;
    connection->pid = peer.pid;
    if (server->connection_count >= server->connection_limit)
        listen_again(server, false);
}

void lockd_server_flush(struct lockd_server *server)
{
    struct lockd_send send;

    while (lockd_lock_next_send(server->lock, &send)) {
        lockd_wire_header(&send.target.header, GS_WIRE_TARGET);
        lockd_connection_send(send.owner, &send.target, sizeof send.target);
    }
}

static void bury(struct lockd_server *server)
{
    while (!lockd_list_empty(&server->dead)) {
        struct lockd_connection *connection =
            lockd_entry(server->dead.next, struct lockd_connection, link);
        struct lockd_client *client = connection->client;

        connection->client = NULL;
        if (client != NULL) {
            lockd_log(LOCKD_LOG_DEBUG, "%s (process %d) is gone", connection->name,
                      (int)connection->pid);
            lockd_lock_client_gone(server->lock, client, lockd_now());
            if (--server->program_count == 0)
                server->programs_gone = lockd_now();
        }
        lockd_connection_free(connection);
        server->connection_count--;
        listen_again(server, true);
        lockd_server_flush(server);
    }
}

/* Whoever started us has yet to connect. */
static uint64_t idle_deadline(const struct lockd_server *server)
{
    uint64_t wait = server->options.idle_exit_ns;

    if (wait == LOCKD_NEVER || server->program_count != 0)
        return LOCKD_NEVER;
    if (server->programs_gone == server->started && wait < FIRST_PROGRAM_NS)
        wait = FIRST_PROGRAM_NS;
    return server->programs_gone + wait;
}

static int wait_ms(const struct lockd_server *server)
{
    const uint64_t now = lockd_now(), lock = lockd_lock_deadline(server->lock);
    const uint64_t idle = idle_deadline(server), deadline = lock < idle ? lock : idle;
    uint64_t ms;

    if (deadline == LOCKD_NEVER)
        return -1;
    if (deadline <= now)
        return 0;
    ms = (deadline - now + 999999) / 1000000;
    return ms > 3600000 ? 3600000 : (int)ms;
}

static void handle(struct lockd_server *server, const struct epoll_event *event)
{
    struct lockd_connection *connection = event->data.ptr;

    if (event->data.ptr == &server->signals) {
        server->stop = true;
        lockd_log(LOCKD_LOG_INFO, "asked to end; programs keep what they hold");
    } else if (event->data.ptr == &server->listener) {
        accept_one(server);
    } else {
        if (!connection->dead && (event->events & EPOLLOUT) != 0)
            lockd_connection_writable(connection);
        if (!connection->dead && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
            lockd_connection_readable(connection);
    }
}

int lockd_server_run(struct lockd_server *server, struct gs_err *err)
{
    struct epoll_event events[EVENTS];

    while (!server->stop) {
        const int count = epoll_wait(server->epoll, events, EVENTS, wait_ms(server));

        if (count < 0 && errno != EINTR)
            return gs_err_errno(err, -errno, "epoll_wait");
        for (int i = 0; i < count; i++)
            handle(server, &events[i]);
        if (lockd_now() >= lockd_lock_deadline(server->lock))
            lockd_lock_tick(server->lock, lockd_now());
        lockd_server_flush(server);
        bury(server);
        if (lockd_now() >= idle_deadline(server)) {
            lockd_log(LOCKD_LOG_INFO, "no program is connected any more: leaving");
            server->stop = true;
        }
    }
    return 0;
}

void lockd_server_deinit(struct lockd_server *server)
{
    lockd_list_each (at, &server->connections)
        lockd_connection_free(lockd_entry(at, struct lockd_connection, link));
    lockd_list_each (dead, &server->dead)
        lockd_connection_free(lockd_entry(dead, struct lockd_connection, link));
    lockd_lock_free(server->lock);
    close(server->listener);
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->signals >= 0)
        close(server->signals);
}
