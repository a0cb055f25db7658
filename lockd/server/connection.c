/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.c: messages of a connection: reads them, checks them, and hands them to the
 * scheduler, to lockd/move, or to the files that answer gpusharectl.
 *
 * A wrong message ends its connection and affects no other. A connection that sends too much,
 * or whose user does, is read more slowly: it is not read until its time has come, and the
 * kernel makes the sender wait.
 */
#include "lockd/server/connection.h"
#include "lockd/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Connects lockd/move with connections: tells it of programs, their messages and the moves that
 * users request, and provides the functions that need a connection. No state. One thread. */

#define SECOND  1000000000u
#define HELD_NS (60ull * SECOND) /* the user's next move, after a move that is held */

/* One move begins at a time. So that one user cannot keep the others from moving with programs that
 * do not answer, its next request comes as long after a failure as that move took. */
static void note_failure(const struct lockd_connection *connection, uint64_t ns)
{
    const uint64_t at = lockd_now() + ns, before = connection->user->move_at;

    connection->user->move_at = at > before ? at : before;
}

/* --- functions for lockd/move; the owner of a program is its connection --- */

static void tell_program(struct lockd_connection *connection,
                         const struct gs_wire_move *message)
{
    if (connection->dead)
        return;
    if (message->step == GS_MOVE_STOP || message->step == GS_MOVE_LEFT)
        lockd_closer_ask(connection); /* the record comes with the answer */
    lockd_outbox_send(connection, message, sizeof *message);
}

static void answer_asker(void *context, uint64_t asker, const struct gs_wire_end *end)
{
    struct lockd_connection *connection = lockd_connection_find(context, asker);

    if (connection != NULL)
        lockd_outbox_send(connection, end, sizeof *end);
}

static void note_left(struct lockd_connection *connection, const uint8_t *uuid)
{
    lockd_trace_left(connection, uuid);
    lockd_quota_left(connection, uuid);
}

static void pass_held(struct lockd_connection *connection)
{
    note_failure(connection, HELD_NS);
    if (!connection->dead)
        lockd_relations_moved(connection, LOCKD_MOVE_NOT_IT, 0, 0);
}

/* It counts whatever comes of it: only its program says that it is a move. */
static bool note_adopted(struct lockd_connection *connection)
{
    const bool soon = lockd_now() < connection->user->move_at && !connection->peer.controls;

    note_failure(connection, HELD_NS);
    return soon;
}

static void pass_end(struct lockd_connection *connection, enum lockd_move_end end, uint64_t ns,
                     uint64_t bytes)
{
    if (end != LOCKD_MOVE_DONE)
        note_failure(connection, ns);
    if (!connection->dead)
        lockd_relations_moved(connection, end, ns, bytes);
}

static void close_record(struct lockd_connection *connection, int fd)
{
    struct gs_descriptors record = {.fd = {fd}, .count = 1};

    lockd_closer_take(connection->server, connection->user, &record);
}

static const char *refuse_program(struct lockd_connection *connection)
{
    if (connection->peer.foreign)
        return "it lives in a pid namespace that gpushare-lockd cannot see into";
    return connection->pause.over != 0 ? "max-memory holds it back" : NULL;
}

static bool is_dead(struct lockd_connection *connection)
{
    return connection->dead;
}

void lockd_mover_init(struct lockd_server *server)
{
    static const struct lockd_move_calls calls = {
        .tell = tell_program,
        .answer = answer_asker,
        .pause = lockd_pause_move,
        .remark = lockd_remarks_say,
        .left = note_left,
        .held = pass_held,
        .over = pass_end,
        .adopted = note_adopted,
        .room = lockd_quota_room,
        .close = close_record,
        .refuse = refuse_program,
        .is_gone = is_dead,
    };

    lockd_move_init(&server->moves, server->loop.epoll, server->scheduler, &calls, server);
}

/* --- calls to lockd/move --- */

