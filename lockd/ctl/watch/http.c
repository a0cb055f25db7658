/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c: owns the connections of a small HTTP server. One thread; every caller has a small buffer
 * and a deadline. So a caller that sends garbage, sends slowly or sends nothing only takes one of
 * CALLERS_MAX places for a few seconds, or until another caller needs it. A child process writes a
 * reply that takes long.
 *
 * We do not use libmicrohttpd, because Debian's libmicrohttpd.a needs GnuTLS, which cannot be
 * linked statically (it loads p11-kit, which has no archive): gpusharectl would depend on both at
 * run time, for pages without TLS. A build of it without TLS would need its sources here.
 * picohttpparser would only replace the reading of the request line and of three headers; limits,
 * deadlines and streams would stay, and Debian has no package of it.
 */
#include "lockd/ctl/watch/http.h"
#include "lockd/ctl/ctl.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALLERS_MAX  32
#define REQUEST_MAX  4096
#define STREAMS_MAX  2
#define PATIENCE_NS  5000000000u /* for request and reply, and again for the close after it */
#define ACCEPTS_MAX  16 /* at a time; below CALLERS_MAX, so that a new caller is read */
#define NO_ROOM_MS   50
#define SEND_SECONDS 10 /* limit for a caller that does not read a streamed reply */

struct caller {
    int fd; /* -1: the place is free */
    uint64_t deadline;
    size_t got;  /* of the request */
    char *reply; /* NULL: none, or no longer */
    size_t size, sent;
    /* Further input is discarded, so that a reset does not destroy the reply. */
    bool answered;
    char request[REQUEST_MAX];
};

struct server {
    int listener;
    const struct http_handler *handler;
    pid_t streams[STREAMS_MAX]; /* child processes; 0: the place is free */
    uint64_t next_tick;
    struct caller callers[CALLERS_MAX];
};

static void hang_up(struct caller *caller)
{
    close(caller->fd);
    free(caller->reply);
    caller->fd = -1;
    caller->reply = NULL;
}

/* Makes the bytes of the reply. Without memory the caller is dropped. */
static void set_reply(struct caller *caller, const struct http_reply *reply, bool head_only)
{
    const char *body = reply->body != NULL ? reply->body : reply->status;
    const size_t size = reply->body != NULL ? reply->size : strlen(body);
    FILE *out = open_memstream(&caller->reply, &caller->size);
    const time_t now = time(NULL);
    struct tm parts;
    char date[40] = "";

    if (gmtime_r(&now, &parts) != NULL)
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (out == NULL) {
        hang_up(caller);
        return;
    }
    fprintf(out,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
            "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n%sDate: %s\r\n\r\n",
            reply->status, reply->type != NULL ? reply->type : "text/plain", size,
            reply->headers, date);
    if (!head_only)
        fwrite(body, 1, size, out);
    caller->sent = 0;
    if (fclose(out) != 0)
        hang_up(caller);
}

static void refuse_caller(struct caller *caller, const char *status)
{
    set_reply(caller, &(struct http_reply){.status = status}, false);
}

/* A child process writes the reply; this one only closes its copy of the descriptor. */
static void stream_reply(struct server *server, struct caller *caller,
                         const struct http_reply *reply, const struct http_request *request)
{
    const struct timeval patience = {.tv_sec = SEND_SECONDS};
    const pid_t self = getpid();
    pid_t *place = server->streams, child;

    while (place < server->streams + STREAMS_MAX && *place != 0)
        place++;
    if (place == server->streams + STREAMS_MAX) {
        refuse_caller(caller, "503 Service Unavailable");
        return;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self)
            _exit(1);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        close(server->listener);
        for (int i = 0; i < CALLERS_MAX; i++) {
            if (server->callers[i].fd >= 0 && &server->callers[i] != caller)
                close(server->callers[i].fd);
        }
        fcntl(caller->fd, F_SETFL, 0); /* blocking */
        setsockopt(caller->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        reply->stream(server->handler->context, request, caller->fd);
        _exit(0);
    }
    if (child < 0) {
        refuse_caller(caller, "503 Service Unavailable");
        return;
    }
    *place = child;
    hang_up(caller);
}

/* Splits the header lines in place and keeps those that a handler may need. False: one of them
 * is there twice, and a proxy may have read the other header. */
