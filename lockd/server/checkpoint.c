/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c: the daemon's side of checkpointed programs (checkpoint.h). State: struct
 * lockd_checkpoints. One thread, nothing blocks.
 *
 * Invariant: a connection has at most one guard. While its program is checkpointed or being
 * restored, the scheduler gets reports about it from its stand-in only (standin.h).
 */
#include "lockd/server/checkpoint.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/guard/guard.h"
#include "lockd/guard/guard_start.h"
#include "lockd/server/remarks.h"
#include "lockd/server/server.h"
#include "lockd/server/standin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_NS                                                                                \
    1000000000u /* between two looks for stuck programs, and after a failed restore */
#define FAILED_NS   60000000000u /* the pause after a failed checkpoint */
#define GUARDS_MOST 4            /* for one program */

enum stage { CHECKPOINTING, CHECKPOINTED, RESTORING };

struct lockd_checkpoint {
    struct lockd_list link; /* of the server's */
    struct lockd_connection *connection;
    enum stage stage;
    int guard;
    unsigned guards_lost;
    unsigned failures; /* of restores */
    uint64_t retry_at;
    struct lockd_standin standin;
};

static struct lockd_checkpoint *checkpoint_of(struct lockd_list *at)
{
    return lockd_entry(at, struct lockd_checkpoint, link);
}

bool lockd_checkpoint_holds(const struct lockd_connection *connection)
{
    return connection->checkpoint != NULL && connection->checkpoint->stage != CHECKPOINTING;
}

static void free_checkpoint(struct lockd_checkpoint *checkpoint)
{
    checkpoint->connection->checkpoint = NULL;
    lockd_list_remove(&checkpoint->link);
    close(checkpoint->guard); /* the guard ends, after it has brought the program back */
    free(checkpoint);
}

void lockd_checkpoint_gone(struct lockd_connection *connection)
{
    if (connection->checkpoint != NULL)
        free_checkpoint(connection->checkpoint);
}

/* --- the guard --- */

static int start_guard(struct lockd_server *server, struct lockd_checkpoint *checkpoint,
                       char order)
{
    const struct lockd_guard_order first = {.word = order,
                                            .pid = (int32_t)checkpoint->connection->peer.pid};
    const int guard = lockd_guard_start(&first, -1, server->loop.epoll, checkpoint);

    if (guard < 0)
        return guard;
    checkpoint->guard = guard;
    return 0;
}

static void begin_checkpoint(struct lockd_server *server, struct lockd_connection *connection)
{
    struct lockd_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    int code = checkpoint != NULL ? 0 : -ENOMEM;

    if (code == 0 && !lockd_identity_is_running(&connection->peer.identity))
        code = -ESRCH;

    if (code == 0) {
        checkpoint->connection = connection;
        checkpoint->standin.connection = connection;
        checkpoint->stage = CHECKPOINTING;
        code = start_guard(server, checkpoint, LOCKD_GUARD_CHECKPOINT);
    }
    if (code != 0) {
        lockd_log(LOCKD_LOG_ERROR,
                  "process %d (%s) does not stop, and its guard cannot be started: %s",
                  (int)connection->peer.pid, connection->hello.name, strerror(-code));
        connection->checkpoint_at = lockd_now() + FAILED_NS;
        free(checkpoint);
        return;
    }
    lockd_list_append(&server->checkpoints.list, &checkpoint->link);
    connection->checkpoint = checkpoint;
    lockd_log(LOCKD_LOG_WARNING, "process %d (%s) does not stop: the driver will checkpoint it",
              (int)connection->peer.pid, connection->hello.name);
}

static void advance_restore(struct lockd_checkpoint *checkpoint, uint64_t now)
{
    lockd_standin_report_more(&checkpoint->standin, now);
    checkpoint->retry_at = now + LOOK_NS;
}

/* --- messages of the guard --- */

