/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.c: connects lockd/move with connections: tells it of programs, their messages and the moves
 * that users request, and provides the functions that need a connection. No state. One thread.
 */
#include "lockd/server/mover.h"

#include "lockd/base/clock.h"
#include "lockd/server/server.h"
#include "lockd/server/users.h"

#include <errno.h>
#include <string.h>

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

static void pause_program(struct lockd_connection *connection, bool paused)
{
    if (!connection->dead)
        lockd_pause_move(connection, paused);
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
        .pause = pause_program,
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

void lockd_mover_came(struct lockd_connection *connection)
{
    struct lockd_move_program *program = &connection->program;

    program->owner = connection;
    program->pid = (int32_t)connection->peer.pid;
    program->name = connection->hello.name;
    program->client = connection->client;
    program->identity = &connection->peer.identity;
    program->tracks = &connection->tracks;
}

void lockd_mover_gone(struct lockd_connection *connection)
{
    if (connection->program.move != NULL)
        note_failure(connection, lockd_move_took(&connection->program, lockd_now()));
    lockd_move_gone(&connection->program);
    lockd_sees_deinit(&connection->program.sees);
}

void lockd_mover_ask(struct lockd_connection *connection,
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

void lockd_mover_sees(struct lockd_connection *connection, const struct gs_wire_sees *sees)
{
    const struct lockd_seen *seen = lockd_sees_take(&connection->program.sees, sees);

    if (seen != NULL)
        lockd_relations_sees(connection, seen);
}

void lockd_mover_take(struct lockd_connection *connection, const struct gs_wire_move *message,
                      struct gs_descriptors *with)
{
    const char *wrong =
        lockd_move_take(&connection->server->moves, &connection->program, message, with);

    if (wrong != NULL)
        lockd_connection_kill(connection, "%s", wrong);
}
