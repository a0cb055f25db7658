/* SPDX-License-Identifier: Apache-2.0
 *
 * admit.c: who may connect, and how many at once. Whoever is refused is told why by one END
 * message before the connection is closed, so that neither a program nor gpusharectl has to
 * guess. One thread, nothing blocks.
 *
 * Descriptors: the last quarter of them is kept for root and the daemon's user, and one is held
 * in reserve so that a caller can be refused even when there are none left.
 */
#include "lockd/start/inherited.h"
#include "lockd/base/log.h"
#include "lockd/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_OF_OUR_OWN 16u
#define GROUPS_MAX     1024
#define SILENT_NS      10000000000u /* a connection that says nothing */
#define LISTEN_AGAIN_NS                                                                        \
    1000000000u                   /* descriptors may be there again without an end of ours     \
                                   */
#define SAY_AGAIN_NS 10000000000u /* the same refusal in the log */

/* What is known of a caller when he has connected. */
struct caller {
    struct ucred who;
    gid_t groups[GROUPS_MAX];
    size_t group_count;
};

/* As many descriptors as the system allows; the rest of them is what clients may use. */
static uint32_t raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    limit.rlim_cur =
        limit.rlim_max < LOCKD_DESCRIPTORS_MAX ? limit.rlim_max : LOCKD_DESCRIPTORS_MAX;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    return limit.rlim_cur > 2ul * FDS_OF_OUR_OWN ? (uint32_t)limit.rlim_cur - FDS_OF_OUR_OWN
                                                 : FDS_OF_OUR_OWN;
}

int lockd_admit_init(struct lockd_server *server, struct gs_err *err)
{
    server->connection_limit = raise_fd_limit();
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return server->spare >= 0 ? 0 : gs_err_errno(err, -errno, "/dev/null");
}

static void listen_for(struct lockd_server *server, bool listening)
{
    bool done = server->listening != listening;

    for (unsigned i = 0; i < server->listener_count && done; i++) {
        struct epoll_event event = {.events = listening ? EPOLLIN : 0,
                                    .data.ptr = &server->listeners[i]};

        done = epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listeners[i], &event) == 0;
    }
    if (done)
        server->listening = listening;
}

void lockd_admit_again(struct lockd_server *server)
{
    if (server->spare < 0)
        server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->spare >= 0)
        listen_for(server, true);
}

uint64_t lockd_admit_resume(struct lockd_server *server, uint64_t now)
{
    if (server->listening)
        return LOCKD_NEVER;
    if (now >= server->listen_at) {
        server->listen_at = now + LISTEN_AGAIN_NS;
        lockd_admit_again(server);
    }
    return server->listening ? LOCKD_NEVER : server->listen_at;
}

static int read_caller(int fd, struct caller *caller)
{
    socklen_t size = sizeof caller->who;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &caller->who, &size) != 0)
        return -errno;
    size = sizeof caller->groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, caller->groups, &size) != 0)
        size = 0;
    caller->group_count = size / sizeof caller->groups[0];
    return 0;
}

static bool in_group(const struct caller *caller, gid_t group)
{
    if (group == (gid_t)-1)
        return false;
    if (caller->who.gid == group)
        return true;
    for (size_t i = 0; i < caller->group_count; i++) {
        if (caller->groups[i] == group)
            return true;
    }
    return false;
}

/* user: whose it is; NULL: not known. */
static void hang_up(struct lockd_server *server, struct lockd_user *user, int fd)
{
    struct gs_descriptors one = {.fd = {fd}, .count = 1};

    if (server->guarded || user == NULL)
        close(fd);
    else
        lockd_close_descriptors(server, user, &one);
}

