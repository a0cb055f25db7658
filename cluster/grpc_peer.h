/* SPDX-License-Identifier: Apache-2.0
 *
 * grpc_peer.h: a link on a connected socket that never blocks.
 */
#pragma once

#include "cluster/grpc_link.h"

struct grpc_peer {
    int fd; /* -1: there is none */
    struct grpc_link *link;
    struct grpc_buffer out; /* taken from the link, not sent yet */
    bool lingers; /* a server's: after its last byte it waits for the other side to close */
    bool ended;   /* the last byte was sent; later bytes of the other side are not read */
};

/* Takes over fd (non-blocking) and link, also when it fails: link may be NULL. 0, -ENOMEM. */
int grpc_peer_init(struct grpc_peer *peer, int fd, struct grpc_link *link);
/* Connects to a socket in the file system. 0 or -errno. */
int grpc_peer_connect(struct grpc_peer *peer, const char *path);
void grpc_peer_deinit(struct grpc_peer *peer);
/* For poll(2). */
short grpc_peer_events(const struct grpc_peer *peer);
/* Reads and writes what is possible now. 0; 1: the connection has ended as it should, or the
 * other side closed it; -errno: it broke, with the reason in err. After 1 and -errno: deinit. */
int grpc_peer_run(struct grpc_peer *peer, struct gs_err *err);
/* The same, with a line in the log for what is wrong. name: of the peer, in that line. */
int grpc_peer_converse(struct grpc_peer *peer, const char *name);
