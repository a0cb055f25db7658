/* SPDX-License-Identifier: Apache-2.0
 *
 * move.c: the daemon's side of programs that change devices (move.h). State: struct lockd_moves.
 * One thread, nothing blocks.
 *
 * Invariants: a connection is in at most one move. From GO on the guard alone decides how the move
 * ends, and says so; a guard that ends without a word is replaced by another one, for as long as the
 * program lives. The program is paused (pause.h) from STOP until it is told that the move is over.
 */
#include "lockd/server/move.h"

#include "lockd/base/log.h"
#include "lockd/base/text.h"
#include "lockd/guard/guard_start.h"
#include "lockd/protocol/names.h"
#include "lockd/protocol/wire_check.h"
#include "lockd/server/clock.h"
#include "lockd/server/closer.h"
#include "lockd/server/control.h"
#include "lockd/server/ending.h"
#include "lockd/server/outbox.h"
#include "lockd/server/pause.h"
#include "lockd/server/relations.h"
#include "lockd/server/remarks.h"
#include "lockd/server/server.h"
#include "lockd/server/trace.h"
#include "lockd/server/users.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASK_NS  10000000000u /* the program and the guard say whether it may be moved */
#define STOP_NS 60000000000u /* submitted work finishes, and its memory leaves */
#define RETRY_NS                                                                               \
    1000000000u /* before the second guard in the place of a killed one, and others */

enum stage {
    ASKING,   /* the program and the guard */
    STOPPING, /* the program */
    GUARDED,  /* the guard is at work */
};

struct lockd_move {
    struct lockd_list link; /* of the server's */
    struct lockd_connection *connection;
    enum stage stage;
    struct lockd_guard_order order; /* its pairs[0] is the device that is left, and taken */
    uint32_t number;
    int guard, record; /* -1: none */
    uint64_t asker;    /* id of the connection that is told the end; 0: none */
    bool program_may, guard_may;
    uint64_t until, retry_at;
    uint64_t began, stopped, bytes;
    unsigned guards_lost;
};

static struct lockd_move *move_of(struct lockd_list *at)
{
    return lockd_entry(at, struct lockd_move, link);
}

static struct lockd_move *find_move(const struct lockd_connection *connection)
{
    lockd_list_each (at, &connection->server->moves.list)
        if (move_of(at)->connection == connection)
            return move_of(at);
    return NULL;
}

/* --- what is said --- */

