/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h: records when programs computed, moved memory and waited, from their reports: a ring of
 * the last events, and the connections that listen to it (gpusharectl trace).
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stdbool.h>

#define LOCKD_TRACE_EVENTS 4096 /* in the ring */

struct lockd_connection;
struct lockd_server;

struct lockd_trace {
    struct gs_wire_event *ring; /* NULL until the first event */
    uint64_t next;              /* number of the next event; it goes to ring[next % size] */
    uint32_t listeners;
};

/* The listener's part of a connection. */
struct lockd_trace_listener {
    bool listens;
    uint64_t next;     /* the first event that it has not been sent */
    uint64_t until_ns; /* when it gets its END */
    uint64_t read_ns;  /* when it had last read all events */
    uint32_t sent;
};

/* The program has reported; the daemon has sent a target; the program has gone. */
void lockd_trace_state(struct lockd_connection *connection, const struct gs_wire_state *state);
void lockd_trace_target(struct lockd_connection *connection,
                        const struct gs_wire_target *target);
void lockd_trace_gone(struct lockd_connection *connection);
/* The program has left one device. */
void lockd_trace_left(struct lockd_connection *connection, const uint8_t *uuid);

/* Answers GS_WIRE_TRACE: sends the present phase of every program, then events as they happen. */
void lockd_trace_listen(struct lockd_connection *connection, const struct gs_wire_trace *wish);
/* Ends the listening of a connection, if it listens. */
void lockd_trace_unlisten(struct lockd_connection *connection);
/* Sends new events to the listeners that read, and ends listeners whose time is over. Returns
 * when it must be called again at the latest. */
uint64_t lockd_trace_flush(struct lockd_server *server, uint64_t now);
void lockd_trace_deinit(struct lockd_trace *trace);