static void take_checkpointed(struct lockd_checkpoint *checkpoint, uint64_t now)
{
    lockd_standin_record(&checkpoint->standin, now);
    checkpoint->stage = CHECKPOINTED;
    lockd_remarks_say(checkpoint->connection,
                      "it did not stop: the driver has checkpointed it until its next turn");
    lockd_standin_report_out(&checkpoint->standin, now);
}

static void take_restored(struct lockd_checkpoint *checkpoint, uint64_t now)
{
    struct lockd_connection *connection = checkpoint->connection;

    lockd_standin_report_back(&checkpoint->standin, now);
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) continues", (int)connection->peer.pid,
              connection->hello.name);
    free_checkpoint(checkpoint);
}

static void take_failure(struct lockd_checkpoint *checkpoint, uint64_t now, const char *why)
{
    struct lockd_connection *connection = checkpoint->connection;

    lockd_log(LOCKD_LOG_ERROR, "process %d (%s) is not checkpointed: %s",
              (int)connection->peer.pid, connection->hello.name, why);
    connection->checkpoint_at = now + (checkpoint->guards_lost == 0 ? FAILED_NS : LOOK_NS);
    free_checkpoint(checkpoint);
}

/* The guard was killed and the program is checkpointed: another guard takes over. If there is
 * none, all memory of the program counts as resident again. */
static void replace_guard(struct lockd_checkpoint *checkpoint, uint64_t now)
{
    struct lockd_connection *connection = checkpoint->connection;
    const int lost = checkpoint->guard;
    int code = ++checkpoint->guards_lost < GUARDS_MOST ? 0 : -EIO;

    if (code == 0 && !lockd_identity_is_running(&connection->peer.identity))
        code = -ESRCH; /* its number may be another process's */
    if (code == 0)
        code = start_guard(connection->server, checkpoint, LOCKD_GUARD_ADOPT);
    lockd_log(LOCKD_LOG_ERROR, "the guard of process %d (%s) was killed%s%s",
              (int)connection->peer.pid, connection->hello.name,
              code != 0 ? ", and the next one: " : "", code != 0 ? strerror(-code) : "");
    if (code != 0) {
        connection->checkpoint_at = now + FAILED_NS;
        take_restored(checkpoint, now);
        return;
    }
    close(lost);
    if (checkpoint->stage == RESTORING) {
        checkpoint->stage = CHECKPOINTED;
        lockd_standin_report_out(&checkpoint->standin, now);
    } else {
        lockd_standin_report(&checkpoint->standin, now);
    }
}

static void postpone_restore(struct lockd_checkpoint *checkpoint, uint64_t now, const char *why)
{
    if (checkpoint->failures++ == 0)
        lockd_log(LOCKD_LOG_WARNING, "process %d (%s) cannot be brought back yet: %s",
                  (int)checkpoint->connection->peer.pid, checkpoint->connection->hello.name,
                  why);
    checkpoint->retry_at = now + LOOK_NS;
    checkpoint->stage = CHECKPOINTED;
    lockd_standin_report_short(&checkpoint->standin, now);
}

static void take_guard_word(struct lockd_checkpoint *checkpoint, const char *word, uint64_t now)
{
    if (word[0] == LOCKD_GUARD_CHECKPOINTED && checkpoint->stage == CHECKPOINTING) {
        take_checkpointed(checkpoint, now);
    } else if (word[0] == LOCKD_GUARD_RESTORE && checkpoint->stage != CHECKPOINTING) {
        take_restored(checkpoint, now);
    } else if (word[0] == LOCKD_GUARD_NO_ROOM && checkpoint->stage == RESTORING) {
        postpone_restore(checkpoint, now, word + 1);
    } else if (checkpoint->stage == CHECKPOINTING &&
               (word[0] == LOCKD_GUARD_FAILED || word[0] == LOCKD_GUARD_UNABLE)) {
        take_failure(checkpoint, now, word + 1);
    } else if (checkpoint->stage == CHECKPOINTING && word[0] == LOCKD_GUARD_RESTORE) {
        take_failure(checkpoint, now, "its guard was killed");
    } else if (word[0] != LOCKD_GUARD_CHECKPOINTED) { /* sent by a guard that has taken over */
        replace_guard(checkpoint, now);
    }
}