static void answer_asker(struct lockd_server *server, struct lockd_move *move, int code,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

static void answer_asker(struct lockd_server *server, struct lockd_move *move, int code,
                         const char *format, ...)
{
    struct gs_wire_end end;
    va_list ap;

    va_start(ap, format);
    end = lockd_wire_end(code, code == 0, format, ap);
    va_end(ap);
    lockd_list_each (at, &server->connections.all) {
        struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (move->asker != 0 && each->id == move->asker && !each->dead)
            lockd_outbox_send(each, &end, sizeof end);
    }
    move->asker = 0;
}

static void tell_program(const struct lockd_move *move, enum gs_move_step step, int code)
{
    struct gs_wire_move message = {
        .number = move->number, .step = (uint32_t)step, .code = code};

    lockd_wire_header(&message.header, GS_WIRE_MOVE);
    memcpy(message.from, move->order.pairs[0].from, sizeof message.from);
    memcpy(message.to, move->order.pairs[0].to, sizeof message.to);
    if (!move->connection->dead)
        lockd_outbox_send(move->connection, &message, sizeof message);
}

/* --- the end --- */

static void free_move(struct lockd_move *move)
{
    struct gs_descriptors record = {.fd = {move->record}, .count = 1};

    lockd_list_remove(&move->link);
    if (move->guard >= 0)
        close(move->guard); /* before GO the guard ends; later it goes on alone */
    if (move->record >= 0)
        lockd_closer_take(move->connection->server, move->connection->user, &record);
    free(move);
}

enum balance_outcome lockd_move_outcome(enum lockd_move_end end)
{
    static const enum balance_outcome outcomes[] = {
        [LOCKD_MOVE_DONE] = BALANCE_MOVED,
        [LOCKD_MOVE_NOT_THERE] = BALANCE_NOT_THERE,
        [LOCKD_MOVE_NOT_IT] = BALANCE_NOT_IT,
        [LOCKD_MOVE_NOBODY] = BALANCE_NOBODY,
    };

    return outcomes[end];
}

/* The one place that hears how each move ends, whoever asked for it. */
static void lockd_move_over(struct lockd_connection *connection, enum lockd_move_end end,
                            uint64_t ns, uint64_t bytes)
{
    lockd_relations_moved(connection, lockd_move_outcome(end), ns, bytes);
}

/* The program goes on where it was. */
static void end_without(struct lockd_move *move, enum lockd_move_end end, const char *why)
{
    struct lockd_connection *connection = move->connection;

    lockd_log(LOCKD_LOG_WARNING, "process %d (%s) is not moved: %s", (int)connection->pid,
              connection->name, why);
    answer_asker(connection->server, move, -EIO, "process %d is not moved: %s",
                 (int)connection->pid, why);
    tell_program(move, GS_MOVE_OVER, -EIO);
    if (move->stopped != 0 && !connection->dead)
        lockd_pause_move(connection, false);
    if (!connection->dead)
        lockd_move_over(connection, end, lockd_now() - move->began, move->bytes);
    free_move(move);
}

static void end_moved(struct lockd_move *move)
{
    struct lockd_connection *connection = move->connection;
    const uint64_t now = lockd_now();
    char from[LOCKD_UUID_SIZE], to[LOCKD_UUID_SIZE];

    for (unsigned i = 0; i < move->order.count; i++) {
        const struct lockd_guard_pair *pair = &move->order.pairs[i];

        if (memcmp(pair->from, pair->to, sizeof pair->from) == 0)
            continue;
        lockd_trace_left(connection, pair->from);
        lockd_track_drop(&connection->tracks, pair->from);
        sched_left(connection->server->scheduler, connection->client, pair->from, now);
    }
    tell_program(move, GS_MOVE_OVER, 0);
    if (move->stopped != 0)
        lockd_pause_move(connection, false);
    lockd_uuid_text(move->order.pairs[0].from, from);
    lockd_uuid_text(move->order.pairs[0].to, to);
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) was moved from %s to %s", (int)connection->pid,
              connection->name, from, to);
    answer_asker(connection->server, move, 0,
                 "from %s to %s in %.2f s, of which the driver's checkpoint took %.2f s", from,
                 to, (double)(now - move->began) / 1e9, (double)(now - move->retry_at) / 1e9);
    lockd_move_over(connection, LOCKD_MOVE_DONE, now - move->began, move->bytes);
    free_move(move);
}

void lockd_move_gone(struct lockd_connection *connection)
{
    struct lockd_move *move = find_move(connection);

    if (move == NULL)
        return;
    answer_asker(connection->server, move, -ESRCH, "process %d has ended, or lost its daemon",
                 (int)connection->pid);
    free_move(move);
}

/* --- the guard --- */

static void drop_guard(struct lockd_move *move)
{
    if (move->guard >= 0)
        close(move->guard);
    move->guard = -1;
}

static int start_guard(struct lockd_server *server, struct lockd_move *move, char word)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = move};
    int code;

    move->order.word = word;
    move->guard =
        lockd_guard_start(&move->order, word == LOCKD_GUARD_TAKE_UP ? move->record : -1);
    if (move->guard < 0) {
        code = move->guard;
        move->guard = -1;
        return code;
    }
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, move->guard, &event) == 0)
        return 0;
    code = -errno;
    drop_guard(move);
    return code;
}

