/* SPDX-License-Identifier: Apache-2.0
 *
 * http.c: a server for one page, /metrics, on a loopback address. One thread; every caller
 * has a small buffer and a deadline, so that who sends garbage, slowly, or nothing costs one of
 * CALLERS_MAX places for a few seconds, or until somebody else needs it, and nothing else. The
 * page is made at most once in PAGE_FRESH_NS however often it is asked for.
 *
 * Our own, since Debian's libmicrohttpd.a needs GnuTLS, which cannot be linked statically (it loads p11-kit, which has no
 * archive): gpusharectl would depend on both at run time, for one page without TLS.
 */
#include "common/fd.h"
#include "lockd/ctl/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLERS_MAX   32
#define REQUEST_MAX   4096
#define PATIENCE_NS   5000000000u
#define PAGE_FRESH_NS 1000000000u
#define NO_ROOM_MS    50

struct caller {
    int fd; /* -1: the place is free */
    uint64_t deadline;
    size_t got;  /* of the request */
    char *reply; /* NULL: the request is still being read */
    size_t size, sent;
    char request[REQUEST_MAX];
};

struct http {
    struct ctl *ctl;
    int listener;
    char *page;
    size_t page_size;
    uint64_t page_at; /* 0: never made */
    struct caller callers[CALLERS_MAX];
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

static void hang_up(struct caller *caller)
{
    close(caller->fd);
    free(caller->reply);
    caller->fd = -1;
    caller->reply = NULL;
}

static int make_page(struct http *http)
{
    const uint64_t now = ctl_now();
    struct ctl_answer answer;
    char *page = NULL;
    size_t size = 0;
    FILE *out;

    if (http->page_at != 0 && now - http->page_at < PAGE_FRESH_NS)
        return 0;
    http->ctl->err = (struct gs_err){0};
    ctl_ask_status(http->ctl, &answer); /* no daemon: gpushare_up is 0 */
    out = open_memstream(&page, &size);
    if (out != NULL) {
        ctl_metrics_write(out, &answer);
        if (fclose(out) != 0) {
            free(page);
            page = NULL;
        }
    }
    ctl_answer_deinit(&answer);
    if (page == NULL)
        return -ENOMEM;
    free(http->page);
    http->page = page;
    http->page_size = size;
    http->page_at = ctl_now();
    return 0;
}

/* Makes the reply; without memory the caller is dropped. */
static void make_reply(struct caller *caller, const char *status, const char *type,
                       const char *body, size_t size, bool head_only)
{
    FILE *out = open_memstream(&caller->reply, &caller->size);

    if (out == NULL) {
        hang_up(caller);
        return;
    }
    fprintf(out,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
            "X-Content-Type-Options: nosniff\r\n\r\n",
            status, type, size);
    if (!head_only)
        fwrite(body, 1, size, out);
    caller->sent = 0;
    if (fclose(out) != 0)
        hang_up(caller);
}

static void refuse_caller(struct caller *caller, const char *status)
{
    make_reply(caller, status, "text/plain", status, strlen(status), false);
}

static bool is_metrics(const char *target, size_t length)
{
    return length >= 8 && strncmp(target, "/metrics", 8) == 0 &&
           (length == 8 || target[8] == '?');
}

/* The whole head of a request has come. */
static void answer_caller(struct http *http, struct caller *caller)
{
    const bool head = strncmp(caller->request, "HEAD ", 5) == 0;
    const char *target = caller->request + (head ? 5 : 4);
    const char *end;

    if (!head && strncmp(caller->request, "GET ", 4) != 0) {
        refuse_caller(caller, "405 Method Not Allowed");
        return;
    }
    end = strpbrk(target, " \r\n");
    if (end == NULL || strncmp(end, " HTTP/1.", 8) != 0)
        refuse_caller(caller, "400 Bad Request");
    else if (!is_metrics(target, (size_t)(end - target)))
        refuse_caller(caller, "404 Not Found");
    else if (make_page(http) != 0)
        refuse_caller(caller, "500 Internal Server Error");
    else
        make_reply(caller, "200 OK", "text/plain; version=0.0.4; charset=utf-8", http->page,
                   http->page_size, head);
}

static void read_more(struct http *http, struct caller *caller)
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
        answer_caller(http, caller);
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
    if (sent <= 0 || caller->sent == caller->size) {
        shutdown(caller->fd, SHUT_WR);
        hang_up(caller);
    }
}

/* A free place; else that of who has been about to ask for the longest time. NULL: everybody is
 * being answered. */
static struct caller *find_place(struct http *http)
{
    struct caller *oldest = NULL;

    for (int i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &http->callers[i];

        if (caller->fd < 0)
            return caller;
        if (caller->reply == NULL && (oldest == NULL || caller->deadline < oldest->deadline))
            oldest = caller;
    }
    if (oldest != NULL)
        hang_up(oldest);
    return oldest;
}