static bool cut_headers(char *line, struct http_request *request)
{
    const struct {
        const char *name;
        const char **value;
    } kept[] = {{"Host:", &request->host},
                {"Authorization:", &request->authorization},
                {"Cookie:", &request->cookie}};

    while (*line != '\0') {
        char *end = line + strcspn(line, "\r\n");
        char *next = end + strspn(end, "\r\n");

        *end = '\0';
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            const size_t length = strlen(kept[i].name);

            if (strncasecmp(line, kept[i].name, length) != 0)
                continue;
            if (**kept[i].value != '\0')
                return false;
            *kept[i].value = line + length + strspn(line + length, " \t");
        }
        line = next;
    }
    return true;
}

/* Splits the request into its parts. False: it is no HTTP request. */
static bool cut_request(char *text, struct http_request *request)
{
    char *line_end = text + strcspn(text, "\r\n");
    char *target = text + (strncmp(text, "HEAD ", 5) == 0 ? 5 : 4);
    char *version = strchr(target, ' ');
    char *query;

    *request = (struct http_request){.head_only = target == text + 5,
                                     .query = "",
                                     .host = "",
                                     .authorization = "",
                                     .cookie = ""};
    if (version == NULL || version > line_end || target[0] != '/' ||
        strncmp(version, " HTTP/1.", 8) != 0 ||
        !cut_headers(line_end + strspn(line_end, "\r\n"), request))
        return false;
    *version = '\0';
    query = strchr(target, '?');
    if (query != NULL)
        *query++ = '\0';
    request->path = target;
    request->query = query != NULL ? query : "";
    return true;
}

/* The whole head of a request has come. */
static void answer_caller(struct server *server, struct caller *caller)
{
    struct http_request request;
    struct http_reply reply = {.status = "500 Internal Server Error"};

    if (strncmp(caller->request, "GET ", 4) != 0 && strncmp(caller->request, "HEAD ", 5) != 0) {
        refuse_caller(caller, "405 Method Not Allowed");
        return;
    }
    if (!cut_request(caller->request, &request)) {
        refuse_caller(caller, "400 Bad Request");
        return;
    }
    server->handler->answer(server->handler->context, &request, &reply);
    if (reply.stream != NULL && !request.head_only)
        stream_reply(server, caller, &reply, &request);
    else
        set_reply(caller, &reply, request.head_only);
    free(reply.body);
}

static void read_more(struct server *server, struct caller *caller)
{
    const ssize_t got = recv(caller->fd, caller->request + caller->got,
                             sizeof caller->request - 1 - caller->got, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0) {
        hang_up(caller);
        return;
    }
    caller->got += (size_t)got;
    caller->request[caller->got] = '\0';
    if (strlen(caller->request) != caller->got)
        refuse_caller(caller, "400 Bad Request");
    else if (strstr(caller->request, "\r\n\r\n") != NULL ||
             strstr(caller->request, "\n\n") != NULL)
        answer_caller(server, caller);
    else if (caller->got == sizeof caller->request - 1)
        refuse_caller(caller, "431 Request Header Fields Too Large");
}