/* Each device that the program sees: the two change places, the others stay. */
static void name_pairs(struct lockd_move *move)
{
    const struct lockd_sees *sees = &move->connection->sees;
    struct lockd_guard_order *order = &move->order;

    order->count = 1;
    for (uint32_t i = 0; i < sees->count && order->count < LOCKD_GUARD_PAIRS; i++) {
        struct lockd_guard_pair *pair = &order->pairs[order->count];
        const uint8_t *uuid = sees->device[i].uuid;

        if (memcmp(uuid, order->pairs[0].from, 16) == 0)
            continue;
        memcpy(pair->from, uuid, 16);
        memcpy(pair->to,
               memcmp(uuid, order->pairs[0].to, 16) == 0 ? order->pairs[0].from : uuid, 16);
        order->count++;
    }
}

static void send_guard(struct lockd_move *move)
{
    move->order.word = LOCKD_GUARD_GO;
    move->stage = GUARDED;
    move->retry_at = lockd_now(); /* when the guard began */
    if (!lockd_guard_order(move->guard, &move->order, move->record))
        lockd_log(LOCKD_LOG_DEBUG, "the guard of process %d has ended already",
                  (int)move->connection->pid); /* as it will be found to have */
}

static void stop_program(struct lockd_move *move)
{
    struct lockd_connection *connection = move->connection;

    move->stage = STOPPING;
    move->stopped = lockd_now();
    move->until = move->stopped + STOP_NS;
    lockd_pause_move(connection, true);
    sched_evict(connection->server->scheduler, connection->client, move->stopped);
    tell_program(move, GS_MOVE_STOP, 0);
}

/* The guard was killed. Before GO it had done nothing. */
static void replace_guard(struct lockd_move *move, uint64_t now)
{
    const bool first = move->guards_lost++ == 0;

    drop_guard(move);
    if (move->stage != GUARDED) {
        end_without(move, LOCKD_MOVE_NOT_IT, "its guard was killed");
        return;
    }
    lockd_log(LOCKD_LOG_ERROR, "the guard that moves process %d (%s) was killed",
              (int)move->connection->pid, move->connection->name);
    move->until = first ? now : now + RETRY_NS;
}

static void take_held(struct lockd_move *move, const char *text)
{
    struct lockd_connection *connection = move->connection;
    char remark[192];

    lockd_log(LOCKD_LOG_ERROR,
              "process %d (%s) cannot be brought back: %s; it is tried again every second",
              (int)connection->pid, connection->name, text);
    snprintf(remark, sizeof remark, "it was to be moved and cannot be brought back: %.110s",
             text);
    lockd_remarks_say(connection, remark);
    answer_asker(
        connection->server, move, -EBUSY,
        "process %d waits: %.90s. It is tried every second: make room on either GPU, or end it",
        (int)connection->pid, text);
}

static void take_refusal(struct lockd_move *move, char word, const char *text)
{
    char why[2 * LOCKD_GUARD_TEXT];

    if (word == LOCKD_GUARD_UNABLE) {
        snprintf(why, sizeof why, "%s%s", text, lockd_guard_advice());
        end_without(move, LOCKD_MOVE_NOBODY, why);
    } else {
        end_without(move, word == LOCKD_GUARD_CANNOT ? LOCKD_MOVE_NOT_THERE : LOCKD_MOVE_NOT_IT,
                    text);
    }
}

static void take_word(struct lockd_move *move, const char *word, uint64_t now)
{
    switch (word[0]) {
    case LOCKD_GUARD_MAY:
        move->guard_may = true;
        if (move->stage == ASKING && move->program_may)
            stop_program(move);
        break;
    case LOCKD_GUARD_FAILED:
    case LOCKD_GUARD_UNABLE:
    case LOCKD_GUARD_CANNOT:
        if (move->stage == GUARDED && move->order.word == LOCKD_GUARD_TAKE_UP)
            break; /* no driver for a moment: the guard ends, and is replaced */
        take_refusal(move, word[0], word + 1);
        break;
    case LOCKD_GUARD_HELD:
        take_held(move, word + 1);
        break;
    case LOCKD_GUARD_MOVED:
        end_moved(move);
        break;
    case LOCKD_GUARD_STAYED:
        end_without(move, LOCKD_MOVE_NOT_THERE, word + 1);
        break;
    default:
        replace_guard(move, now);
    }
}

