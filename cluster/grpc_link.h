/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_link.h: one HTTP/2 connection that carries gRPC calls (gRPC, "PROTOCOL-HTTP2.md"), as
 * server or as client. It does no input or output: the owner hands it the bytes that came, and
 * takes the bytes that are to be sent. One thread.
 */
#pragma once

#include "cluster/grpc_buffer.h"
#include "common/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define GRPC_MESSAGE_MOST (1u << 20) /* bytes of one message; more is refused */
#define GRPC_CALLS_MOST   16         /* at the same time on one connection */

enum grpc_status { /* the numbers are gRPC's */
                   GRPC_OK = 0,
                   GRPC_INVALID_ARGUMENT = 3,
                   GRPC_NOT_FOUND = 5,
                   GRPC_RESOURCE_EXHAUSTED = 8,
                   GRPC_FAILED_PRECONDITION = 9,
                   GRPC_UNIMPLEMENTED = 12,
                   GRPC_INTERNAL = 13,
                   GRPC_UNAVAILABLE = 14,
};

struct grpc_link;
struct grpc_call;

/* A method of a server, called when the request has come. run() answers at once, or keeps the
 * call and answers later; the message is there for as long as run() lasts. */
struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    void (*run)(void *context, struct grpc_call *call, const uint8_t *message, size_t size);
};

/* The end of a client's call. message: NULL unless the status is GRPC_OK. text: what the
 * server says of an error. */
typedef void grpc_answered(void *context, enum grpc_status status, const char *text,
                           const uint8_t *message, size_t size);

/* methods: a server's, which end with a path of NULL; NULL: it is a client's. NULL: no memory. */
struct grpc_link *grpc_link_new(const struct grpc_method *methods, void *context);
/* Ends all calls: a client's with GRPC_UNAVAILABLE, a server's by gone(). NULL is fine. */
void grpc_link_free(struct grpc_link *link);

/* Bytes that came. 0, or -EPROTO with what is wrong in err; then the link is of no more use,
 * except that what it has to say to the peer may still be sent. */
int grpc_link_feed(struct grpc_link *link, const void *bytes, size_t size, struct gs_err *err);
/* The next bytes to send, which stay until the next call: their number, 0: none now, or
 * -ENOMEM. */
ssize_t grpc_link_take(struct grpc_link *link, const uint8_t **bytes);
/* Nothing more is to be read or written: the connection may be closed. */
bool grpc_link_is_done(const struct grpc_link *link);
/* Whether the peer did something wrong since the last question; what it was into text
 * (GRPC_TEXT_SIZE bytes). */
bool grpc_link_complaint(struct grpc_link *link, char *text);
/* No new calls; those that there are end as they would. */
void grpc_link_drain(struct grpc_link *link);
/* Calls that have not ended. */
unsigned grpc_link_calls(const struct grpc_link *link);

/* Sends a request with one message. 0 or -errno; answered() is called once if it is 0. */
int grpc_link_ask(struct grpc_link *link, const char *path, const void *message, size_t size,
                  grpc_answered *answered, void *context);

/* A server's call: sends one more message. 0, -ENOMEM; -ENOBUFS: the peer does not read. */
int grpc_call_send(struct grpc_call *call, const void *message, size_t size);
/* Ends it. text: for an error, what the peer is told; NULL: nothing. */
void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text);
/* gone(context) is called when the call ends in whatever way; it is of no more use then. */
void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context), void *context);
