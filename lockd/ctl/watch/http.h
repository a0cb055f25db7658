/* SPDX-License-Identifier: Apache-2.0
 *
 * http.h: a small HTTP/1.1 server: GET and HEAD, one request per connection, one thread.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HOST_MAX 256

/* One request: each text ends with NUL, and is "" where the request has none. */
struct http_request {
    bool head_only;
    const char *path;          /* from '/', without the query */
    const char *query;         /* behind '?' */
    const char *host;          /* the header Host */
    const char *authorization; /* the header Authorization */
    const char *cookie;        /* the header Cookie */
};

/* A reply. The handler fills it in; the server frees body. */
struct http_reply {
    const char *status; /* "200 OK" */
    const char *type;   /* of the content */
    char headers[1024]; /* more header lines, each ended by \r\n */
    char *body;         /* NULL: the status as text */
    size_t size;
    /* If set, it is called in a process of its own, which writes the whole reply to the
     * (blocking) descriptor and ends. For replies that take long; at most two of them run at
     * once. */
    void (*stream)(void *context, const struct http_request *request, int fd);
};

struct http_handler {
    void (*answer)(void *context, const struct http_request *request, struct http_reply *reply);
    void (*tick)(void *context); /* called about every tick_ms */
    int tick_ms;
    void *context;
};

/* Listens at an address such as "127.0.0.1:9745" or "[::1]:9745"; port 0: any free port. Returns
 * the socket, or -errno with a text in err (-EINVAL: the text is not such an address). where:
 * out: the address in the form of a URL, with the actual port. */
int http_listen(const char *text, char *where, size_t size, struct gs_err *err);
/* Serves until *ended is not 0. Closes the listener. 0 or -ENOMEM. */
int http_serve(int listener, const struct http_handler *handler, const volatile int *ended);
