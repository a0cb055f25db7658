/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: keeps the last LOCKD_TRACE_EVENTS changes of phase in a ring and passes them on to
 * listeners. A listener has a place in the ring, not a queue: a listener that reads too slowly
 * misses events and is told how many, and needs no memory. One thread.
 *
 * An event is written when a program's phase on a device changes, or when it moved memory
 * within a phase; the phase follows from the program's report and the newest target.
 */
#include "lockd/server/trace.h"

#include "lockd/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTENERS_MAX     16
#define LISTENERS_OF_USER 4           /* so that one user cannot exclude the others */
#define UNREAD_NS         5000000000u /* after that time a listener that does not read is ended */

static uint32_t phase_of(const struct lockd_track *track)
{
    const bool may_run = (track->target_flags & GS_TARGET_RUN) != 0;

    if ((track->flags & GS_STATE_RUNNING) != 0) {
        if (!may_run)
            return GS_PHASE_STOP;
        return (track->flags & GS_STATE_WANT) != 0 ? GS_PHASE_COMPUTE : GS_PHASE_IDLE;
    }
    /* it reports MOVING once the first bytes are copied; the time before is part of the phase */
    if (track->resident > track->budget && !may_run)
        return GS_PHASE_COPY_OUT;
    if ((track->flags & GS_STATE_MOVING) != 0)
        return track->resident > track->budget || !may_run ? GS_PHASE_COPY_OUT
                                                           : GS_PHASE_COPY_IN;
    if ((track->target_flags & GS_TARGET_PAUSED) != 0)
        return GS_PHASE_PAUSED;
    return (track->flags & GS_STATE_WANT) != 0 ? GS_PHASE_WAIT : GS_PHASE_IDLE;
}

static void fill_event(const struct lockd_connection *connection,
                       const struct lockd_track *track, struct gs_wire_event *event)
{
    *event = (struct gs_wire_event){
        .pid = (int32_t)connection->peer.pid,
        .phase = track->phase,
        .program = connection->id,
        .at_ns = lockd_now(),
        .demand = track->demand,
        .resident = track->resident,
        .moved_out = track->moved_out,
        .moved_in = track->moved_in,
        .saved = track->saved,
    };
    lockd_wire_header(&event->header, GS_WIRE_EVENT);
    memcpy(event->uuid, track->uuid, sizeof event->uuid);
    memcpy(event->name, connection->hello.name, sizeof event->name);
}

static void record_event(const struct lockd_connection *connection,
                         const struct lockd_track *track, bool ended)
{
    struct lockd_trace *trace = &connection->server->trace;
    struct gs_wire_event *event;

    if (trace->ring == NULL)
        trace->ring = calloc(LOCKD_TRACE_EVENTS, sizeof *trace->ring);
    if (trace->ring == NULL)
        return; /* then there is no trace */
    event = &trace->ring[trace->next++ % LOCKD_TRACE_EVENTS];
    fill_event(connection, track, event);
    event->ended = ended;
}

static void update_phase(struct lockd_connection *connection, struct lockd_track *track,
                         bool moved)
{
    const uint32_t phase = phase_of(track);

    if (phase == track->phase && !moved)
        return;
    track->phase = phase;
    record_event(connection, track, false);
}

static uint64_t saved_in_all(const struct gs_wire_saved *saved)
{
    return saved->equal + saved->zero + saved->unchanged;
}

void lockd_trace_state(struct lockd_connection *connection, const struct gs_wire_state *state)
{
    struct lockd_track *track = lockd_track_get(&connection->tracks, state->uuid);
    bool moved;

    if (track == NULL)
        return;
    moved = track->moved_out != state->moved_out || track->moved_in != state->moved_in ||
            track->saved != saved_in_all(&state->saved);
    track->flags = state->flags;
    track->demand = state->demand;
    track->resident = state->resident;
    track->moved_out = state->moved_out;
    track->moved_in = state->moved_in;
    track->saved = saved_in_all(&state->saved);
    update_phase(connection, track, moved);
}

void lockd_trace_target(struct lockd_connection *connection,
                        const struct gs_wire_target *target)
{
    struct lockd_track *track = lockd_track_get(&connection->tracks, target->uuid);

    if (track == NULL)
        return;
    track->target_flags = target->flags;
    track->seq = target->seq;
    track->budget = target->budget;
    update_phase(connection, track, false);
}