static void write_more(struct caller *caller)
{
    const ssize_t sent = send(caller->fd, caller->reply + caller->sent,
                              caller->size - caller->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (sent > 0)
        caller->sent += (size_t)sent;
    if (sent <= 0) {
        hang_up(caller);
    } else if (caller->sent == caller->size) {
        shutdown(caller->fd, SHUT_WR);
        free(caller->reply);
        caller->reply = NULL;
        caller->answered = true;
        caller->deadline = lockd_now() + PATIENCE_NS;
    }
}

/* A free place; else the place of the caller whose request has been incomplete, or whose reply
 * was complete, for the longest time. NULL: all callers are being answered. */
static struct caller *find_place(struct server *server)
{
    struct caller *oldest = NULL;

    gs_each (caller, server->callers, CALLERS_MAX) {
        if (caller->fd < 0)
            return caller;
        if (caller->reply == NULL && (oldest == NULL || caller->deadline < oldest->deadline))
            oldest = caller;
    }
    if (oldest != NULL)
        hang_up(oldest);
    return oldest;
}

/* False: no other caller waits. */
static bool take_caller(struct server *server)
{
    const int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct caller *caller = fd >= 0 ? find_place(server) : NULL;

    if (caller != NULL) {
        caller->fd = fd;
        caller->got = 0;
        caller->answered = false;
        caller->deadline = lockd_now() + PATIENCE_NS;
    } else if (fd >= 0) {
        close(fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        poll(NULL, 0, NO_ROOM_MS); /* no descriptor or no memory: the caller still waits */
    }
    return fd >= 0;
}

static void serve_callers(struct server *server, const struct pollfd *ready)
{
    const uint64_t now = lockd_now();

    for (int i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &server->callers[i];

        if (caller->fd < 0)
            continue;
        if (ready[i].revents != 0 && caller->answered) { /* until it closes its end, too */
            const ssize_t got =
                recv(caller->fd, caller->request, sizeof caller->request, MSG_DONTWAIT);

            if (got == 0 ||
                (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
                hang_up(caller);
        } else if (ready[i].revents != 0 && caller->reply == NULL) {
            read_more(server, caller);
        } else if (ready[i].revents != 0) {
            write_more(caller);
        }
        if (caller->fd >= 0 && now > caller->deadline)
            hang_up(caller);
    }
}

static void run_tick(struct server *server)
{
    const uint64_t now = lockd_now();

    for (int i = 0; i < STREAMS_MAX; i++) {
        if (server->streams[i] != 0 && waitpid(server->streams[i], NULL, WNOHANG) != 0)
            server->streams[i] = 0;
    }
    if (now < server->next_tick)
        return;
    server->next_tick = now + (uint64_t)server->handler->tick_ms * 1000000u;
    server->handler->tick(server->handler->context);
}

static void serve_round(struct server *server)
{
    struct pollfd ready[CALLERS_MAX + 1];

    for (int i = 0; i < CALLERS_MAX; i++)
        ready[i] =
            (struct pollfd){.fd = server->callers[i].fd,
                            .events = server->callers[i].reply != NULL ? POLLOUT : POLLIN};
    ready[CALLERS_MAX] = (struct pollfd){.fd = server->listener, .events = POLLIN};
    if (poll(ready, CALLERS_MAX + 1, server->handler->tick_ms) > 0) {
        serve_callers(server, ready);
        for (int i = 0; ready[CALLERS_MAX].revents != 0 && i < ACCEPTS_MAX; i++) {
            if (!take_caller(server))
                break;
        }
    }
    run_tick(server);
}

int http_serve(int listener, const struct http_handler *handler, const volatile int *ended)
{
    struct server *server = calloc(1, sizeof *server);

    if (server == NULL) {
        close(listener);
        return -ENOMEM;
    }
    server->listener = listener;
    server->handler = handler;
    for (int i = 0; i < CALLERS_MAX; i++)
        server->callers[i].fd = -1;
    while (*ended == 0)
        serve_round(server);
    for (int i = 0; i < CALLERS_MAX; i++) {
        if (server->callers[i].fd >= 0)
            hang_up(&server->callers[i]);
    }
    close(listener);
    free(server);
    return 0;
}

/* Listens there; in where: the address in the form of a URL, with the port that the system chose
 * for port 0. */
static int listen_at(const struct addrinfo *place, const char *text, char *where, size_t size,
                     struct gs_err *err)
{
    const int yes = 1;
    const int fd = socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
    int code;

    if (fd < 0)
        return gs_err_errno(err, -errno, "--listen %.80s", text);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, place->ai_addr, place->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
        code = gs_err_errno(err, -errno, "--listen %.80s", text);
        close(fd);
        return code == -EINVAL ? -EIO : code;
    }
    getsockname(fd, (struct sockaddr *)&address, &length);
    getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(where, size, place->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return fd;
}

int http_listen(const char *text, char *where, size_t size, struct gs_err *err)
{
    const struct addrinfo numbers = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                     .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(text, ':');
    const bool is_six = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    struct addrinfo *place = NULL;
    struct in_addr four;
    char host[64];
    int fd;

    if (colon != NULL && isdigit((unsigned char)colon[1]) && colon - text < (long)sizeof host &&
        strtoul(colon + 1, NULL, 10) <= 65535) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - text) - (is_six ? 2 : 0),
                 text + (is_six ? 1 : 0));
        /* getaddrinfo() would take 0 for 0.0.0.0, and 010.0.0.1 for 8.0.0.1 */
        if ((is_six ? strchr(host, ':') != NULL : inet_pton(AF_INET, host, &four) == 1) &&
            getaddrinfo(host, colon + 1, &numbers, &place) != 0)
            place = NULL;
    }
    if (place == NULL)
        return gs_err_set(err, -EINVAL,
                          "--listen %.80s: not an IP address and a port; write it as "
                          "127.0.0.1:9745 or [::1]:9745",
                          text);
    fd = listen_at(place, text, where, size, err);
    freeaddrinfo(place);
    return fd;
}