static void refuse(int fd, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says why; whoever calls hangs up. */
static void refuse(int fd, int code, const char *format, ...)
{
    struct gs_wire_end end = {.code = code};
    va_list ap;

    lockd_wire_header(&end.header, GS_WIRE_END);
    va_start(ap, format);
    vsnprintf(end.text, sizeof end.text, format, ap);
    va_end(ap);
    if (send(fd, &end, sizeof end, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        lockd_log(LOCKD_LOG_DEBUG, "a refusal did not arrive: %s", strerror(errno));
}

static bool trusted(const struct caller *caller)
{
    return caller->who.uid == 0 || caller->who.uid == geteuid();
}

/* 0, or the refusal has been sent and logged. */
static int check(struct lockd_server *server, int fd, const struct caller *caller,
                 struct lockd_user *user)
{
    const uint64_t now = lockd_now(), most = server->config.set.max_connections;
    const bool may = trusted(caller) || in_group(caller, server->group) ||
                     in_group(caller, server->config.control_gid);
    const bool full =
        user->connections >= most ||
        (!trusted(caller) &&
         server->connection_count >= server->connection_limit - server->connection_limit / 4);

    if (may && !full)
        return 0;
    if (now - user->refusal_said > SAY_AGAIN_NS || user->refusal_said == 0)
        lockd_log(LOCKD_LOG_WARNING, "process %d of user %u %s: %u connections of this user",
                  (int)caller->who.pid, (unsigned)caller->who.uid,
                  may ? "is one too many" : "may not connect", user->connections);
    user->refusal_said = now;
    if (!may && server->group == (gid_t)-1)
        refuse(fd, -EACCES,
               "user %u may not use this gpushare-lockd; it serves user %u and root",
               (unsigned)caller->who.uid, (unsigned)geteuid());
    else if (!may)
        refuse(fd, -EACCES,
               "user %u may not use this gpushare-lockd: he must be in group %u, and log in "
               "again after he was added",
               (unsigned)caller->who.uid, (unsigned)server->group);
    else
        refuse(fd, -EDQUOT,
               "user %u has %u connections (the most: %llu of a user, %u of all): end some, or "
               "raise max-connections",
               (unsigned)caller->who.uid, user->connections, (unsigned long long)most,
               server->connection_limit - server->connection_limit / 4);
    return -EACCES;
}

/* No descriptor is left: the reserve is given up for a moment to turn the caller away. */
static void refuse_without_descriptor(struct lockd_server *server, int listener, int why)
{
    const uint64_t now = lockd_now();
    int fd;

    if (now - server->descriptors_said > SAY_AGAIN_NS || server->descriptors_said == 0)
        lockd_log(LOCKD_LOG_WARNING, "cannot accept connections: %s (%u are open)",
                  strerror(why), server->connection_count);
    server->descriptors_said = now;
    if (server->spare >= 0)
        close(server->spare);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        if (why != EMFILE || !lockd_successor_look(server, fd))
            refuse(fd, -EMFILE,
                   "gpushare-lockd has no descriptor left for another connection: raise its "
                   "limit (LimitNOFILE=, ulimit -n)");
        hang_up(server, NULL, fd);
    }
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->listener_count != 0 && (fd < 0 || server->spare < 0))
        listen_for(server, false); /* until a connection ends, or for a second */
    server->listen_at = now + LISTEN_AGAIN_NS;
}

void lockd_admit_one(struct lockd_server *server, int listener)
{
    struct lockd_connection *connection = NULL;
    struct lockd_user *user;
    struct caller caller;
    int fd;

    if (server->listener_count == 0) /* given up since it was heard of */
        return;
    if (server->connection_count >= server->connection_limit) {
        refuse_without_descriptor(server, listener, EMFILE);
        return;
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            refuse_without_descriptor(server, listener, errno);
        return;
    }
    if (read_caller(fd, &caller) != 0) {
        close(fd);
        return;
    }
    user = lockd_user_get(&server->users, caller.who.uid);
    if (user != NULL && check(server, fd, &caller, user) != 0) {
        hang_up(server, user, fd);
        lockd_user_put(user);
        return;
    }
    if (user != NULL)
        connection = lockd_connection_new(server, fd, user, caller.who.pid);
    if (connection == NULL) {
        refuse(fd, -ENOMEM, "gpushare-lockd has no memory for another connection");
        hang_up(server, user, fd);
        if (user != NULL)
            lockd_user_put(user);
        return;
    }
    connection->controls = trusted(&caller) || in_group(&caller, server->config.control_gid);
}

uint64_t lockd_admit_silent(struct lockd_server *server, uint64_t now)
{
    while (!lockd_list_empty(&server->silent)) {
        struct lockd_connection *connection =
            lockd_entry(server->silent.next, struct lockd_connection, silent);

        if (now < connection->since + SILENT_NS)
            return connection->since + SILENT_NS;
        lockd_list_remove(&connection->silent);
        lockd_connection_kill(connection, "it has said nothing for 10 s");
    }
    return LOCKD_NEVER;
}
