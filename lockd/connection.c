/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.c: one connection: takes messages in, checks them, hands them to the lock or to
 * control.c, and queues what is sent back.
 *
 * Whoever sends something wrong loses his connection and nobody else notices. The queue is
 * bounded by what is put into it: a program gets few targets before it must answer
 * (lock_budget.c), and gpusharectl may ask again only when it has read the last answer.
 */
#include "lockd/log.h"
#include "lockd/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGES_PER_TURN 16 /* then the others have theirs */
#define OUT_LIMIT         (4u << 20)

struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd)
{
    struct lockd_connection *connection = calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

    if (connection == NULL)
        return NULL;
    connection->server = server;
    connection->fd = fd;
    connection->id = ++server->next_id;
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(connection);
        return NULL;
    }
    lockd_list_append(&server->connections, &connection->link);
    server->connection_count++;
    return connection;
}

void lockd_connection_free(struct lockd_connection *connection)
{
    if (connection == NULL)
        return;
    lockd_list_remove(&connection->link);
    close(connection->fd);
    free(connection->out);
    free(connection);
}

void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
{
    char why[256] = "";
    va_list ap;

    if (connection->dead)
        return;
    connection->dead = true;
    lockd_list_remove(&connection->link);
    lockd_list_append(&connection->server->dead, &connection->link);
    if (format == NULL)
        return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    lockd_log(LOCKD_LOG_WARNING, "process %d (%s) of user %u: connection closed: %s",
              (int)connection->pid,
              connection->name[0] != '\0' ? connection->name : "no name yet",
              (unsigned)connection->uid, why);
}

static void want_writable(struct lockd_connection *connection, bool wanted)
{
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0),
                                .data.ptr = connection};

    if (wanted == connection->writable_wanted)
        return;
    connection->writable_wanted = wanted;
    if (epoll_ctl(connection->server->epoll, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        lockd_connection_kill(connection, "epoll_ctl: %s", strerror(errno));
}

/* 1: sent, 0: the socket is full, -1: the connection is gone. */
static int send_now(struct lockd_connection *connection, const void *message, size_t size)
{
    ssize_t sent;

    do
        sent = send(connection->fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t)size)
        return 1;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
        return 0;
    lockd_connection_kill(connection, NULL); /* its end was closed; the EOF says the same */
    return -1;
}

static int out_reserve(struct lockd_connection *connection, size_t size)
{
    size_t room = connection->out_room == 0 ? 4096 : connection->out_room;
    unsigned char *out;

    if (connection->out_size + size > OUT_LIMIT)
        return -ENOBUFS;
    while (room < connection->out_size + size)
        room *= 2;
    if (room == connection->out_room)
        return 0;
    out = realloc(connection->out, room);
    if (out == NULL)
        return -ENOMEM;
    connection->out = out;
    connection->out_room = room;
    return 0;
}

void lockd_connection_send(struct lockd_connection *connection, const void *message,
                           size_t size)
{
    if (connection->dead)
        return;
    if (connection->out_size == 0 && send_now(connection, message, size) != 0)
        return;
    if (out_reserve(connection, size) != 0) {
        lockd_connection_kill(connection, "it does not read what it is sent");
        return;
    }
    memcpy(connection->out + connection->out_size, message, size);
    connection->out_size += size;
    want_writable(connection, true);
}

void lockd_connection_writable(struct lockd_connection *connection)
{
    struct gs_wire_header header;
    size_t done = 0;

    while (!connection->dead && done < connection->out_size) {
        memcpy(&header, connection->out + done, sizeof header);
        if (send_now(connection, connection->out + done, header.length) != 1)
            break;
        done += header.length;
    }
    if (connection->dead)
        return;
    connection->out_size -= done;
    memmove(connection->out, connection->out + done, connection->out_size);
    if (connection->out_size != 0)
        return;
    free(connection->out);
    connection->out = NULL;
    connection->out_room = 0;
    want_writable(connection, false);
}

static void take_hello(struct lockd_connection *connection, const struct gs_wire_hello *hello)
{
    struct lockd_server *server = connection->server;

    if (connection->client != NULL) {
        lockd_connection_kill(connection, "a second hello");
        return;
    }
    connection->client = lockd_lock_client_add(server->lock, connection);
    if (connection->client == NULL) {
        lockd_connection_kill(connection, "no memory");
        return;
    }
    memcpy(connection->name, hello->name, sizeof connection->name);
    memcpy(connection->version, hello->version, sizeof connection->version);
    if (connection->pid <= 0) { /* it lives in a pid namespace that we cannot see into */
        connection->pid = hello->pid;
        connection->foreign = true;
    }
    server->program_count++;
    lockd_log(LOCKD_LOG_DEBUG, "%s (process %d, user %u, gpushare %s) connected",
              connection->name, (int)connection->pid, (unsigned)connection->uid,
              connection->version);
}

static void take_state(struct lockd_connection *connection, const struct gs_wire_state *state)
{
    int code;

    if (connection->client == NULL) {
        lockd_connection_kill(connection, "a state before its hello");
        return;
    }
    code = lockd_lock_state(connection->server->lock, connection->client, state, lockd_now());
    if (code != 0)
        lockd_connection_kill(connection, "state refused: %s", strerror(-code));
}

static void take(struct lockd_connection *connection, const union lockd_message *message)
{
    switch (message->header.type) {
    case GS_WIRE_HELLO:
        take_hello(connection, &message->hello);
        break;
    case GS_WIRE_STATE:
        take_state(connection, &message->state);
        break;
    case GS_WIRE_NOTE:
        lockd_notes_add(&connection->server->notes, connection, &message->note, lockd_now());
        break;
    case GS_WIRE_STATUS:
    case GS_WIRE_CONTROL:
        if (connection->out_size != 0)
            lockd_connection_kill(connection, "it asks again and has not read the last answer");
        else if (message->header.type == GS_WIRE_STATUS)
            lockd_control_status(connection);
        else
            lockd_control_operate(connection, &message->control);
        break;
    default:
        lockd_connection_kill(connection, "message type %u is not for the daemon",
                              message->header.type);
    }
}

void lockd_connection_readable(struct lockd_connection *connection)
{
    for (int i = 0; i < MESSAGES_PER_TURN && !connection->dead; i++) {
        union lockd_message message;
        struct gs_err err = {0};
        const ssize_t size =
            recv(connection->fd, &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);

        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (size <= 0) {
            lockd_connection_kill(connection, NULL);
            return;
        }
        if (lockd_wire_check(&message, (size_t)size, &err) != 0)
            lockd_connection_kill(connection, "%s", err.text);
        else
            take(connection, &message);
        lockd_server_flush(connection->server);
    }
}
