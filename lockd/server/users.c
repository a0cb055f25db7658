/* SPDX-License-Identifier: Apache-2.0
 *
 * users.c: the accounts of users (they are few, so a list suffices), and the buckets that bound the
 * rate of messages and of lines in the log. One thread.
 */
#include "lockd/server/users.h"
#include "lockd/server/server.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FIRST_NUMBER 0xc0000000u
#define AHEAD_NS     1000000000u   /* how much may be taken in advance */
#define SAY_EACH_NS  5000000000ull /* the time that pays for a line in the log */
#define SAY_MOST     200u          /* unpaid lines of one user */
#define LINE_SIZE    600

static bool is_used(const struct lockd_user *user, uint64_t now)
{
    return user->connections != 0 || user->closing.closers != 0 || user->said > now ||
           user->bucket > now || user->copies > now || user->move_at > now;
}

static void free_user(struct lockd_user *user)
{
    lockd_list_remove(&user->link);
    free(user);
}

struct lockd_user *lockd_user_get(struct lockd_list *users, uid_t uid, const char *container)
{
    const uint64_t now = lockd_now();
    struct lockd_user *user;
    uint32_t number = FIRST_NUMBER;

    lockd_each (struct lockd_user, each, users, link) {
        if (!is_used(each, now))
            free_user(each);
    }
    /* The numbers of containers' accounts begin above all uids that are used in practice. No two
     * accounts have the same number at the same time. */
    lockd_each (struct lockd_user, each, users, link) {
        if (strcmp(each->container, container) == 0 &&
            (container[0] != '\0' || each->uid == uid))
            return each;
        if (each->container[0] != '\0' && each->number >= number)
            number = each->number + 1;
    }
    user = calloc(1, sizeof *user);
    if (user == NULL)
        return NULL;
    user->uid = uid;
    user->number = container[0] != '\0' ? number : uid;
    snprintf(user->container, sizeof user->container, "%s", container);
    lockd_list_append(users, &user->link);
    return user;
}

void lockd_user_put(struct lockd_user *user)
{
    if (!is_used(user, lockd_now()))
        free_user(user);
}

void lockd_users_deinit(struct lockd_list *users)
{
    while (!lockd_list_empty(users))
        free_user(lockd_entry(users->next, struct lockd_user, link));
}

static bool may_say(struct lockd_user *user, uint64_t now)
{
    if (user->said < now)
        user->said = now;
    if (user->said > now + SAY_MOST * SAY_EACH_NS) {
        if (user->left_out == 0)
            lockd_log(
                LOCKD_LOG_WARNING,
                "user %u%s%.12s: there are too many lines about it, and some are left out",
                (unsigned)user->uid, user->container[0] != '\0' ? ", container " : "",
                user->container);
        user->left_out += user->left_out < UINT32_MAX;
        return false;
    }
    user->said += SAY_EACH_NS;
    return true;
}

void lockd_user_say(struct lockd_user *user, enum lockd_log_level level, const char *format,
                    ...)
{
    char line[LINE_SIZE];
    va_list ap;

    if (!may_say(user, lockd_now()))
        return;
    if (user->left_out != 0)
        lockd_log(LOCKD_LOG_WARNING, "user %u%s%.12s: %u lines about it were left out",
                  (unsigned)user->uid, user->container[0] != '\0' ? ", container " : "",
                  user->container, user->left_out);
    user->left_out = 0;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    lockd_log(level, "%s", line);
}

bool lockd_bucket_over(uint64_t bucket, uint64_t now)
{
    return bucket > now + AHEAD_NS;
}

void lockd_bucket_take(uint64_t *bucket, uint64_t rate, uint32_t count, uint64_t now)
{
    if (*bucket < now)
        *bucket = now;
    *bucket += (uint64_t)count * 1000000000u / rate;
}

uint64_t lockd_bucket_ready(uint64_t bucket)
{
    return bucket > AHEAD_NS ? bucket - AHEAD_NS : 0;
}

/* --- closers --- */

/* Threads that close descriptors (users.h). Each thread closes its descriptors and ends. It
 * touches nothing else; the daemon's own thread removes it from the list afterwards. At most
 * RUNNING_MOST threads of one user run at once; the others wait. Descriptors that came in
 * packets and are not closed yet are missing for all users (lockd_closer_is_full()). A
 * connection stays open, and counts, until its peer has read the descriptors that were sent to
 * it: for the kernel they are still in flight (outbox.c). Invariant: while one of its
 * descriptors is being closed, a user's account exists and a connection counts. */

#define RUNNING_MOST 8
#define USERS_PART   16 /* of the descriptors that connections may take */
#define LOOK_NS      20000000u
#define SOON_NS      1000000u /* while closers wait for others to end */
#define STACK_BYTES  (256u << 10)
#define DEINIT_LOOKS 1000 /* of a millisecond */

#ifndef SO_PASSRIGHTS /* since Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

struct closer {
    struct lockd_list link; /* of the server's */
    struct lockd_user *user;
    pthread_t thread;
    _Atomic(bool) done; /* release: the thread has closed them; acquire: it can be joined */
    bool running, connection;
    bool lingers; /* waits until the peer has read or closed its end */
    unsigned count;
    int fd[];
};

/* --- connections that may send descriptors --- */

void lockd_closer_init(struct lockd_server *server)
{
    const int no = 0;

    server->closers.guarded = true;
    for (unsigned i = 0; i < server->admission.listener_count; i++)
        server->closers.guarded &= setsockopt(server->admission.listeners[i], SOL_SOCKET,
                                              SO_PASSRIGHTS, &no, sizeof no) == 0;
}