bool lockd_checkpoint_event(struct lockd_server *server, const void *tag)
{
    lockd_list_each (at, &server->checkpoints.list) {
        struct lockd_checkpoint *checkpoint = checkpoint_of(at);
        char word[LOCKD_GUARD_TEXT + 1];

        if (checkpoint != tag)
            continue;
        if (!checkpoint->connection->dead && lockd_guard_read(checkpoint->guard, word))
            take_guard_word(checkpoint, word, lockd_now());
        return true;
    }
    return false;
}

/* --- targets --- */

void lockd_checkpoint_target(struct lockd_connection *connection,
                             const struct gs_wire_target *target)
{
    lockd_standin_target(&connection->checkpoint->standin, target);
}

bool lockd_checkpoint_answer(struct lockd_server *server)
{
    bool any = false;

    lockd_list_each (at, &server->checkpoints.list) {
        struct lockd_checkpoint *checkpoint = checkpoint_of(at);

        if (!checkpoint->connection->dead)
            any |= lockd_standin_answer(&checkpoint->standin);
    }
    return any;
}

/* --- time --- */

static void begin_restore(struct lockd_checkpoint *checkpoint, uint64_t now)
{
    const char word = LOCKD_GUARD_RESTORE;

    if (send(checkpoint->guard, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        /* the guard has ended, and its last message will arrive */
        checkpoint->retry_at = now + LOOK_NS;
        return;
    }
    checkpoint->stage = RESTORING;
    advance_restore(checkpoint, now);
}

static void ignore_device(void *context, const struct gs_wire_device *device)
{
    (void)context;
    (void)device;
}

struct look {
    struct lockd_connection *found;
    uint64_t now;
};

static void look_at_member(void *context, const struct gs_wire_device *device, void *owner,
                           const struct gs_wire_client *member)
{
    struct lockd_connection *connection = owner;
    struct look *look = context;

    (void)device;
    if (member->condition == GS_CONDITION_STUCK && (member->flags & GS_CLIENT_LEASE) == 0 &&
        connection->checkpoint == NULL && connection->program.move == NULL &&
        !connection->dead && !connection->peer.foreign &&
        look->now >= connection->checkpoint_at)
        look->found = connection;
}

static uint64_t look_for_stuck(struct lockd_server *server, uint64_t now)
{
    struct look look = {NULL, now};

    if (server->config.set.stuck != LOCKD_STUCK_CHECKPOINT || server->connections.programs == 0)
        return LOCKD_NEVER;
    if (now < server->checkpoints.look_at)
        return server->checkpoints.look_at;
    server->checkpoints.look_at = now + LOOK_NS;
    sched_visit(server->scheduler, ignore_device, look_at_member, &look, now);
    if (look.found != NULL)
        begin_checkpoint(server, look.found);
    return server->checkpoints.look_at;
}

uint64_t lockd_checkpoint_tend(struct lockd_server *server, uint64_t now)
{
    uint64_t next = look_for_stuck(server, now);

    lockd_list_each (at, &server->checkpoints.list) {
        struct lockd_checkpoint *checkpoint = checkpoint_of(at);

        if (checkpoint->connection->dead || checkpoint->stage == CHECKPOINTING)
            continue;
        if (checkpoint->stage == CHECKPOINTED && now >= checkpoint->retry_at &&
            lockd_standin_may_return(&checkpoint->standin))
            begin_restore(checkpoint, now);
        else if (checkpoint->stage == RESTORING && now >= checkpoint->retry_at)
            advance_restore(checkpoint, now);
        if (checkpoint->stage == RESTORING ||
            (checkpoint->retry_at > now && checkpoint->retry_at < next))
            next = checkpoint->retry_at < next ? checkpoint->retry_at : next;
    }
    return next;
}