/* gpusharectl requests a move, and gets its END when the move is over. */
static void lockd_mover_ask(struct lockd_connection *connection,
                            const struct gs_wire_relocate *relocate)
{
    const uint64_t now = lockd_now();
    struct lockd_connection *found = NULL;
    enum lockd_move_end end;
    struct gs_err why = {0};
    const uint8_t *from;
    int code = lockd_control_find(connection, relocate->pid, &found);

    if (code != 0) {
        lockd_user_say(connection->user, LOCKD_LOG_INFO,
                       "user %u (process %d%s%.12s): move, process %d: %s",
                       (unsigned)connection->peer.uid, (int)connection->peer.pid,
                       connection->peer.identity.contained ? ", container " : "",
                       connection->peer.identity.container, relocate->pid, strerror(-code));
        lockd_outbox_end(connection, code, 0, "%s",
                         code == -ESRCH
                             ? "no program with that process id is connected"
                             : "only root, the user of gpushare-lockd, its control group "
                               "and the program's owner may do that");
        return;
    }
    if (!connection->peer.controls && now < found->user->move_at) {
        lockd_outbox_end(connection, -EBUSY, 0,
                         "process %d is not moved: the last move of a program of its user took "
                         "long for nothing, so its next one waits for %u s",
                         relocate->pid, (unsigned)((found->user->move_at - now) / SECOND) + 1);
        return;
    }
    from = lockd_move_source(&found->program, relocate->uuid, &why);
    code = from != NULL ? lockd_move_begin(&connection->server->moves, &found->program, from,
                                           relocate->uuid, connection->id, &end, &why)
                        : why.code;
    lockd_user_say(connection->user, LOCKD_LOG_INFO,
                   "user %u (process %d): move, process %d: %s", (unsigned)connection->peer.uid,
                   (int)connection->peer.pid, relocate->pid, code == 0 ? "begun" : why.text);
    if (code != 0)
        lockd_outbox_end(connection, code, 0, "process %d is not moved: %.150s", relocate->pid,
                         why.text);
}

/* Messages of a program. */
static void lockd_mover_sees(struct lockd_connection *connection,
                             const struct gs_wire_sees *sees)
{
    const struct lockd_seen *seen = lockd_sees_take(&connection->program.sees, sees);

    if (seen != NULL)
        lockd_relations_sees(connection, seen);
}

static void lockd_mover_take(struct lockd_connection *connection,
                             const struct gs_wire_move *message, struct gs_descriptors *with)
{
    const char *wrong =
        lockd_move_take(&connection->server->moves, &connection->program, message, with);

    if (wrong != NULL)
        lockd_connection_kill(connection, "%s", wrong);
}

#define MESSAGES_PER_TURN   16 /* then other connections are read */
#define USER_RATE           25 /* the rate of a user, as a multiple of that of a connection */
#define FULL_NS             50000000u /* the pause while the closers of its user are full */
#define PROGRAMS_PER_TICKET 8         /* in an answer, for the price of one message */