void lockd_closer_allow(struct lockd_connection *connection, bool allow)
{
    const int value = allow;

    if (connection->server->closers.guarded &&
        setsockopt(connection->fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof value) == 0)
        connection->descriptors |= allow; /* some may be in flight when it ends */
}

void lockd_closer_ask(struct lockd_connection *connection)
{
    connection->asked = true;
    lockd_closer_allow(connection, true);
}

/* --- threads --- */

static void *close_descriptors(void *argument)
{
    struct closer *closer = argument;

    for (unsigned i = 0; i < closer->count; i++)
        close(closer->fd[i]);
    atomic_store_explicit(&closer->done, true, memory_order_release);
    return NULL;
}

/* Without a thread the closer waits for the next look. */
static void start_closer(struct closer *closer)
{
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    closer->running =
        pthread_create(&closer->thread, &attributes, close_descriptors, closer) == 0;
    closer->user->closing.running += closer->running;
    pthread_attr_destroy(&attributes);
}

/* Takes over the open descriptors. False: there is no memory. */
static bool add_closer(struct lockd_server *server, struct lockd_user *user, const int *fd,
                       unsigned count, bool connection, bool lingers)
{
    struct closer *closer = calloc(1, sizeof *closer + count * sizeof *fd);

    if (closer == NULL)
        return false;
    closer->user = user;
    closer->count = count;
    closer->connection = connection;
    closer->lingers = lingers;
    memcpy(closer->fd, fd, count * sizeof *fd);
    lockd_list_append(&server->closers.list, &closer->link);
    user->closing.descriptors += connection ? 0 : count;
    server->closers.descriptors += connection ? 0 : count;
    if (user->closing.closers++ < RUNNING_MOST && !lingers)
        start_closer(closer);
    return true;
}

bool lockd_closer_is_full(const struct lockd_server *server, const struct lockd_user *user)
{
    const uint32_t most = server->admission.limit / USERS_PART;

    return user->closing.descriptors > most ||
           (user->closing.descriptors != 0 && server->closers.descriptors > 2 * most);
}

void lockd_closer_take(struct lockd_server *server, struct lockd_user *user,
                       struct gs_descriptors *with)
{
    if (with->count == 0 || add_closer(server, user, with->fd, with->count, false, false))
        with->count = 0;
    else
        gs_descriptors_close(with);
}

static void count_closed_connection(struct lockd_server *server, struct lockd_user *user)
{
    server->connections.count--;
    user->connections--;
    lockd_user_put(user);
}

/* Whether no packet is unread. None can come any more, since the socket was shut down. Every
 * packet, even an empty packet, has its sender's credentials with it; the end of the stream has
 * none. */
static bool is_empty_socket(int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    const int yes = 1;

    return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
           recvmsg(fd, &header, MSG_PEEK | MSG_DONTWAIT) == 0 && header.msg_controllen == 0;
}

void lockd_closer_take_connection(struct lockd_server *server, struct lockd_user *user, int fd,
                                  bool descriptors, bool passed)
{
    const bool lingers = passed && lockd_closer_unread(fd) != 0;

    epoll_ctl(server->loop.epoll, EPOLL_CTL_DEL, fd, NULL); /* it may cause no further event */
    shutdown(fd, SHUT_RDWR);
    if ((lingers || ((descriptors || !server->closers.guarded) && !is_empty_socket(fd))) &&
        add_closer(server, user, &fd, 1, true, lingers))
        return;
    close(fd);
    count_closed_connection(server, user);
}

size_t lockd_closer_unread(int fd)
{
    int bytes = 0;

    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

size_t lockd_closer_unread_of(const struct lockd_server *server, const struct lockd_user *user)
{
    size_t unread = 0;

    lockd_each (struct closer, closer, &server->closers.list, link)
        if (closer->lingers && closer->user == user)
            unread += lockd_closer_unread(closer->fd[0]);
    return unread;
}

uint64_t lockd_closer_tend(struct lockd_server *server, uint64_t now)
{
    bool waits = false;

    lockd_each (struct closer, closer, &server->closers.list, link) {
        if (closer->lingers && now != 0 && lockd_closer_unread(closer->fd[0]) != 0)
            continue;
        closer->lingers = false;
        if (closer->running && atomic_load_explicit(&closer->done, memory_order_acquire)) {
            struct lockd_user *user = closer->user;
            const bool connection = closer->connection;

            pthread_join(closer->thread, NULL);
            lockd_list_remove(&closer->link);
            user->closing.running--;
            user->closing.closers--;
            user->closing.descriptors -= connection ? 0 : closer->count;
            server->closers.descriptors -= connection ? 0 : closer->count;
            free(closer);
            if (connection) {
                count_closed_connection(server, user);
                server->admission.room_made = true;
            } else {
                lockd_user_put(user);
            }
        } else if (!closer->running && closer->user->closing.running < RUNNING_MOST)
            start_closer(closer);
    }
    lockd_each (struct closer, closer, &server->closers.list, link)
        waits = waits || (!closer->running && !closer->lingers);
    return lockd_list_empty(&server->closers.list) ? LOCKD_NEVER
                                                   : now + (waits ? SOON_NS : LOOK_NS);
}

void lockd_closer_deinit(struct lockd_server *server)
{
    const struct timespec pause = {0, 1000000};

    for (int i = 0; i < DEINIT_LOOKS && !lockd_list_empty(&server->closers.list); i++) {
        if (i != 0)
            nanosleep(&pause, NULL);
        lockd_closer_tend(server, 0);
    }
}
