/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_link.c: gRPC on top of nghttp2. A call is one HTTP/2 stream; it is made when its headers
 * begin (or when a client asks) and freed when the stream closes or with the link. Streams,
 * messages and the sum of unfinished ones have upper limits, so that a peer cannot take more
 * than HELD_MOST of memory for what it asks.
 */
#include "cluster/grpc_link.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockd/base/list.h"

#define WAITING_MOST                                                                           \
    ((size_t)4 * GRPC_MESSAGE_MOST) /* bytes of a call that the peer has not read */

#define HELD_MOST                                                                              \
    ((size_t)2 * GRPC_MESSAGE_MOST) /* bytes of all unfinished requests of a connection */

struct grpc_call {
    struct lockd_list in_link;
    struct grpc_link *link;
    int32_t stream;
    const struct grpc_method *method; /* NULL: no such one, or not known yet */
    struct grpc_buffer in, out;
    enum grpc_status status;
    char text[GRPC_TEXT_SIZE];
    bool begun;  /* the answer's headers were sent */
    bool ended;  /* the status is decided */
    bool posted; /* the request has the method POST */
    void (*gone)(void *context);
    grpc_answered *answered; /* a client's */
    void *context;           /* of gone or answered */
};

struct grpc_link {
    nghttp2_session *session;
    const struct grpc_method *methods; /* NULL: a client's */
    void *context;
    struct lockd_list calls;
    unsigned count;
    size_t held; /* bytes of requests whose end has not come */
    bool broken;
    struct gs_err complaint;
};

#define NV(name, value)                                                                        \
    {                                                                                          \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name),             \
            strlen(value), NGHTTP2_NV_FLAG_NONE                                                \
    }

/* --- calls --- */

static struct grpc_call *call_new(struct grpc_link *link, int32_t stream)
{
    struct grpc_call *call = calloc(1, sizeof *call);

    if (call == NULL)
        return NULL;
    call->link = link;
    call->stream = stream;
    call->status = GRPC_UNAVAILABLE; /* a client's, until the server says another */
    lockd_list_append(&link->calls, &call->in_link);
    link->count++;
    return call;
}

static void call_forget_request(struct grpc_call *call)
{
    call->link->held -= grpc_buffer_left(&call->in);
    grpc_buffer_deinit(&call->in);
}

static void call_free(struct grpc_call *call)
{
    lockd_list_remove(&call->in_link);
    call->link->count--;
    if (call->answered != NULL) {
        /* The answer of a client's call: one message, or an error. */
        grpc_answered *answered = call->answered;
        const uint8_t *message = NULL;
        size_t size = 0;

        call->answered = NULL;
        if (call->status == GRPC_OK && grpc_buffer_message(&call->in, &message, &size) != 0) {
            call->status = GRPC_INTERNAL;
            snprintf(call->text, sizeof call->text, "the answer is not one whole message");
        }
        if (call->status != GRPC_OK && call->text[0] == '\0')
            snprintf(call->text, sizeof call->text, "the connection ended without an answer");
        answered(call->context, call->status, call->text, message, size);
    }
    if (call->gone != NULL)
        call->gone(call->context);
    call_forget_request(call);
    grpc_buffer_deinit(&call->out);
    free(call);
}