static void take_caller(struct http *http)
{
    const int fd = accept4(http->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct caller *caller = fd >= 0 ? find_place(http) : NULL;

    if (caller != NULL) {
        caller->fd = fd;
        caller->got = 0;
        caller->deadline = ctl_now() + PATIENCE_NS;
    } else if (fd >= 0) {
        close(fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        poll(NULL, 0, NO_ROOM_MS); /* no descriptor, no memory: he still waits there */
    }
}

static void serve_one(struct http *http)
{
    struct pollfd ready[CALLERS_MAX + 1];
    uint64_t now;
    bool busy = false;

    for (int i = 0; i < CALLERS_MAX; i++) {
        const struct caller *caller = &http->callers[i];

        ready[i] = (struct pollfd){.fd = caller->fd,
                                   .events = caller->reply != NULL ? POLLOUT : POLLIN};
        busy = busy || caller->fd >= 0;
    }
    ready[CALLERS_MAX] = (struct pollfd){.fd = http->listener, .events = POLLIN};
    if (poll(ready, CALLERS_MAX + 1, busy ? 500 : -1) < 0)
        return;
    now = ctl_now();
    for (int i = 0; i < CALLERS_MAX; i++) {
        struct caller *caller = &http->callers[i];

        if (caller->fd < 0)
            continue;
        if (ready[i].revents != 0 && caller->reply == NULL)
            read_more(http, caller);
        else if (ready[i].revents != 0)
            write_more(caller);
        if (caller->fd >= 0 && now > caller->deadline)
            hang_up(caller);
    }
    if (ready[CALLERS_MAX].revents != 0)
        take_caller(http);
}

/* "127.0.0.1:9400", "[::1]:9400": a listening socket there, or -errno. */
static int listen_at(struct ctl *ctl, const char *text)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    const char *colon = strrchr(text, ':');
    char host[64], *end;
    const int yes = 1;
    bool is_six;
    unsigned long port;
    int fd;

    if (colon == NULL || (size_t)(colon - text) >= sizeof host || colon[1] < '0' ||
        colon[1] > '9')
        return gs_err_set(&ctl->err, -EINVAL, "--listen %.80s: write 127.0.0.1:9400", text);
    port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port > 65535)
        return gs_err_set(&ctl->err, -EINVAL, "--listen %.80s: not a valid port", text);
    is_six = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - text) - (is_six ? 2 : 0),
             text + (is_six ? 1 : 0));
    four.sin_port = six.sin6_port = htons((uint16_t)port);
    if (is_six ? inet_pton(AF_INET6, host, &six.sin6_addr) != 1 ||
                     !IN6_IS_ADDR_LOOPBACK(&six.sin6_addr)
               : inet_pton(AF_INET, host, &four.sin_addr) != 1 ||
                     ntohl(four.sin_addr.s_addr) >> 24 != 127)
        return gs_err_set(
            &ctl->err, -EINVAL,
            "--listen %.80s: only loopback addresses (127.0.0.1, [::1]) are allowed, "
            "because everybody who reaches the port may read it",
            text);
    fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gs_err_errno(&ctl->err, -errno, "--listen %.80s", text);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if ((is_six ? bind(fd, (struct sockaddr *)&six, sizeof six)
                : bind(fd, (struct sockaddr *)&four, sizeof four)) != 0 ||
        listen(fd, 64) != 0) {
        gs_err_errno(&ctl->err, -errno, "--listen %.80s", text);
        close(fd);
        return ctl->err.code;
    }
    return fd;
}

/* With port 0 the system chose one. */
static void say_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address = {0};
    socklen_t size = sizeof address;
    char host[INET_ADDRSTRLEN] = "";

    if (getsockname(fd, &address.any, &size) != 0)
        return;
    if (address.any.sa_family == AF_INET6)
        printf("serving http://[::1]:%u/metrics\n", ntohs(address.six.sin6_port));
    else
        printf("serving http://%s:%u/metrics\n",
               inet_ntop(AF_INET, &address.four.sin_addr, host, sizeof host),
               ntohs(address.four.sin_port));
    ctl_done(CTL_OK); /* it serves all the same */
}

enum ctl_exit ctl_http_serve(struct ctl *ctl, const struct ctl_command *command,
                             const char *address)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct http *http = calloc(1, sizeof *http);
    int listener = listen_at(ctl, address);

    if (listener < 0 || http == NULL) {
        free(http);
        return listener == -EINVAL ? ctl_usage(command, "%s", ctl->err.text) : ctl_fail(ctl);
    }
    http->ctl = ctl;
    http->listener = listener;
    ctl->patience_s = 2; /* a daemon that hangs must not hang this page for long */
    for (int i = 0; i < CALLERS_MAX; i++)
        http->callers[i].fd = -1;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    say_port(listener);
    while (ended == 0)
        serve_one(http);
    for (int i = 0; i < CALLERS_MAX; i++) {
        if (http->callers[i].fd >= 0)
            hang_up(&http->callers[i]);
    }
    close(listener);
    free(http->page);
    free(http);
    return CTL_OK;
}
