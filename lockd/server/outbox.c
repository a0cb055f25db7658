/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox.c: sends messages. A message that the socket does not take waits in the connection's
 * queue; sending never blocks.
 *
 * The queue has three bounds: only the newest target of a device waits (the protocol is
 * level-triggered), gpusharectl gets no second answer before it has read the first, and the bytes
 * that wait for all connections of one user have a limit.
 */
#include "lockd/server/outbox.h"

#include "lockd/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Descriptors in flight count for the daemon's user, which may have no more of them than
 * RLIMIT_NOFILE: those that one user's programs do not read must leave room for the others. */
#define UNREAD_OF_USER (128u << 10)
#define QUEUE_OF_ONE   (8u << 20)
#define QUEUE_OF_USER  (64u << 20)

/* Sets the events that epoll waits for: reading stops while a connection is over its rate. */
void lockd_outbox_watch(struct lockd_connection *connection)
{
    struct epoll_event event = {
        .events = (connection->rate.throttled ? 0 : EPOLLIN) |
                  (connection->out.size != 0 ? EPOLLOUT : 0),
        .data.ptr = connection,
    };

    if (connection->dead || event.events == connection->out.watched)
        return;
    if (epoll_ctl(connection->server->loop.epoll, EPOLL_CTL_MOD, connection->fd, &event) == 0)
        connection->out.watched = event.events;
    else
        lockd_connection_kill(connection, "epoll_ctl: %s", strerror(errno));
}

/* 1: sent, 0: the socket is full, -1: the connection is gone. */
static int send_message(struct lockd_connection *connection, const void *message, size_t size)
{
    ssize_t sent;

    do
        sent = send(connection->fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)size)
        return 1;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
        return 0;
    lockd_connection_kill(connection, NULL); /* the peer has closed its end */
    return -1;
}

static int reserve_bytes(struct lockd_connection *connection, size_t size)
{
    struct lockd_outbox *out = &connection->out;
    size_t room = out->room == 0 ? 1024 : out->room;
    unsigned char *bytes;

    if (out->size + size > QUEUE_OF_ONE || connection->user->queued + size > QUEUE_OF_USER)
        return -ENOBUFS;
    if (out->head != 0 && out->head + out->size + size > out->room) {
        memmove(out->bytes, out->bytes + out->head, out->size);
        out->head = 0;
    }
    while (room < out->head + out->size + size)
        room *= 2;
    if (room == out->room)
        return 0;
    bytes = realloc(out->bytes, room);
    if (bytes == NULL)
        return -ENOMEM;
    out->bytes = bytes;
    out->room = room;
    return 0;
}

static void count_queued(struct lockd_connection *connection, size_t added, size_t taken)
{
    connection->out.size += added - taken;
    connection->user->queued += added - taken;
}

/* Removes a waiting target for the same device from the queue, since a newer one follows. */
static void drop_older_target(struct lockd_connection *connection,
                              const struct gs_wire_target *target)
{
    struct lockd_outbox *out = &connection->out;
    unsigned char *at = out->bytes + out->head, *const end = at + out->size;
    struct gs_wire_target old;

    while (at < end) {
        memcpy(&old.header, at, sizeof old.header);
        if (old.header.type == GS_WIRE_TARGET) {
            memcpy(&old, at, sizeof old);
            if (memcmp(old.uuid, target->uuid, sizeof old.uuid) == 0) {
                memmove(at, at + sizeof old, (size_t)(end - at) - sizeof old);
                count_queued(connection, 0, sizeof old);
                return;
            }
        }
        at += old.header.length;
    }
}

void lockd_outbox_send(struct lockd_connection *connection, const void *message, size_t size)
{
    const struct gs_wire_header *header = message;
    struct lockd_outbox *out = &connection->out;

    if (connection->dead)
        return;
    if (out->size == 0 && send_message(connection, message, size) != 0)
        return;
    if (header->type == GS_WIRE_TARGET && out->size != 0)
        drop_older_target(connection, message);
    if (reserve_bytes(connection, size) != 0) {
        lockd_connection_kill(connection, "it does not read its messages");
        return;
    }
    memcpy(out->bytes + out->head + out->size, message, size);
    count_queued(connection, size, 0);
    lockd_outbox_watch(connection);
}

void lockd_outbox_end(struct lockd_connection *connection, int code, uint32_t count,
                      const char *format, ...)
{
    struct gs_wire_end end;
    va_list ap;

    va_start(ap, format);
    end = lockd_wire_end(code, count, format, ap);
    va_end(ap);
    lockd_outbox_send(connection, &end, sizeof end);
}

/* The size of the packets with descriptors that this user's connections have not read, as the
 * kernel counts it: about 800 bytes a packet. */
static size_t count_unread(const struct lockd_connection *connection)
{
    size_t unread = lockd_closer_unread_of(connection->server, connection->user);

    lockd_each (struct lockd_connection, each, &connection->server->connections.all, link) {
        size_t own;

        if (!each->out.passed || each->user != connection->user)
            continue;
        own = lockd_closer_unread(each->fd);
        each->out.passed = own != 0;
        unread += own;
    }
    return unread;
}

bool lockd_outbox_pass(struct lockd_connection *connection, const void *message, size_t size,
                       const struct gs_descriptors *with)
{
    if (connection->dead || connection->out.size != 0 ||
        count_unread(connection) > UNREAD_OF_USER ||
        gs_packet_send(connection->fd, message, size, with) != (ssize_t)size)
        return false;
    connection->out.passed = true;
    return true;
}

static void drop_queue(struct lockd_outbox *out)
{
    free(out->bytes);
    *out = (struct lockd_outbox){.watched = out->watched, .passed = out->passed};
}

void lockd_outbox_drain(struct lockd_connection *connection)
{
    struct lockd_outbox *out = &connection->out;
    struct gs_wire_header header;

    while (!connection->dead && out->size != 0) {
        memcpy(&header, out->bytes + out->head, sizeof header);
        if (send_message(connection, out->bytes + out->head, header.length) != 1)
            break;
        out->head += header.length;
        count_queued(connection, 0, header.length);
    }
    if (connection->dead || out->size != 0)
        return;
    drop_queue(out);
    lockd_outbox_watch(connection);
}

void lockd_outbox_deinit(struct lockd_connection *connection)
{
    connection->user->queued -= connection->out.size;
    drop_queue(&connection->out);
}

/* --- connections that are to end --- */

struct lockd_connection *lockd_connection_find(const struct lockd_server *server, uint64_t id)
{
    lockd_each (struct lockd_connection, connection, &server->connections.all, link) {
        if (connection->id == id)
            return connection;
    }
    return NULL;
}

void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
{
    char why[256] = "";
    va_list ap;

    if (connection->dead)
        return;
    connection->dead = true;
    lockd_list_remove(&connection->link);
    lockd_list_append(&connection->server->connections.dead, &connection->link);
    if (format == NULL)
        return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    lockd_user_say(connection->user, LOCKD_LOG_WARNING,
                   "process %d (%s) of user %u: connection closed: %s",
                   (int)connection->peer.pid,
                   connection->hello.name[0] != '\0' ? connection->hello.name : "no name yet",
                   (unsigned)connection->peer.uid, why);
}