static ssize_t read_out(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t size,
                        uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct grpc_call *call = source->ptr;
    const size_t taken = grpc_buffer_take(&call->out, bytes, size);
    char number[16];

    (void)context;
    if (grpc_buffer_left(&call->out) != 0)
        return (ssize_t)taken;
    if (call->link->methods == NULL) { /* a request ends with its message */
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return (ssize_t)taken;
    }
    snprintf(number, sizeof number, "%d", (int)call->status);
    if (call->ended) {
        const nghttp2_nv trailers[] = {NV("grpc-status", number),
                                       NV("grpc-message", call->text)};
        const size_t count = call->text[0] != '\0' ? 2 : 1;

        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        return nghttp2_submit_trailer(session, stream, trailers, count) == 0
                   ? (ssize_t)taken
                   : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return taken != 0 ? (ssize_t)taken : NGHTTP2_ERR_DEFERRED;
}

/* The headers of an answer with messages; those of an error have its status. */
static void call_begin(struct grpc_call *call)
{
    const nghttp2_nv head[] = {NV(":status", "200"), NV("content-type", "application/grpc")};
    const nghttp2_data_provider source = {.source.ptr = call, .read_callback = read_out};

    call->begun = true;
    if (nghttp2_submit_response(call->link->session, call->stream, head, 2, &source) != 0)
        nghttp2_submit_rst_stream(call->link->session, NGHTTP2_FLAG_NONE, call->stream,
                                  NGHTTP2_INTERNAL_ERROR);
}

int grpc_call_send(struct grpc_call *call, const void *message, size_t size)
{
    int code;

    if (call->ended)
        return -EINVAL;
    code = grpc_buffer_add_message(&call->out, message, size, WAITING_MOST);
    if (code != 0)
        return code == -EMSGSIZE ? -ENOBUFS : code;
    if (!call->begun)
        call_begin(call);
    else
        nghttp2_session_resume_data(call->link->session, call->stream);
    return 0;
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *text)
{
    if (call->ended)
        return;
    call->ended = true;
    call->status = status;
    if (status != GRPC_OK && text != NULL)
        grpc_text_encode(text, call->text);
    if (call->begun) {
        nghttp2_session_resume_data(call->link->session, call->stream);
    } else {
        char number[16];

        snprintf(number, sizeof number, "%d", (int)status);
        const nghttp2_nv head[] = {
            NV(":status", "200"),
            NV("content-type", "application/grpc"),
            NV("grpc-status", number),
            NV("grpc-message", call->text),
        };

        call->begun = true;
        nghttp2_submit_response(call->link->session, call->stream, head,
                                call->text[0] != '\0' ? 4 : 3, NULL);
    }
}

void grpc_call_watch(struct grpc_call *call, void (*gone)(void *context), void *context)
{
    call->gone = gone;
    call->context = context;
}

/* --- a server's requests --- */

static void call_run(struct grpc_call *call)
{
    const uint8_t *message;
    size_t size;
    int code;

    if (call->ended)
        return;
    if (!call->posted || call->method == NULL) {
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "this program has no such method");
        return;
    }
    code = grpc_buffer_message(&call->in, &message, &size);
    if (code == -EOPNOTSUPP)
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "compressed messages are not understood");
    else if (code != 0)
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "the request is not one whole message");
    else
        call->method->run(call->link->context, call, message, size);
    call_forget_request(call);
}

/* --- what nghttp2 tells --- */

static bool has_name(const uint8_t *name, size_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_link *link = context;
    struct grpc_call *call;

    if (link->methods == NULL || frame->hd.type != NGHTTP2_HEADERS ||
        frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    call = link->count < GRPC_CALLS_MOST ? call_new(link, frame->hd.stream_id) : NULL;
    if (call == NULL) {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
                     void *context)
{
    struct grpc_link *link = context;
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)flags;
    if (call == NULL)
        return 0;
    if (link->methods != NULL) {
        if (has_name(name, name_length, ":path"))
            for (const struct grpc_method *each = link->methods; each->path != NULL; each++)
                call->method = has_name(value, length, each->path) ? each : call->method;
        if (has_name(name, name_length, ":method"))
            call->posted = has_name(value, length, "POST");
    } else if (has_name(name, name_length, "grpc-status")) {
        call->status = (enum grpc_status)grpc_text_status(value, length);
    } else if (has_name(name, name_length, "grpc-message")) {
        grpc_text_decode(value, length, call->text);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream,
                   const uint8_t *bytes, size_t size, void *context)
{
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    struct grpc_link *link = context;
    int code;

    (void)flags;
    if (call == NULL || (link->methods != NULL && call->ended))
        return 0;
    code = size > HELD_MOST - link->held
               ? -EMSGSIZE
               : grpc_buffer_add(&call->in, bytes, size, GRPC_MESSAGE_MOST + GRPC_HEAD);
    if (code == 0) {
        link->held += size;
        return 0;
    }
    if (link->methods == NULL) {
        call->status = GRPC_RESOURCE_EXHAUSTED;
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
        return 0;
    }
    grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the message is too large");
    call_forget_request(call);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_link *link = context;
    struct grpc_call *call;

    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        gs_err_set(&link->complaint, -EPROTO, "the peer left: %s",
                   nghttp2_http2_strerror(frame->goaway.error_code));
    if (link->methods == NULL || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0 ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call != NULL)
        call_run(call);
    return 0;
}

static int on_bad_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
                        void *context)
{
    struct grpc_link *link = context;

    (void)session;
    gs_err_set(&link->complaint, -EPROTO, "a frame of type %u is invalid: %s",
               (unsigned)frame->hd.type, nghttp2_strerror(code));
    return 0;
}

/* A GOAWAY of ours with an error: nghttp2 has found the peer's bytes wrong. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_link *link = context;

    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        gs_err_set(
            &link->complaint, -EPROTO, "the peer's bytes are not HTTP/2: %s%s%.*s",
            nghttp2_http2_strerror(frame->goaway.error_code),
            frame->goaway.opaque_data_len != 0 ? ", " : "", (int)frame->goaway.opaque_data_len,
            frame->goaway.opaque_data_len != 0 ? (const char *)frame->goaway.opaque_data : "");
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *context)
{
    struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)code, (void)context;
    if (call != NULL) {
        nghttp2_session_set_stream_user_data(session, stream, NULL);
        call_free(call);
    }
    return 0;
}

/* --- the link --- */

static int open_session(struct grpc_link *link)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_CALLS_MOST},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16384},
    };
    nghttp2_session_callbacks *callbacks;
    int code;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_bad_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    code = link->methods != NULL ? nghttp2_session_server_new(&link->session, callbacks, link)
                                 : nghttp2_session_client_new(&link->session, callbacks, link);
    nghttp2_session_callbacks_del(callbacks);
    code = code
               ?: nghttp2_submit_settings(link->session, NGHTTP2_FLAG_NONE, settings,
                                          sizeof settings / sizeof settings[0]);
    return code == 0 ? 0 : -ENOMEM;
}

