/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.c: what a connection says: takes messages in, checks them, hands them to the lock
 * or to those who answer gpusharectl.
 *
 * Whoever sends something wrong loses his connection and nobody else notices. Whoever sends too
 * much is read more slowly: a connection that is over its rate (or whose user is) is not looked
 * at until its time has come, and the kernel makes the sender wait.
 */
#include "lockd/base/log.h"
#include "lockd/server/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGES_PER_TURN   16        /* then the others have theirs */
#define USER_RATE           25        /* a user's rate is that of so many connections */
#define FULL_NS             50000000u /* looked at again when much of his is being closed */
#define PROGRAMS_PER_TICKET 8 /* what an answer of that many programs costs: one message */

struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd,
                                              struct lockd_user *user, pid_t pid)
{
    struct lockd_connection *connection = calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

    if (connection == NULL)
        return NULL;
    connection->server = server;
    connection->fd = fd;
    connection->id = ++server->next_id;
    connection->since = lockd_now();
    connection->user = user;
    connection->uid = user->uid;
    connection->pid = pid;
    connection->limit = UINT64_MAX;
    connection->watched = event.events;
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(connection);
        return NULL;
    }
    lockd_list_append(&server->connections, &connection->link);
    lockd_list_append(&server->silent, &connection->silent);
    lockd_list_init(&connection->throttle);
    server->connection_count++;
    user->connections++;
    return connection;
}

void lockd_connection_free(struct lockd_connection *connection)
{
    if (connection == NULL)
        return;
    lockd_list_remove(&connection->link);
    lockd_list_remove(&connection->silent);
    lockd_list_remove(&connection->throttle);
    lockd_outbox_deinit(connection);
    lockd_checkpoint_gone(connection);
    free(connection->tracks.track);
    lockd_trace_unlisten(connection);
    lockd_close_connection(connection->server, connection->user, connection->fd,
                           connection->descriptors);
    free(connection);
}

