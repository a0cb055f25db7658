/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_peer.c: moves bytes between a socket and a link. One read at a time is bounded, so that
 * a peer that sends without end does not keep the others waiting. A peer that does not read is
 * not read either, so that the answers to it do not pile up. A socket that is closed while the
 * other side still writes takes away from it what it has not read yet (it sees EPIPE first); a
 * server therefore only stops to write, and closes once the other side has.
 */
#include "cluster/grpc_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lockd/base/log.h"

#define READ_SIZE  16384
#define WRITE_SIZE 16384
#define WANT_READ  4 /* reads before others have their turn */

int grpc_peer_init(struct grpc_peer *peer, int fd, struct grpc_link *link)
{
    *peer = (struct grpc_peer){.fd = fd, .link = link};
    if (link != NULL)
        return 0;
    grpc_peer_deinit(peer);
    return -ENOMEM;
}

int grpc_peer_connect(struct grpc_peer *peer, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    *peer = (struct grpc_peer){.fd = -1};
    if (fd < 0)
        return -errno;
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", path) >=
        (int)sizeof address.sun_path) {
        close(fd);
        return -ENAMETOOLONG;
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        const int code = -errno;

        close(fd);
        return code;
    }
    return grpc_peer_init(peer, fd, grpc_link_new(NULL, NULL));
}

void grpc_peer_deinit(struct grpc_peer *peer)
{
    struct grpc_link *link = peer->link;

    peer->link = NULL;
    grpc_link_free(link);
    grpc_buffer_deinit(&peer->out);
    if (peer->fd >= 0)
        close(peer->fd);
    *peer = (struct grpc_peer){.fd = -1};
}

short grpc_peer_events(const struct grpc_peer *peer)
{
    return grpc_buffer_left(&peer->out) != 0 ? POLLOUT : POLLIN;
}

/* 0, 1: closed, -errno. */
static int read_bytes(struct grpc_peer *peer, struct gs_err *err)
{
    uint8_t bytes[READ_SIZE];

    for (int i = 0; i < WANT_READ; i++) {
        const ssize_t got = read(peer->fd, bytes, sizeof bytes);
        int code;

        if (got == 0)
            return 1;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (got < 0)
            return errno == ECONNRESET ? 1 : gs_err_errno(err, -errno, "read");
        if (peer->ended)
            continue;
        code = grpc_link_feed(peer->link, bytes, (size_t)got, err);
        if (code != 0)
            return code;
        if (got < READ_SIZE)
            return 0;
    }
    return 0;
}

/* Collects the bytes that the link has to send, up to about WRITE_SIZE. An answer is three frames, and a kubelet
 * that is woken by the first would take the processor before it has the others. */
static int gather_bytes(struct grpc_peer *peer, struct gs_err *err)
{
    while (grpc_buffer_left(&peer->out) < WRITE_SIZE) {
        const uint8_t *bytes;
        const ssize_t size = grpc_link_take(peer->link, &bytes);

        if (size == 0)
            return 0;
        if (size < 0 || grpc_buffer_add(&peer->out, bytes, (size_t)size, SIZE_MAX) != 0)
            return gs_err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int write_bytes(struct grpc_peer *peer, struct gs_err *err)
{
    for (;;) {
        const int code = gather_bytes(peer, err);
        const size_t left = grpc_buffer_left(&peer->out);
        ssize_t sent;

        if (code != 0 || left == 0)
            return code;
        sent = send(peer->fd, peer->out.bytes + peer->out.start, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (sent < 0)
            return errno == EPIPE || errno == ECONNRESET ? 1
                                                         : gs_err_errno(err, -errno, "send");
        grpc_buffer_drop(&peer->out, (size_t)sent);
    }
}

int grpc_peer_run(struct grpc_peer *peer, struct gs_err *err)
{
    int got = 0, sent = 0;

    if (!peer->ended)
        sent = write_bytes(peer, err);
    if (sent == 0 && grpc_buffer_left(&peer->out) == 0) {
        got = read_bytes(peer, err);
        if (!peer->ended) /* also what explains an error, or ends what was asked */
            sent = write_bytes(peer, err);
    }
    if (got != 0 || sent != 0)
        return got != 0 ? got : sent;
    if (peer->ended || grpc_buffer_left(&peer->out) != 0 || !grpc_link_is_done(peer->link))
        return 0;
    if (!peer->lingers)
        return 1;
    peer->ended = true;
    shutdown(peer->fd, SHUT_WR);
    return 0;
}

int grpc_peer_converse(struct grpc_peer *peer, const char *name)
{
    char complaint[GRPC_TEXT_SIZE];
    struct gs_err err = {0};
    const int code = grpc_peer_run(peer, &err);

    if (grpc_link_complaint(peer->link, complaint))
        lockd_log(LOCKD_LOG_WARNING, "%s: %s", name, complaint);
    if (code < 0)
        lockd_log(LOCKD_LOG_WARNING, "%s: %s; closed", name, err.text);
    return code;
}