struct grpc_link *grpc_link_new(const struct grpc_method *methods, void *context)
{
    struct grpc_link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return NULL;
    link->methods = methods;
    link->context = context;
    if (open_session(link) == 0)
        return link;
    grpc_link_free(link);
    return NULL;
}

void grpc_link_free(struct grpc_link *link)
{
    if (link == NULL)
        return;
    while (!lockd_list_empty(&link->calls))
        call_free(lockd_entry(link->calls.next, struct grpc_call, in_link));
    nghttp2_session_del(link->session);
    free(link);
}

int grpc_link_feed(struct grpc_link *link, const void *bytes, size_t size, struct gs_err *err)
{
    const ssize_t used = nghttp2_session_mem_recv(link->session, bytes, size);

    if (used == (ssize_t)size)
        return 0;
    link->broken = true;
    return gs_err_set(err, -EPROTO, "the peer's bytes are not HTTP/2: %s",
                      used < 0 ? nghttp2_strerror((int)used) : "bytes are left over");
}

ssize_t grpc_link_take(struct grpc_link *link, const uint8_t **bytes)
{
    const ssize_t size = nghttp2_session_mem_send(link->session, bytes);

    if (size >= 0)
        return size;
    link->broken = true;
    return -ENOMEM;
}

bool grpc_link_is_done(const struct grpc_link *link)
{
    const bool reads = nghttp2_session_want_read(link->session) != 0 && !link->broken;

    return !reads && nghttp2_session_want_write(link->session) == 0;
}

bool grpc_link_complaint(struct grpc_link *link, char *text)
{
    snprintf(text, GRPC_TEXT_SIZE, "%s", link->complaint.text);
    link->complaint = (struct gs_err){0};
    return text[0] != '\0';
}

void grpc_link_drain(struct grpc_link *link)
{
    nghttp2_submit_goaway(link->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(link->session),
                          NGHTTP2_NO_ERROR, NULL, 0);
}

unsigned grpc_link_calls(const struct grpc_link *link)
{
    return link->count;
}

int grpc_link_ask(struct grpc_link *link, const char *path, const void *message, size_t size,
                  grpc_answered *answered, void *context)
{
    const nghttp2_nv head[] = {
        NV(":method", "POST"), NV(":scheme", "http"),
        NV(":path", path),     NV(":authority", "localhost"),
        NV("te", "trailers"),  NV("content-type", "application/grpc"),
    };
    struct grpc_call *call = call_new(link, -1);
    nghttp2_data_provider source = {.source.ptr = call, .read_callback = read_out};
    int code;

    if (call == NULL)
        return -ENOMEM;
    code = grpc_buffer_add_message(&call->out, message, size, WAITING_MOST);
    if (code == 0) {
        call->stream = nghttp2_submit_request(link->session, NULL, head,
                                              sizeof head / sizeof head[0], &source, call);
        code = call->stream < 0 ? -ENOMEM : 0;
    }
    if (code != 0) {
        call_free(call);
        return code;
    }
    call->answered = answered;
    call->context = context;
    return 0;
}