void lockd_trace_gone(struct lockd_connection *connection)
{
    for (size_t i = 0; i < connection->tracks.count; i++)
        record_event(connection, &connection->tracks.track[i], true);
}

void lockd_trace_left(struct lockd_connection *connection, const uint8_t *uuid)
{
    const struct lockd_track *track = lockd_track_find(&connection->tracks, uuid);

    if (track != NULL)
        record_event(connection, track, true);
}

/* --- listeners --- */

void lockd_trace_unlisten(struct lockd_connection *connection)
{
    connection->server->trace.listeners -= connection->listening.listens;
    connection->user->trace_listeners -= connection->listening.listens;
    connection->listening = (struct lockd_trace_listener){0};
}

static void end_listening(struct lockd_connection *connection, int code, const char *text)
{
    const uint32_t sent = connection->listening.sent;

    lockd_trace_unlisten(connection);
    lockd_outbox_end(connection, code, sent, "%s", text);
}

void lockd_trace_listen(struct lockd_connection *connection, const struct gs_wire_trace *wish)
{
    struct lockd_server *server = connection->server;
    struct lockd_trace_listener *listener = &connection->listening;
    const char *refused = NULL;

    if (listener->listens) {
        lockd_connection_kill(connection, "it already listens");
        return;
    }
    if (connection->peer.identity.contained)
        refused = "a process in a container gets no trace: it shows the programs of all";
    else if (server->trace.listeners >= LISTENERS_MAX)
        refused = "16 traces are already being recorded: wait until one ends";
    else if (connection->user->trace_listeners >= LISTENERS_OF_USER &&
             !connection->peer.controls)
        refused = "you already record four traces: wait until one ends";
    if (refused != NULL) {
        end_listening(connection, connection->peer.identity.contained ? -EPERM : -EBUSY,
                      refused);
        return;
    }
    *listener = (struct lockd_trace_listener){
        .listens = true,
        .next = server->trace.next,
        .until_ns = lockd_now() + wish->duration_ns,
    };
    server->trace.listeners++;
    connection->user->trace_listeners++;
    lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
        if (connection->dead) /* it has left this list, and `each` may be it */
            return;
        for (size_t i = 0; i < each->tracks.count && !connection->dead; i++) {
            struct gs_wire_event event;

            fill_event(each, &each->tracks.track[i], &event);
            lockd_outbox_send(connection, &event, sizeof event);
            listener->sent++;
        }
    }
}

static void feed_listener(struct lockd_connection *connection)
{
    const struct lockd_trace *trace = &connection->server->trace;
    struct lockd_trace_listener *listener = &connection->listening;
    uint64_t lost = 0;

    if (trace->next - listener->next > LOCKD_TRACE_EVENTS) {
        lost = trace->next - listener->next - LOCKD_TRACE_EVENTS;
        listener->next += lost;
    }
    while (!connection->dead && connection->out.size == 0 && listener->next != trace->next) {
        struct gs_wire_event event = trace->ring[listener->next++ % LOCKD_TRACE_EVENTS];

        event.lost = lost < UINT32_MAX ? (uint32_t)lost : UINT32_MAX;
        lost = 0;
        lockd_outbox_send(connection, &event, sizeof event);
        listener->sent++;
    }
}

uint64_t lockd_trace_flush(struct lockd_server *server, uint64_t now)
{
    uint64_t deadline = LOCKD_NEVER;

    if (server->trace.listeners == 0)
        return deadline;
    lockd_each (struct lockd_connection, connection, &server->connections.all, link) {
        struct lockd_trace_listener *listener = &connection->listening;
        uint64_t next = LOCKD_NEVER, since;

        if (!listener->listens)
            continue;
        feed_listener(connection);
        if (connection->dead)
            continue;
        if (connection->out.size != 0) { /* it continues when it has read */
            since =
                listener->read_ns > listener->until_ns ? listener->read_ns : listener->until_ns;
            if (now < since + UNREAD_NS)
                next = since + UNREAD_NS;
            else /* its place is needed */
                lockd_connection_kill(connection,
                                      "it does not read the trace that it requested");
        } else if (now >= listener->until_ns) {
            end_listening(connection, 0, "");
        } else {
            next = listener->until_ns;
            listener->read_ns = now;
        }
        deadline = lockd_lesser(next, deadline);
    }
    return deadline;
}

void lockd_trace_deinit(struct lockd_trace *trace)
{
    free(trace->ring);
    trace->ring = NULL;
}
