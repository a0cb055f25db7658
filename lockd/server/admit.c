/* SPDX-License-Identifier: Apache-2.0
 *
 * admit.c: accepts callers as connections, up to the limits for each user and for all. A refused
 * caller gets one END message with the reason before its connection is closed, so that programs and
 * gpusharectl can show it. State: struct lockd_admission. One thread, nothing blocks.
 *
 * The last quarter of the descriptors is kept for root and the daemon's user, outside of
 * containers. One descriptor is held in reserve, so that a caller can be refused when no other is
 * left.
 */
#include "lockd/server/admit.h"

#include "lockd/server/server.h"
#include "lockd/start/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_OF_OUR_OWN  16u
#define GROUPS_MAX      1024
#define SILENT_NS       10000000000u /* the limit for a connection that sends nothing */
#define LISTEN_AGAIN_NS 1000000000u  /* another process may have closed descriptors */
#define SAY_AGAIN_NS    10000000000u /* between two equal lines in the log */

/* A process that has connected, as the kernel describes it. */
struct caller {
    struct ucred who;
    gid_t groups[GROUPS_MAX];
    size_t group_count;
};

/* Raises the limit of descriptors as far as the system allows. Returns the part for connections. */
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

void lockd_admit_init(struct lockd_admission *admission, const int *listeners, unsigned count,
                      gid_t group)
{
    *admission = (struct lockd_admission){
        .listener_count = count, .group = group, .listening = true, .spare = -1};
    memcpy(admission->listeners, listeners, count * sizeof *listeners);
}

void lockd_admit_deinit(struct lockd_admission *admission)
{
    for (unsigned i = 0; i < admission->listener_count; i++)
        close(admission->listeners[i]);
    if (admission->spare >= 0)
        close(admission->spare);
}

int lockd_admit_open(struct lockd_admission *admission, struct gs_err *err)
{
    admission->limit = raise_fd_limit();
    admission->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return admission->spare >= 0 ? 0 : gs_err_errno(err, -errno, "/dev/null");
}

static void watch_listeners(struct lockd_server *server, bool listening)
{
    bool done = server->admission.listening != listening;

    for (unsigned i = 0; i < server->admission.listener_count && done; i++) {
        struct epoll_event event = {.events = listening ? EPOLLIN : 0,
                                    .data.ptr = &server->admission.listeners[i]};

        done = epoll_ctl(server->loop.epoll, EPOLL_CTL_MOD, server->admission.listeners[i],
                         &event) == 0;
    }
    if (done)
        server->admission.listening = listening;
}

/* Watches the listeners again if a descriptor is available. */
static void try_to_listen(struct lockd_server *server)
{
    if (server->admission.spare < 0)
        server->admission.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->admission.spare >= 0)
        watch_listeners(server, true);
}

void lockd_admit_again(struct lockd_server *server)
{
    if (!server->admission.room_made)
        return;
    server->admission.room_made = false;
    try_to_listen(server);
}