bool lockd_move_event(struct lockd_server *server, const void *tag)
{
    lockd_list_each (at, &server->moves.list) {
        struct lockd_move *move = move_of(at);
        char word[LOCKD_GUARD_TEXT + 1] = "";
        ssize_t size;

        if (move != tag)
            continue;
        if (move->connection->dead)
            return true;
        size = recv(move->guard, word, sizeof word - 1, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (size <= 0)
            snprintf(word, sizeof word, "?");
        lockd_text_clean(word, sizeof word);
        take_word(move, word, lockd_now());
        return true;
    }
    return false;
}

uint64_t lockd_move_tend(struct lockd_server *server, uint64_t now)
{
    uint64_t next = LOCKD_NEVER;

    lockd_list_each (at, &server->moves.list) {
        struct lockd_move *move = move_of(at);

        if (move->connection->dead || (move->stage == GUARDED && move->guard >= 0))
            continue;
        if (move->stage == GUARDED && now >= move->until) {
            move->until = now + RETRY_NS;
            start_guard(server, move, LOCKD_GUARD_TAKE_UP);
            if (move->guard >= 0)
                continue;
        } else if (now >= move->until) {
            end_without(move, LOCKD_MOVE_NOT_IT,
                        move->stage == ASKING
                            ? "it does not answer"
                            : "it does not stop, or keeps memory that cannot leave the GPU");
            continue;
        }
        next = move->until < next ? move->until : next;
    }
    return next;
}

/* --- the beginning --- */

static const struct lockd_seen *find_seen(const struct lockd_sees *sees, const uint8_t *uuid)
{
    for (uint32_t i = 0; i < sees->count; i++)
        if (memcmp(sees->device[i].uuid, uuid, sizeof sees->device[i].uuid) == 0)
            return &sees->device[i];
    return NULL;
}

struct used {
    const uint8_t *from;
    uint64_t pinned, gang_programs;
    bool found;
};

static void look_at_member(void *context, const struct gs_wire_device *device, void *owner,
                           const struct gs_wire_client *member)
{
    struct used *used = context;

    (void)device, (void)owner;
    used->gang_programs = member->gang_programs > used->gang_programs ? member->gang_programs
                                                                      : used->gang_programs;
    if (memcmp(member->uuid, used->from, 16) != 0)
        return;
    used->found = true;
    used->pinned = member->pinned;
}

/* What the daemon knows by itself. */
static int check_program(const struct lockd_connection *connection, const uint8_t from[16],
                         const uint8_t to[16], const struct used *used,
                         enum lockd_move_end *end, struct gs_err *why)
{
    const struct lockd_seen *here = find_seen(&connection->sees, from);
    const struct lockd_seen *there = find_seen(&connection->sees, to);

    *end = LOCKD_MOVE_NOT_IT;
    if (connection->foreign || connection->checkpoint != NULL || !used->found || here == NULL)
        return gs_err_set(why, -EINVAL, "%s",
                          connection->foreign              ? "it lives in a pid namespace that "
                                                             "gpushare-lockd cannot see into"
                          : connection->checkpoint != NULL ? "it is checkpointed"
                                                           : "it uses no GPU yet");
    if (used->gang_programs > 1)
        return gs_err_set(why, -EINVAL,
                          "it is in a gang with %llu programs, which have their turns together",
                          (unsigned long long)used->gang_programs);
    if (connection->pause.over != 0)
        return gs_err_set(why, -EINVAL, "max-memory holds it back");
    *end = LOCKD_MOVE_NOT_THERE;
    if (there == NULL)
        return gs_err_set(
            why, -ENODEV,
            "it does not see that GPU (CUDA_VISIBLE_DEVICES when it was started, or "
            "the devices of its container)");
    if (strcmp(here->name, there->name) != 0 || here->total != there->total)
        return gs_err_set(why, -ENODEV, "that GPU is of another model (%s)", there->name);
    return 0;
}

static uint64_t demand_of(const struct lockd_connection *connection, const uint8_t *uuid)
{
    const struct lockd_track *track = lockd_track_find(&connection->tracks, uuid);

    return track != NULL ? track->demand : 0;
}

static struct lockd_move *new_move(struct lockd_connection *connection)
{
    struct lockd_move *move = calloc(1, sizeof *move);

    if (move == NULL)
        return NULL;
    move->connection = connection;
    move->guard = move->record = -1;
    move->number = ++connection->server->moves.number;
    move->order.pid = (int32_t)connection->pid;
    move->began = lockd_now();
    move->until = move->began + ASK_NS;
    lockd_list_append(&connection->server->moves.list, &move->link);
    return move;
}

/* The process may have ended, and its number may be that of another program now. */
static bool is_still_there(const struct lockd_connection *connection)
{
    const int pidfd = lockd_identity_pidfd(&connection->identity);

    if (pidfd >= 0)
        close(pidfd);
    return pidfd >= 0;
}

int lockd_move_begin(struct lockd_connection *connection, const uint8_t from[16],
                     const uint8_t to[16], enum lockd_move_end *end, struct gs_err *why)
{
    struct lockd_server *server = connection->server;
    struct used used = {.from = from};
    struct lockd_move *move;
    int code;

    if (!lockd_list_empty(&server->moves.list))
        return gs_err_set(why, -EBUSY, "another move is under way");
    sched_visit_client(connection->client, look_at_member, &used, lockd_now());
    code = check_program(connection, from, to, &used, end, why);
    if (code != 0)
        return code;
    move = is_still_there(connection) ? new_move(connection) : NULL;
    if (move == NULL)
        return gs_err_set(why, -ESRCH, "it has ended");
    memcpy(move->order.pairs[0].from, from, 16);
    memcpy(move->order.pairs[0].to, to, 16);
    move->order.count = 1;
    move->order.bytes = used.pinned;
    move->bytes = demand_of(connection, from);
    code = start_guard(server, move, LOCKD_GUARD_MOVE);
    if (code != 0) {
        free_move(move);
        *end = LOCKD_MOVE_NOBODY;
        return gs_err_errno(why, code, "no guard can be started");
    }
    tell_program(move, GS_MOVE_ASK, 0);
    return 0;
}

/* The device that it is to leave: the one that it uses, beside the other one. */
static const uint8_t *device_to_leave(const struct lockd_connection *connection,
                                      const uint8_t *to, struct gs_err *why)
{
    const struct lockd_track *found = NULL;
    unsigned used = 0, named = 0;

    for (size_t i = 0; i < connection->tracks.count; i++) {
        const struct lockd_track *track = &connection->tracks.track[i];

        if (memcmp(track->uuid, to, sizeof track->uuid) == 0) {
            if (track->demand != 0 || connection->tracks.count == 1) {
                gs_err_set(why, -EALREADY, "it uses that GPU already");
                return NULL;
            }
            continue;
        }
        named++;
        used += track->demand != 0;
        if (found == NULL || track->demand != 0)
            found = track;
    }
    if (found != NULL && (used == 1 || named == 1))
        return found->uuid;
    gs_err_set(why, -EINVAL, "%s",
               found != NULL ? "it uses several GPUs" : "it uses no GPU yet");
    return NULL;
}

void lockd_move_ask(struct lockd_connection *connection,
                    const struct gs_wire_relocate *relocate)
{
    struct lockd_move asked = {.asker = connection->id};
    struct lockd_server *server = connection->server;
    struct lockd_connection *program = NULL;
    enum lockd_move_end end;
    struct gs_err why = {0};
    const uint8_t *from;
    int code = lockd_control_find(connection, relocate->pid, &program);

    if (code == -EPERM || code == -ESRCH) {
        lockd_user_say(connection->user, LOCKD_LOG_INFO,
                       "user %u (process %d%s%.12s): move, process %d: %s",
                       (unsigned)connection->uid, (int)connection->pid,
                       connection->contained ? ", container " : "",
                       connection->identity.container, relocate->pid, strerror(-code));
        answer_asker(server, &asked, code, "%s",
                     code == -ESRCH
                         ? "no program with that process id is connected"
                         : "only root, the user of gpushare-lockd, its control group "
                           "and the program's owner may do that");
        return;
    }
    from = device_to_leave(program, relocate->uuid, &why);
    code =
        from != NULL ? lockd_move_begin(program, from, relocate->uuid, &end, &why) : why.code;
    lockd_user_say(connection->user, LOCKD_LOG_INFO,
                   "user %u (process %d): move, process %d: %s", (unsigned)connection->uid,
                   (int)connection->pid, relocate->pid, code == 0 ? "begun" : why.text);
    if (code == 0)
        find_move(program)->asker = connection->id;
    else
        answer_asker(server, &asked, code, "process %d is not moved: %.150s", relocate->pid,
                     why.text);
}

/* --- messages of the program --- */

void lockd_move_sees(struct lockd_connection *connection, const struct gs_wire_sees *sees)
{
    struct lockd_sees *all = &connection->sees;
    struct lockd_seen *one;

    if (connection->client == NULL) {
        lockd_connection_kill(connection, "a device that it sees before its hello");
        return;
    }
    if (sees->count != all->count) {
        free(all->device);
        all->device = calloc(sees->count, sizeof *all->device);
        all->count = all->device != NULL ? sees->count : 0;
    }
    if (all->device == NULL)
        return; /* it cannot be moved, then */
    one = &all->device[sees->index];
    memcpy(one->uuid, sees->uuid, sizeof one->uuid);
    memcpy(one->name, sees->name, sizeof one->name);
    one->total = sees->total;
    lockd_relations_sees(connection, one);
}

/* A program comes back from a daemon that was killed, in the middle of a move. */
static void adopt_move(struct lockd_connection *connection, const struct gs_wire_move *message,
                       struct gs_descriptors *with)
{
    struct lockd_move *move;

    if (with->count != 1 || connection->sees.left || find_move(connection) != NULL ||
        connection->foreign || !is_still_there(connection)) {
        lockd_connection_kill(connection, "a move without a record");
        return;
    }
    connection->sees.left = true;
    move = new_move(connection);
    if (move == NULL)
        return;
    move->record = with->fd[--with->count];
    move->stage = GUARDED;
    move->number = message->number;
    memcpy(move->order.pairs[0].from, message->from, 16);
    memcpy(move->order.pairs[0].to, message->to, 16);
    name_pairs(move);
    move->until = move->retry_at = lockd_now();
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) was being moved when its daemon ended",
              (int)connection->pid, connection->name);
}

void lockd_move_take(struct lockd_connection *connection, const struct gs_wire_move *message,
                     struct gs_descriptors *with)
{
    struct lockd_move *move = connection->client != NULL ? find_move(connection) : NULL;

    if (connection->client == NULL) {
        lockd_connection_kill(connection, "a move before its hello");
    } else if (message->step == GS_MOVE_LEFT) {
        adopt_move(connection, message, with);
    } else if (move == NULL || message->number != move->number || move->stage == GUARDED) {
        return; /* it was given up meanwhile */
    } else if (message->code != 0) {
        end_without(move, message->code == -ENODEV ? LOCKD_MOVE_NOT_THERE : LOCKD_MOVE_NOT_IT,
                    message->text);
    } else if (message->step == GS_MOVE_ASK && move->stage == ASKING) {
        move->program_may = true;
        if (move->guard_may)
            stop_program(move);
    } else if (message->step == GS_MOVE_STOP && move->stage == STOPPING && with->count == 1) {
        move->record = with->fd[--with->count];
        name_pairs(move);
        send_guard(move);
    } else {
        end_without(move, LOCKD_MOVE_NOT_IT, "it does not keep to the protocol");
    }
}
