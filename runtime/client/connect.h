/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.h: the connection to the daemon. Client thread only, but for gs_connect_last_word().
 */
#ifndef GS_RUNTIME_CLIENT_CONNECT_H
#define GS_RUNTIME_CLIENT_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/packet.h"
#include "lockd/protocol/wire.h"
#include "runtime/base/own_fd.h"

/* Connects (where there is no connection) and sends HELLO; start: starts the daemon if nobody
 * answers. 0, the connection is non-blocking then. Else the reason is in why: -EAGAIN: trying
 * again may help; another -errno: it does not. At most about a second, and ten where the daemon
 * hangs while it starts. */
int gs_connect(bool start, struct gs_own_fd *connection, struct gs_err *why);

/* Sends one message whole, and descriptors (NULL: none), which stay the caller's. 0, -EAGAIN
 * (the daemon is slow: send the newest state later), or -errno: the connection is gone. */
int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with);

union gs_connect_message {
    struct gs_wire_header header; /* whose type says which it is */
    struct gs_wire_target target;
    struct gs_wire_open open;
    struct gs_wire_share share;
    struct gs_wire_move move;
    struct gs_wire_end end; /* not handed out */
};

/* Receives one message, and at most so many descriptors with it, the caller's then. 1: both are
 * valid; 0: nothing there; -errno: the connection is gone (-EPROTO: it is not a daemon of this
 * version). */
int gs_connect_receive(int fd, union gs_connect_message *message, unsigned most,
                       struct gs_descriptors *with);

void gs_connect_header(struct gs_wire_header *out, uint16_t type, uint32_t length);

void gs_connect_note(struct gs_wire_note *note, uint32_t kind, const char *text);

/* A note over a connection of its own; never starts a daemon, waits at most 100 ms. */
void gs_connect_last_word(uint32_t kind, const char *text);

#endif