/* Ends a connection whose user can do something about it: he is told. */
static void reject(struct lockd_connection *connection, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void reject(struct lockd_connection *connection, int code, const char *format, ...)
{
    struct gs_wire_end end = {.code = code};
    va_list ap;

    lockd_wire_header(&end.header, GS_WIRE_END);
    va_start(ap, format);
    vsnprintf(end.text, sizeof end.text, format, ap);
    va_end(ap);
    lockd_connection_send(connection, &end, sizeof end);
    lockd_connection_kill(connection, "%s", end.text);
}

/* What others would pay for is asked for by whoever may change settings; with less than the
 * ordinary a program makes way for others, as anybody may. */
static struct gs_wire_hello allowed(const struct lockd_connection *connection,
                                    const struct gs_wire_hello *hello)
{
    struct gs_wire_hello less = *hello;

    if (connection->controls)
        return less;
    less.weight = less.weight > GS_WEIGHT_DEFAULT ? GS_WEIGHT_DEFAULT : less.weight;
    less.priority = less.priority > 0 ? 0 : less.priority;
    return less;
}

static void take_hello(struct lockd_connection *connection, const struct gs_wire_hello *hello)
{
    const struct gs_wire_hello granted = allowed(connection, hello);
    struct lockd_server *server = connection->server;

    if (connection->client != NULL) {
        lockd_connection_kill(connection, "a second hello");
        return;
    }
    if (connection->user->programs >= server->config.set.max_programs) {
        reject(connection, -EDQUOT,
               "user %u has %u programs here already: end some, or raise "
               "max-programs",
               (unsigned)connection->uid, connection->user->programs);
        return;
    }
    connection->client = sched_client_add(server->lock, connection);
    if (connection->client == NULL) {
        reject(connection, -ENOMEM, "gpushare-lockd has no memory for another program");
        return;
    }
    sched_describe(server->lock, connection->client, &granted, (uint32_t)connection->uid);
    memcpy(connection->name, hello->name, sizeof connection->name);
    memcpy(connection->version, hello->version, sizeof connection->version);
    memcpy(connection->group, hello->group, sizeof connection->group);
    if (connection->pid <= 0) { /* it lives in a pid namespace that we cannot see into */
        connection->pid = hello->pid;
        connection->foreign = true;
    }
    lockd_closer_allow(connection, server->config.hands_over);
    server->program_count++;
    connection->user->programs++;
    lockd_server_came(server, connection);
    lockd_log(LOCKD_LOG_DEBUG, "%s (process %d, user %u, gpushare %s) connected",
              connection->name, (int)connection->pid, (unsigned)connection->uid,
              connection->version);
    lockd_successor_came(server, connection);
}

static void take_state(struct lockd_connection *connection, struct gs_wire_state *state,
                       struct gs_descriptors *with)
{
    int code;

    if (connection->client == NULL) {
        lockd_connection_kill(connection, "a state before its hello");
        return;
    }
    if (lockd_checkpoint_holds(connection))
        return;
    lockd_handover_offer(connection, state, with);
    lockd_quota_state(connection, state);
    lockd_trace_state(connection, state);
    code = sched_state(connection->server->lock, connection->client, state, lockd_now());
    if (code == -EMFILE)
        reject(connection, code,
               "too many devices: %d of one program, %d of user %u that nobody else uses",
               LOCKD_DEVICES_PER_CLIENT, LOCKD_DEVICES_PER_USER, (unsigned)connection->uid);
    else if (code != 0)
        lockd_connection_kill(connection, "state refused: %s", strerror(-code));
}

static void take_request(struct lockd_connection *connection,
                         const union lockd_message *message)
{
    struct lockd_server *server = connection->server;

    if (connection->out.size != 0) {
        lockd_connection_kill(connection, "it asks again and has not read the last answer");
        return;
    }
    if (message->header.type == GS_WIRE_CONTROL) {
        lockd_control_operate(connection, &message->control);
        return;
    }
    /* an answer of a thousand programs costs as much as many messages */
    lockd_bucket_take(&connection->user->bucket, server->config.set.max_messages,
                      1 + server->program_count / PROGRAMS_PER_TICKET, lockd_now());
    if (message->header.type == GS_WIRE_TRACE)
        lockd_trace_listen(connection, &message->trace);
    else if (message->header.type == GS_WIRE_GET)
        lockd_status_settings(connection, &message->get);
    else
        lockd_status_send(connection);
}

static void take(struct lockd_connection *connection, union lockd_message *message,
                 struct gs_descriptors *with)
{
    switch (message->header.type) {
    case GS_WIRE_HELLO:
        take_hello(connection, &message->hello);
        break;
    case GS_WIRE_STATE:
        take_state(connection, &message->state, with);
        break;
    case GS_WIRE_NOTE:
        lockd_remarks_add(&connection->server->notes, connection, &message->note, lockd_now());
        break;
    case GS_WIRE_STATUS:
    case GS_WIRE_CONTROL:
    case GS_WIRE_TRACE:
    case GS_WIRE_GET:
        take_request(connection, message);
        break;
    default:
        lockd_connection_kill(connection, "message type %u is not for the daemon",
                              message->header.type);
    }
}

/* A program of another release: gpusharectl says so from now on, and the program is told with
 * the only message whose layout no version changes. */
static void note_version(struct lockd_connection *connection, const struct gs_err *err)
{
    struct gs_wire_note note = {.pid = (int32_t)connection->pid, .kind = GS_NOTE_OTHER};

    snprintf(note.name, sizeof note.name, "other release");
    snprintf(note.text, sizeof note.text, "%.150s", err->text);
    lockd_remarks_add(&connection->server->notes, connection, &note, lockd_now());
    reject(connection, -EPROTONOSUPPORT, "%.180s", err->text);
}

void lockd_connection_take(struct lockd_connection *connection, union lockd_message *message,
                           size_t size, struct gs_descriptors *with)
{
    struct gs_err err = {0};
    const int code = lockd_wire_check(message, size, &err);

    lockd_list_remove(&connection->silent);
    if (code == -EPROTONOSUPPORT)
        note_version(connection, &err);
    else if (code != 0)
        lockd_connection_kill(connection, "%s", err.text);
    else if (with->count != 0 && message->header.type != GS_WIRE_STATE)
        lockd_connection_kill(connection, "descriptors with a message of type %u",
                              message->header.type);
    else
        take(connection, message, with);
    lockd_server_flush(connection->server); /* what was given goes on with a target now */
    lockd_close_descriptors(connection->server, connection->user, with);
}

/* Over its rate, or its user's: it is read again when its time has come. */
static bool over_rate(struct lockd_connection *connection, uint64_t now)
{
    const bool own = lockd_bucket_over(connection->bucket, now);
    const bool full = lockd_closer_is_full(connection->server, connection->user);

    if (!own && !full && !lockd_bucket_over(connection->user->bucket, now))
        return false;
    connection->throttled = true;
    connection->resume_at =
        full ? now + FULL_NS
             : lockd_bucket_ready(own ? connection->bucket : connection->user->bucket);
    lockd_list_append(&connection->server->throttled, &connection->throttle);
    lockd_connection_watch(connection);
    return true;
}

static void pay(struct lockd_connection *connection, uint64_t now)
{
    const uint64_t rate = connection->server->config.set.max_messages;

    lockd_bucket_take(&connection->bucket, rate, 1, now);
    lockd_bucket_take(&connection->user->bucket, rate * USER_RATE, 1, now);
}

uint64_t lockd_connection_resume(struct lockd_server *server, uint64_t now)
{
    uint64_t next = LOCKD_NEVER;

    lockd_list_each (at, &server->throttled) {
        struct lockd_connection *connection =
            lockd_entry(at, struct lockd_connection, throttle);

        if (now < connection->resume_at) {
            next = connection->resume_at < next ? connection->resume_at : next;
            continue;
        }
        lockd_list_remove(&connection->throttle);
        connection->throttled = false;
        lockd_connection_watch(connection);
    }
    return next;
}

void lockd_connection_readable(struct lockd_connection *connection)
{
    for (int i = 0; i < MESSAGES_PER_TURN && !connection->dead; i++) {
        const uint64_t now = lockd_now();
        struct gs_descriptors with;
        union lockd_message message;
        ssize_t size;

        if (connection->throttled || over_rate(connection, now))
            return;
        size = gs_packet_receive(connection->fd, &message, sizeof message, GS_PACKET_FDS_MAX,
                                 &with);
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (size <= 0) {
            /* an empty packet can have some */
            lockd_close_descriptors(connection->server, connection->user, &with);
            lockd_connection_kill(connection, NULL);
            return;
        }
        pay(connection, now);
        lockd_connection_take(connection, &message, (size_t)size, &with);
    }
}
