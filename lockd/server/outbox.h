/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox.h: messages to a connection.
 */
#ifndef GS_LOCKD_SERVER_OUTBOX_H
#define GS_LOCKD_SERVER_OUTBOX_H

#include "common/packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lockd_connection;

/* Whole messages that the socket would not take yet. */
struct lockd_outbox {
    unsigned char *bytes;
    size_t head, size, room;
    uint32_t watched; /* the events that epoll looks for */
    bool passed;      /* descriptors, which may be unread still */
};

/* Sends or queues a whole message. A connection that does not read its messages is ended. */
void lockd_outbox_send(struct lockd_connection *connection, const void *message, size_t size);
/* Sends it now, with the descriptors, which stay the caller's. False: it has not been sent; the user
 * has too many descriptors that are not read. */
bool lockd_outbox_pass(struct lockd_connection *connection, const void *message, size_t size,
                       const struct gs_descriptors *with);
/* Sends an END: how a request ended, and why. count: of what it says in the wire. */
void lockd_outbox_end(struct lockd_connection *connection, int code, uint32_t count,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The socket has room again: sends the queued messages. */
void lockd_outbox_drain(struct lockd_connection *connection);
/* Tells epoll which events of the connection are waited for. */
void lockd_outbox_watch(struct lockd_connection *connection);
void lockd_outbox_deinit(struct lockd_connection *connection);

#endif