uint64_t lockd_admit_resume(struct lockd_server *server, uint64_t now)
{
    if (server->admission.listening)
        return LOCKD_NEVER;
    if (now >= server->admission.listen_at) {
        server->admission.listen_at = now + LISTEN_AGAIN_NS;
        try_to_listen(server);
    }
    return server->admission.listening ? LOCKD_NEVER : server->admission.listen_at;
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

static bool is_in_group(const struct caller *caller, gid_t group)
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

/* user: the owner of the connection; NULL: unknown. */
static void close_caller(struct lockd_server *server, struct lockd_user *user, int fd)
{
    struct gs_descriptors one = {.fd = {fd}, .count = 1};

    if (server->closers.guarded || user == NULL)
        close(fd);
    else
        lockd_closer_take(server, user, &one);
}

/* Sends the reason; the function that calls this one closes the connection. */
__attribute__((format(printf, 3, 4))) static void send_refusal(int fd, int code,
                                                               const char *format, ...)
{
    struct gs_wire_end end;
    va_list ap;

    va_start(ap, format);
    end = lockd_wire_end(code, 0, format, ap);
    va_end(ap);
    if (send(fd, &end, sizeof end, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        lockd_log(LOCKD_LOG_DEBUG, "a refusal could not be delivered: %s", strerror(errno));
}

static bool is_trusted(const struct caller *caller)
{
    return caller->who.uid == 0 || caller->who.uid == geteuid();
}

/* Returns 0; else the refusal has been sent and logged. */
static int check_caller(struct lockd_server *server, int fd, const struct caller *caller,
                        struct lockd_user *user)
{
    const uint64_t most = server->config.set.max_connections;
    const bool may = is_trusted(caller) || is_in_group(caller, server->admission.group) ||
                     is_in_group(caller, server->config.control_gid);
    const bool full =
        user->connections >= most ||
        ((!is_trusted(caller) || user->container[0] != '\0') &&
         server->connections.count >= server->admission.limit - server->admission.limit / 4);

    if (may && !full)
        return 0;
    lockd_user_say(user, LOCKD_LOG_WARNING,
                   "process %d of user %u %s: %u connections of this user",
                   (int)caller->who.pid, (unsigned)caller->who.uid,
                   may ? "is one too many" : "may not connect", user->connections);
    if (!may && server->admission.group == (gid_t)-1)
        send_refusal(fd, -EACCES,
                     "user %u may not use this gpushare-lockd; it serves user %u and root",
                     (unsigned)caller->who.uid, (unsigned)geteuid());
    else if (!may)
        send_refusal(fd, -EACCES,
                     "user %u may not use this gpushare-lockd: the user must be in group %u, "
                     "and log in again after being added",
                     (unsigned)caller->who.uid, (unsigned)server->admission.group);
    else
        send_refusal(fd, -EDQUOT,
                     "user %u has %u connections (limits: %llu for a user, %u for all): end "
                     "some, or raise max-connections",
                     (unsigned)caller->who.uid, user->connections, (unsigned long long)most,
                     server->admission.limit - server->admission.limit / 4);
    return -EACCES;
}

/* No descriptor is left: uses the reserved descriptor to refuse the caller. */
static void refuse_without_descriptor(struct lockd_server *server, int listener, int why)
{
    const uint64_t now = lockd_now();
    int fd;

    if (now - server->admission.descriptors_said > SAY_AGAIN_NS ||
        server->admission.descriptors_said == 0)
        lockd_log(LOCKD_LOG_WARNING, "cannot accept connections: %s (%u are open)",
                  strerror(why), server->connections.count);
    server->admission.descriptors_said = now;
    if (server->admission.spare >= 0)
        close(server->admission.spare);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        if (why != EMFILE || !lockd_successor_look(server, fd))
            send_refusal(fd, -EMFILE,
                         "gpushare-lockd has no file descriptor left for another connection: "
                         "raise its limit (LimitNOFILE=, ulimit -n)");
        close_caller(server, NULL, fd);
    }
    server->admission.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server->admission.listener_count != 0 && (fd < 0 || server->admission.spare < 0))
        watch_listeners(server, false); /* until a connection ends, or a second has passed */
    server->admission.listen_at = now + LISTEN_AGAIN_NS;
}

static void admit_one(struct lockd_server *server, int listener)
{
    struct lockd_connection *connection = NULL;
    struct lockd_user *user;
    struct lockd_identity identity;
    struct caller caller;
    const char *container;
    uid_t owner;
    int fd;

    if (server->admission.listener_count == 0) /* closed since the event */
        return;
    if (server->connections.count >= server->admission.limit) {
        refuse_without_descriptor(server, listener, EMFILE);
        return;
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            refuse_without_descriptor(server, listener, errno);
        return;
    }
    if (read_caller(fd, &caller) != 0 || lockd_identity_read(fd, &identity) != 0) {
        close(fd);
        return;
    }
    container = lockd_identity_account(&identity, &server->here, &owner);
    user = lockd_user_get(&server->users, owner, container);
    if (user != NULL && check_caller(server, fd, &caller, user) != 0) {
        close_caller(server, user, fd);
        lockd_user_put(user);
        return;
    }
    if (user != NULL)
        connection = lockd_connection_new(server, fd, user, &identity, caller.who.pid);
    if (connection == NULL) {
        send_refusal(fd, -ENOMEM, "gpushare-lockd has no memory for another connection");
        close_caller(server, user, fd);
        if (user != NULL)
            lockd_user_put(user);
        return;
    }
    connection->peer.controls =
        !connection->peer.identity.contained &&
        (is_trusted(&caller) || is_in_group(&caller, server->config.control_gid));
}

bool lockd_admit_event(struct lockd_admission *admission, const void *tag)
{
    for (unsigned i = 0; i < admission->listener_count; i++) {
        if (tag != &admission->listeners[i])
            continue;
        admission->called |= 1u << i;
        return true;
    }
    return false;
}

void lockd_admit_callers(struct lockd_server *server)
{
    struct lockd_admission *admission = &server->admission;

    for (unsigned i = 0; i < admission->listener_count; i++)
        if ((admission->called & 1u << i) != 0)
            admit_one(server, admission->listeners[i]);
    admission->called = 0;
}

uint64_t lockd_admit_silent(struct lockd_server *server, uint64_t now)
{
    while (!lockd_list_empty(&server->admission.silent)) {
        struct lockd_connection *connection =
            lockd_entry(server->admission.silent.next, struct lockd_connection, silence.link);

        if (now < connection->silence.since + SILENT_NS)
            return connection->silence.since + SILENT_NS;
        lockd_list_remove(&connection->silence.link);
        lockd_connection_kill(connection, "it sent nothing for 10 s");
    }
    return LOCKD_NEVER;
}
