/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.h: the connection to the daemon. Client thread only, but for gs_connect_last_word().
 */
#pragma once

#include "runtime/base/base.h"
#include "common/err.h"
#include "common/packet.h"
#include "lockd/protocol/wire.h"

/* The system refuses the call itself, as a filter of seccomp does: it will refuse the next call,
 * too. */
bool gs_connect_is_forbidden(int error);

/* Connects (if there is no connection) and sends HELLO. start: starts the daemon if none
 * answers. 0: the connection is there, and non-blocking. Else `why` has the reason: with -EAGAIN
 * trying again may help, with another -errno it does not. Takes about a second at most, and ten
 * if a starting daemon hangs. */
int gs_connect(bool start, struct gs_own_fd *connection, struct gs_err *why);

/* Sends one whole message, and descriptors (NULL: none), which stay the caller's. 0; -EAGAIN:
 * the daemon is slow, so send the newest state later; another -errno: the connection has ended. */
int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with);

union gs_connect_message {
    struct gs_wire_header header; /* its type says which member is valid */
    struct gs_wire_target target;
    struct gs_wire_open open;
    struct gs_wire_share share;
    struct gs_wire_copy copy;
    struct gs_wire_move move;
    struct gs_wire_end end; /* never returned to the caller */
};

/* Receives one message with at most `most` descriptors, which are the caller's then. 1: both are
 * valid; 0: there is nothing; -errno: the connection has ended (-EPROTO: it is not a daemon of
 * this version). */
int gs_connect_receive(int fd, union gs_connect_message *message, unsigned most,
                       struct gs_descriptors *with);

static inline void gs_connect_header(struct gs_wire_header *out, uint16_t type, uint32_t length)
{
    *out = (struct gs_wire_header){
        .magic = GS_WIRE_MAGIC, .version = GS_WIRE_VERSION, .type = type, .length = length};
}

void gs_connect_note(struct gs_wire_note *note, uint32_t kind, const char *text);

/* Sends a note over a connection of its own. Never starts a daemon, and waits at most 100 ms. */
void gs_connect_last_word(uint32_t kind, const char *text);
