/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox.h: messages to a connection, and its end.
 */
#pragma once

#include "common/packet.h"

#include <stdbool.h>
#include <stdint.h>

struct lockd_connection;
struct lockd_server;

/* Whole messages for which the socket had no room yet. */
struct lockd_outbox {
    unsigned char *bytes;
    size_t head, size, room;
    uint32_t watched; /* the events that epoll waits for */
    bool passed;      /* descriptors were sent, and may still be unread */
};

/* Sends or queues a whole message. A connection that does not read its messages is ended. */
void lockd_outbox_send(struct lockd_connection *connection, const void *message, size_t size);
/* Sends a message at once, with the descriptors, which the caller keeps. False: it was not sent,
 * because the socket has no room or the user has too many unread descriptors. */
bool lockd_outbox_pass(struct lockd_connection *connection, const void *message, size_t size,
                       const struct gs_descriptors *with);
/* Sends an END with the outcome of a request and the reason. count: as in struct gs_wire_end. */
void lockd_outbox_end(struct lockd_connection *connection, int code, uint32_t count,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The socket has room again: sends the queued messages. */
void lockd_outbox_drain(struct lockd_connection *connection);
/* Tells epoll the events to wait for. */
void lockd_outbox_watch(struct lockd_connection *connection);
void lockd_outbox_deinit(struct lockd_connection *connection);

/* The connection with that id, unless it is marked as dead; NULL: there is none. */
struct lockd_connection *lockd_connection_find(const struct lockd_server *server, uint64_t id);
/* Marks the connection as dead; server.c frees it after the present events. format: the reason,
 * for the log; NULL: an ordinary end. */
void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