struct lockd_connection *lockd_connection_new(struct lockd_server *server, int fd,
                                              struct lockd_user *user,
                                              const struct lockd_identity *identity, pid_t pid)
{
    struct lockd_connection *connection = calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

    if (connection == NULL)
        return NULL;
    connection->server = server;
    connection->fd = fd;
    connection->id = ++server->connections.next_id;
    connection->silence.since = lockd_now();
    connection->user = user;
    lockd_peer_init(&connection->peer, identity, &server->here, identity->uid, pid);
    connection->out.watched = event.events;
    if (epoll_ctl(server->loop.epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(connection);
        return NULL;
    }
    lockd_list_append(&server->connections.all, &connection->link);
    lockd_list_append(&server->admission.silent, &connection->silence.link);
    server->connections.count++;
    user->connections++;
    return connection;
}

void lockd_connection_free(struct lockd_connection *connection)
{
    if (connection == NULL)
        return;
    lockd_list_remove(&connection->link);
    lockd_list_remove(&connection->silence.link);
    lockd_list_remove(&connection->rate.link);
    lockd_outbox_deinit(connection);
    if (connection->program.move != NULL)
        note_failure(connection, lockd_move_took(&connection->program, lockd_now()));
    lockd_move_gone(&connection->program);
    lockd_sees_deinit(&connection->program.sees);
    lockd_track_deinit(&connection->tracks);
    lockd_trace_unlisten(connection);
    lockd_closer_take_connection(connection->server, connection->user, connection->fd,
                                 connection->descriptors, connection->out.passed);
    free(connection);
}

/* Ends a connection with a message of the reason, for causes that its user can remove. */
__attribute__((format(printf, 3, 4))) static void
reject_connection(struct lockd_connection *connection, int code, const char *format, ...)
{
    struct gs_wire_end end;
    va_list ap;

    va_start(ap, format);
    end = lockd_wire_end(code, 0, format, ap);
    va_end(ap);
    lockd_outbox_send(connection, &end, sizeof end);
    lockd_connection_kill(connection, "%s", end.text);
}

/* Only the kernel's process id counts; a program that names another id has an error, or cheats. */
static void check_pid(const struct lockd_connection *connection)
{
    const struct lockd_identity *identity = &connection->peer.identity;
    const pid_t said = connection->hello.own_pid;

    if (identity->own_pid != 0 && said != identity->own_pid)
        lockd_user_say(
            connection->user, LOCKD_LOG_WARNING,
            "process %d (user %u%s%.12s) claims to be process %d: the claim is ignored",
            (int)connection->peer.pid, (unsigned)connection->peer.uid,
            connection->peer.identity.contained ? ", container " : "", identity->container,
            (int)said);
}

static void take_hello(struct lockd_connection *connection, const struct gs_wire_hello *hello)
{
    struct lockd_server *server = connection->server;
    struct gs_wire_hello granted = *hello;

    if (connection->client != NULL) {
        lockd_connection_kill(connection, "it sent HELLO twice");
        return;
    }
    if (connection->user->programs >= server->config.set.max_programs) {
        reject_connection(
            connection, -EDQUOT,
            "user %u already has %u programs here: end some, or raise max-programs",
            (unsigned)connection->peer.uid, connection->user->programs);
        return;
    }
    connection->client = sched_client_add(server->scheduler, connection);
    if (connection->client == NULL) {
        reject_connection(connection, -ENOMEM,
                          "gpushare-lockd has no memory for another program");
        return;
    }
    memcpy(connection->hello.name, hello->name, sizeof connection->hello.name);
    memcpy(connection->hello.version, hello->version, sizeof connection->hello.version);
    memcpy(connection->hello.group, hello->group, sizeof connection->hello.group);
    connection->hello.own_pid = hello->pid;
    lockd_peer_name(&connection->peer, hello->pid);
    connection->wish.class = (enum gs_wire_class)hello->class;
    /* Every program may ask for less than the ordinary weight and priority, and for a lower class
     * than the configuration gives it. More would be at the cost of others, so only programs of
     * users who may change settings get it. */
    granted.class = lockd_wish_granted(connection);
    if (!connection->peer.controls) {
        granted.weight = hello->weight > GS_WEIGHT_DEFAULT ? GS_WEIGHT_DEFAULT : hello->weight;
        granted.priority = hello->priority > 0 ? 0 : hello->priority;
    }
    sched_describe(connection->client, &granted, connection->user->number);
    lockd_closer_allow(connection, server->config.hands_over);
    server->connections.programs++;
    connection->user->programs++;
    lockd_hostwatch_came(server, connection);
    connection->program.owner = connection;
    connection->program.pid = (int32_t)connection->peer.pid;
    connection->program.name = connection->hello.name;
    connection->program.client = connection->client;
    connection->program.identity = &connection->peer.identity;
    connection->program.tracks = &connection->tracks;
    lockd_relations_came(connection);
    lockd_log(LOCKD_LOG_DEBUG, "%s (process %d, user %u, gpushare %s) connected",
              connection->hello.name, (int)connection->peer.pid, (unsigned)connection->peer.uid,
              connection->hello.version);
    lockd_successor_came(server, connection);
    check_pid(connection);
    lockd_share_came(server);
}

static void take_state(struct lockd_connection *connection, struct gs_wire_state *state,
                       struct gs_descriptors *with)
{
    const uint64_t before = sched_client_demand(connection->client, state->uuid);
    int code;

    lockd_handover_offer(connection, state, with);
    lockd_quota_state(connection, state);
    lockd_trace_state(connection, state);
    code = sched_state(connection->client, state, lockd_now());
    if (code == -EMFILE)
        reject_connection(
            connection, code,
            "too many devices: %d for one program, %d for user %u that nobody else "
            "uses",
            LOCKD_DEVICES_PER_CLIENT, 2 * LOCKD_DEVICES_PER_CLIENT,
            (unsigned)connection->peer.uid);
    else if (code != 0)
        lockd_connection_kill(connection, "state refused: %s", strerror(-code));
    else if (state->demand > before && connection->pause.wished)
        sched_evict(connection->client,
                    lockd_now()); /* it suspended itself: that leaves, too */
    if (code == 0)
        lockd_pause_state(connection);
}

static void take_request(struct lockd_connection *connection,
                         const union lockd_message *message)
{
    struct lockd_server *server = connection->server;

    if (connection->out.size != 0) {
        lockd_connection_kill(connection,
                              "it sent another request before reading the last answer");
        return;
    }
    if (message->header.type == GS_WIRE_CONTROL) {
        lockd_control_operate(connection, &message->control);
        return;
    }
    if (message->header.type == GS_WIRE_RELOCATE) {
        lockd_mover_ask(connection, &message->relocate);
        return;
    }
    /* an answer about a thousand programs costs as much as many messages */
    lockd_bucket_take(&connection->user->bucket, server->config.set.max_messages,
                      1 + server->connections.programs / PROGRAMS_PER_TICKET, lockd_now());
    if (message->header.type == GS_WIRE_TRACE)
        lockd_trace_listen(connection, &message->trace);
    else if (message->header.type == GS_WIRE_GET)
        lockd_status_settings(connection, &message->get);
    else if (message->header.type == GS_WIRE_ACCOUNT)
        lockd_status_account(connection, &message->account);
    else
        lockd_status_send(connection);
}

static void take_message(struct lockd_connection *connection, union lockd_message *message,
                         struct gs_descriptors *with)
{
    static const char *const of_program[] = {
        /* only a program sends these */
        [GS_WIRE_STATE] = "STATE", [GS_WIRE_WISH] = "WISH", [GS_WIRE_OPEN] = "OPEN",
        [GS_WIRE_SHARE] = "SHARE", [GS_WIRE_COPY] = "COPY", [GS_WIRE_KIN] = "KIN",
        [GS_WIRE_SEES] = "SEES",   [GS_WIRE_MOVE] = "MOVE",
    };
    const size_t type = message->header.type;

    if (connection->client == NULL && type < sizeof of_program / sizeof of_program[0] &&
        of_program[type] != NULL) {
        lockd_connection_kill(connection, "it sent %s before HELLO", of_program[type]);
        return;
    }
    switch (message->header.type) {
    case GS_WIRE_HELLO:
        take_hello(connection, &message->hello);
        break;
    case GS_WIRE_STATE:
        take_state(connection, &message->state, with);
        break;
    case GS_WIRE_WISH:
        lockd_wish_take(connection, &message->wish);
        break;
    case GS_WIRE_OPEN:
        lockd_share_open(connection, &message->open);
        break;
    case GS_WIRE_SHARE:
        lockd_share_answer(connection, &message->share, with);
        break;
    case GS_WIRE_COPY:
        lockd_handover_copy(connection, &message->copy, with);
        break;
    case GS_WIRE_NOTE:
        lockd_remarks_add(&connection->server->remarks, connection, &message->note,
                          lockd_now());
        break;
    case GS_WIRE_KIN:
        lockd_relations_kin(connection, &message->kin);
        break;
    case GS_WIRE_SEES:
        lockd_mover_sees(connection, &message->sees);
        break;
    case GS_WIRE_MOVE:
        lockd_mover_take(connection, &message->move, with);
        break;
    case GS_WIRE_STATUS:
    case GS_WIRE_CONTROL:
    case GS_WIRE_TRACE:
    case GS_WIRE_GET:
    case GS_WIRE_ACCOUNT:
    case GS_WIRE_RELOCATE:
        take_request(connection, message);
        break;
    default:
        lockd_connection_kill(connection, "messages of type %u are not for the daemon",
                              message->header.type);
    }
}

void lockd_connection_take(struct lockd_connection *connection, union lockd_message *message,
                           size_t size, struct gs_descriptors *with)
{
    struct gs_wire_note note = {
        .pid = (int32_t)connection->peer.pid, .kind = GS_NOTE_OTHER, .name = "other release"};
    struct gs_err err = {0};
    const int code = lockd_wire_check(message, size, &err);

    lockd_list_remove(&connection->silence.link);
    /* gpusharectl shows a remark on a program of another release, and the program is
     * told by the only message whose layout is the same in all versions */
    if (code == -EPROTONOSUPPORT) {
        snprintf(note.text, sizeof note.text, "%.150s", err.text);
        lockd_remarks_add(&connection->server->remarks, connection, &note, lockd_now());
        reject_connection(connection, code, "%.180s", err.text);
    } else if (code != 0)
        lockd_connection_kill(connection, "%s", err.text);
    else if (with->count != 0 && message->header.type != GS_WIRE_STATE &&
             message->header.type != GS_WIRE_SHARE && message->header.type != GS_WIRE_COPY &&
             message->header.type != GS_WIRE_MOVE)
        lockd_connection_kill(connection, "it sent descriptors with a message of type %u",
                              message->header.type);
    else
        take_message(connection, message, with);
    lockd_targets_send(connection->server); /* handed-over memory leaves with a target now */
    lockd_closer_take(connection->server, connection->user, with);
}

/* Whether the connection or its user exceeds the rate; then it is read again when its time has
 * come. */
static bool is_over_rate(struct lockd_connection *connection, uint64_t now)
{
    const bool own = lockd_bucket_over(connection->rate.bucket, now);
    const bool full = lockd_closer_is_full(connection->server, connection->user);

    if (!own && !full && !lockd_bucket_over(connection->user->bucket, now))
        return false;
    connection->rate.throttled = true;
    connection->rate.resume_at =
        full ? now + FULL_NS
             : lockd_bucket_ready(own ? connection->rate.bucket : connection->user->bucket);
    lockd_list_append(&connection->server->connections.throttled, &connection->rate.link);
    lockd_outbox_watch(connection);
    return true;
}

uint64_t lockd_connection_resume(struct lockd_server *server, uint64_t now)
{
    uint64_t next = LOCKD_NEVER;

    lockd_each (struct lockd_connection, connection, &server->connections.throttled,
                rate.link) {
        if (now < connection->rate.resume_at) {
            next = lockd_lesser(next, connection->rate.resume_at);
            continue;
        }
        lockd_list_remove(&connection->rate.link);
        connection->rate.throttled = false;
        lockd_outbox_watch(connection);
    }
    return next;
}

void lockd_connection_readable(struct lockd_connection *connection)
{
    for (int i = 0; i < MESSAGES_PER_TURN && !connection->dead; i++) {
        const uint64_t now = lockd_now(), rate = connection->server->config.set.max_messages;
        struct gs_descriptors with;
        union lockd_message message;
        ssize_t size;

        if (connection->rate.throttled || is_over_rate(connection, now))
            return;
        size = gs_packet_receive(connection->fd, &message, sizeof message, GS_PACKET_FDS_MAX,
                                 &with);
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (size <= 0) {
            /* even an empty packet can carry descriptors */
            lockd_closer_take(connection->server, connection->user, &with);
            lockd_connection_kill(connection, NULL);
            return;
        }
        lockd_bucket_take(&connection->rate.bucket, rate, 1, now);
        lockd_bucket_take(&connection->user->bucket, rate * USER_RATE, 1, now);
        lockd_connection_take(connection, &message, (size_t)size, &with);
    }
}
