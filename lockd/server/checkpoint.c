/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c: the daemon's side of frozen programs (checkpoint.h). One thread, nothing blocks.
 *
 * Invariants: a connection has at most one guard. While it is frozen or thawing the lock hears
 * of it from here only: nothing resident while it is frozen, then less than all of it, then all
 * of it, as running, until the program speaks for itself. What cannot be moved is part of its
 * demand for that time, since the checkpoint moves it as well.
 */
#include "lockd/server/checkpoint.h"
#include "lockd/base/log.h"
#include "lockd/server/server.h"
#include "lockd/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS     1000000000u /* for who is stuck; and how long a thaw waits after it failed */
#define FAILED_NS   60000000000u /* ... and the next try after a program could not be frozen */
#define GUARDS_MOST 4            /* for one program */
#define SHORT_PART  16 /* what is asked for beside its own memory when a thaw had no room */

enum stage { FREEZING, FROZEN, THAWING };

/* What it had on one device when it was frozen, and the newest target since. */
struct frozen_device {
    struct gs_wire_state state;
    struct gs_wire_target target; /* seq 0: none since */
    bool may_run;                 /* by the newest one */
    uint64_t budget;              /* ... */
    uint64_t movable, resident, pinned;
    bool unanswered;
};

struct lockd_checkpoint {
    struct lockd_list link; /* of the server's */
    struct lockd_connection *connection;
    enum stage stage;
    int guard;
    unsigned guards_lost;
    unsigned failures; /* of thaws */
    uint64_t retry_at;
    size_t count;
    struct frozen_device device[LOCKD_DEVICES_PER_CLIENT];
};

static struct lockd_checkpoint *freeze_of(struct lockd_list *at)
{
    return lockd_entry(at, struct lockd_checkpoint, link);
}

bool lockd_checkpoint_holds(const struct lockd_connection *connection)
{
    return connection->freeze != NULL && connection->freeze->stage != FREEZING;
}

static void free_freeze(struct lockd_checkpoint *freeze)
{
    freeze->connection->freeze = NULL;
    lockd_list_remove(&freeze->link);
    close(freeze->guard); /* which ends the guard, or lets it bring the program back */
    free(freeze);
}

void lockd_checkpoint_gone(struct lockd_connection *connection)
{
    if (connection->freeze != NULL)
        free_freeze(connection->freeze);
}

/* --- the guard --- */

static int start_guard(struct lockd_server *server, struct lockd_checkpoint *freeze, char order)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = freeze};
    const int guard = lockd_guard_start((int32_t)freeze->connection->pid, order);

    if (guard < 0)
        return guard;
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, guard, &event) != 0) {
        const int code = -errno;

        close(guard);
        return code;
    }
    freeze->guard = guard;
    return 0;
}

/* Whoever connected may have ended, and another user's program have its number now. */
static bool is_still_its_user(const struct lockd_connection *connection)
{
    char path[32];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d", (int)connection->pid);
    return stat(path, &st) == 0 && st.st_uid == connection->uid;
}

static void begin(struct lockd_server *server, struct lockd_connection *connection)
{
    struct lockd_checkpoint *freeze = calloc(1, sizeof *freeze);
    int code = freeze != NULL ? 0 : -ENOMEM;

    if (code == 0 && !is_still_its_user(connection))
        code = -ESRCH;

    if (code == 0) {
        freeze->connection = connection;
        freeze->stage = FREEZING;
        code = start_guard(server, freeze, LOCKD_GUARD_FREEZE);
    }
    if (code != 0) {
        lockd_log(LOCKD_LOG_ERROR,
                  "process %d (%s) does not stop, and no guard can be started for it: %s",
                  (int)connection->pid, connection->name, strerror(-code));
        connection->freeze_at = lockd_now() + FAILED_NS;
        free(freeze);
        return;
    }
    lockd_list_append(&server->freezes, &freeze->link);
    connection->freeze = freeze;
    lockd_log(LOCKD_LOG_WARNING,
              "process %d (%s) does not stop: the driver is to checkpoint it",
              (int)connection->pid, connection->name);
}

/* --- what the lock is told --- */

static void report(struct frozen_device *device, struct lockd_checkpoint *freeze, uint64_t now)
{
    struct lockd_connection *connection = freeze->connection;

    device->unanswered = false;
    if (device->target.seq != 0)
        device->state.target_seq = device->target.seq;
    lockd_trace_state(connection, &device->state);
    sched_state(connection->server->lock, connection->client, &device->state, now);
}

static void report_all(struct lockd_checkpoint *freeze, uint64_t now)
{
    for (size_t i = 0; i < freeze->count; i++)
        report(&freeze->device[i], freeze, now);
}

static void set_frozen(struct lockd_checkpoint *freeze)
{
    freeze->stage = FROZEN;
    for (size_t i = 0; i < freeze->count; i++) {
        struct frozen_device *device = &freeze->device[i];

        device->state.flags = GS_STATE_WANT;
        device->state.demand = device->movable + device->pinned;
        device->state.short_bytes = 0;
        device->state.resident = 0;
        device->state.pinned = 0;
    }
}

/* Nobody tells how far a thaw has come: an eighth of the rest each time, never all. */
static void advance_thaw(struct lockd_checkpoint *freeze, uint64_t now)
{
    for (size_t i = 0; i < freeze->count; i++) {
        struct frozen_device *device = &freeze->device[i];

        device->state.flags = GS_STATE_WANT | GS_STATE_MOVING;
        device->state.resident += (device->state.demand - device->state.resident) / 8;
    }
    report_all(freeze, now);
    freeze->retry_at = now + LOOK_NS;
}

static void take_device(void *context, const struct gs_wire_device *device)
{
    (void)context;
    (void)device;
}

static void take_member(void *context, const struct gs_wire_device *info, void *owner,
                        const struct gs_wire_client *member)
{
    struct lockd_checkpoint *freeze = context;
    const struct lockd_track *track;
    struct frozen_device *device;

    if (owner != freeze->connection || freeze->count == LOCKD_DEVICES_PER_CLIENT)
        return;
    track = lockd_track_get(&freeze->connection->tracks, info->uuid);
    device = &freeze->device[freeze->count++];
    *device = (struct frozen_device){
        .may_run = (member->flags & GS_CLIENT_LEASE) != 0,
        .budget = member->budget,
        .movable = member->demand,
        .resident = member->resident,
        .pinned = member->pinned,
        .state = {.target_seq = track != NULL ? track->seq : 0,
                  .device_total = info->total,
                  .device_free = UINT64_MAX,
                  .moved_out = member->moved_out,
                  .moved_in = member->moved_in,
                  .calls = member->calls,
                  .switch_ns = member->switch_ns,
                  /* the driver keeps what it took off the card in host memory */
                  .host_used = member->host_used + member->resident + member->pinned,
                  .host_wanted = member->host_used + member->resident + member->pinned},
    };
    lockd_wire_header(&device->state.header, GS_WIRE_STATE);
    memcpy(device->state.uuid, info->uuid, sizeof device->state.uuid);
    memcpy(device->state.device_name, info->name, sizeof device->state.device_name);
}

static void remark(const struct lockd_connection *connection, const char *text)
{
    struct gs_wire_note note = {.pid = (int32_t)connection->pid, .kind = GS_NOTE_OTHER};

    memcpy(note.name, connection->name, sizeof note.name);
    snprintf(note.text, sizeof note.text, "%s", text);
    lockd_remarks_add(&connection->server->notes, connection, &note, lockd_now());
}

/* --- what the guard says --- */

static void frozen(struct lockd_checkpoint *freeze, uint64_t now)
{
    sched_visit(freeze->connection->server->lock, take_device, take_member, freeze, now);
    set_frozen(freeze);
    remark(freeze->connection,
           "it did not stop: the driver has checkpointed it until its turn");
    report_all(freeze, now);
}

static void thawed(struct lockd_checkpoint *freeze, uint64_t now)
{
    struct lockd_connection *connection = freeze->connection;

    for (size_t i = 0; i < freeze->count; i++) {
        struct frozen_device *device = &freeze->device[i];

        device->state.flags = GS_STATE_WANT | GS_STATE_RUNNING;
        device->state.demand = device->movable;
        device->state.resident = device->resident;
        device->state.pinned = device->pinned;
        report(device, freeze, now);
        if (device->target.seq != 0)
            lockd_connection_send(connection, &device->target, sizeof device->target);
    }
    lockd_log(LOCKD_LOG_INFO, "process %d (%s) goes on", (int)connection->pid,
              connection->name);
    free_freeze(freeze);
}

static void failed(struct lockd_checkpoint *freeze, uint64_t now, const char *why)
{
    struct lockd_connection *connection = freeze->connection;

    lockd_log(LOCKD_LOG_ERROR, "process %d (%s) is not checkpointed: %s", (int)connection->pid,
              connection->name, why);
    connection->freeze_at = now + (freeze->guards_lost == 0 ? FAILED_NS : LOOK_NS);
    free_freeze(freeze);
}

/* The guard was killed, and the program is frozen: another one takes it over. When that fails,
 * too, all that it had counts as on the card again. */
static void guard_lost(struct lockd_checkpoint *freeze, uint64_t now)
{
    struct lockd_connection *connection = freeze->connection;
    const int lost = freeze->guard;
    int code = ++freeze->guards_lost < GUARDS_MOST ? 0 : -EIO;

    if (code == 0)
        code = start_guard(connection->server, freeze, LOCKD_GUARD_ADOPT);
    lockd_log(LOCKD_LOG_ERROR, "the guard of process %d (%s) was killed%s%s",
              (int)connection->pid, connection->name, code != 0 ? ", and the next one: " : "",
              code != 0 ? strerror(-code) : "");
    if (code != 0) {
        connection->freeze_at = now + FAILED_NS;
        thawed(freeze, now);
        return;
    }
    close(lost);
    if (freeze->stage == THAWING)
        set_frozen(freeze);
    report_all(freeze, now);
}

static void no_room(struct lockd_checkpoint *freeze, uint64_t now, const char *why)
{
    if (freeze->failures++ == 0)
        lockd_log(LOCKD_LOG_WARNING, "process %d (%s) cannot be brought back yet: %s",
                  (int)freeze->connection->pid, freeze->connection->name, why);
    freeze->retry_at = now + LOOK_NS;
    set_frozen(freeze);
    for (size_t i = 0; i < freeze->count; i++) {
        struct frozen_device *device = &freeze->device[i];

        device->state.flags |= GS_STATE_SHORT; /* once for each time */
        device->state.short_bytes = device->state.demand / SHORT_PART;
        report(device, freeze, now);
        device->state.flags &= ~GS_STATE_SHORT;
    }
}

static void take_word(struct lockd_checkpoint *freeze, const char *word, uint64_t now)
{
    if (word[0] == LOCKD_GUARD_FROZEN && freeze->stage == FREEZING) {
        frozen(freeze, now);
    } else if (word[0] == LOCKD_GUARD_THAW && freeze->stage != FREEZING) {
        thawed(freeze, now);
    } else if (word[0] == LOCKD_GUARD_NO_ROOM && freeze->stage == THAWING) {
        no_room(freeze, now, word + 1);
    } else if (freeze->stage == FREEZING && word[0] == LOCKD_GUARD_FAILED) {
        failed(freeze, now, word + 1);
    } else if (freeze->stage == FREEZING && word[0] == LOCKD_GUARD_THAW) {
        failed(freeze, now, "its guard was killed");
    } else if (word[0] != LOCKD_GUARD_FROZEN) { /* which an adopted one says */
        guard_lost(freeze, now);
    }
}

bool lockd_checkpoint_event(struct lockd_server *server, const void *tag)
{
    lockd_list_each (at, &server->freezes) {
        struct lockd_checkpoint *freeze = freeze_of(at);
        char word[256] = "";
        ssize_t size;

        if (freeze != tag)
            continue;
        if (freeze->connection->dead)
            return true;
        size = recv(freeze->guard, word, sizeof word - 1, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (size <= 0)
            snprintf(word, sizeof word, "?the guard ended");
        lockd_text_clean(word, sizeof word);
        take_word(freeze, word, lockd_now());
        return true;
    }
    return false;
}

/* --- targets --- */

static struct frozen_device *find(struct lockd_checkpoint *freeze, const uint8_t *uuid)
{
    for (size_t i = 0; i < freeze->count; i++) {
        if (memcmp(freeze->device[i].state.uuid, uuid, sizeof freeze->device[i].state.uuid) ==
            0)
            return &freeze->device[i];
    }
    return NULL;
}

void lockd_checkpoint_target(struct lockd_connection *connection,
                             const struct gs_wire_target *target)
{
    struct frozen_device *device = find(connection->freeze, target->uuid);

    if (device == NULL)
        return;
    device->target = *target;
    device->may_run = (target->flags & GS_TARGET_RUN) != 0;
    device->budget = target->budget;
    device->unanswered = true;
}

bool lockd_checkpoint_answer(struct lockd_server *server)
{
    bool any = false;

    lockd_list_each (at, &server->freezes) {
        struct lockd_checkpoint *freeze = freeze_of(at);

        for (size_t i = 0; i < freeze->count && !freeze->connection->dead; i++) {
            if (!freeze->device[i].unanswered)
                continue;
            report(&freeze->device[i], freeze, lockd_now());
            any = true;
        }
    }
    return any;
}

/* --- time --- */

/* It may run, and all that it had on the cards has room. */
static bool is_its_turn(const struct lockd_checkpoint *freeze)
{
    for (size_t i = 0; i < freeze->count; i++) {
        const struct frozen_device *device = &freeze->device[i];

        if (!device->may_run || device->budget < device->resident + device->pinned)
            return false;
    }
    return freeze->count != 0;
}

static void begin_thaw(struct lockd_checkpoint *freeze, uint64_t now)
{
    const char word = LOCKD_GUARD_THAW;

    if (send(freeze->guard, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        freeze->retry_at = now + LOOK_NS; /* it has ended: its last word is on the way */
        return;
    }
    freeze->stage = THAWING;
    advance_thaw(freeze, now);
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
        connection->freeze == NULL && !connection->dead && !connection->foreign &&
        look->now >= connection->freeze_at)
        look->found = connection;
}

static uint64_t look_for_stuck(struct lockd_server *server, uint64_t now)
{
    struct look look = {NULL, now};

    if (server->config.set.stuck != LOCKD_STUCK_CHECKPOINT || server->program_count == 0)
        return LOCKD_NEVER;
    if (now < server->freeze_at)
        return server->freeze_at;
    server->freeze_at = now + LOOK_NS;
    sched_visit(server->lock, take_device, look_at_member, &look, now);
    if (look.found != NULL)
        begin(server, look.found);
    return server->freeze_at;
}

uint64_t lockd_checkpoint_tend(struct lockd_server *server, uint64_t now)
{
    uint64_t next = look_for_stuck(server, now);

    lockd_list_each (at, &server->freezes) {
        struct lockd_checkpoint *freeze = freeze_of(at);

        if (freeze->connection->dead || freeze->stage == FREEZING)
            continue;
        if (freeze->stage == FROZEN && now >= freeze->retry_at && is_its_turn(freeze))
            begin_thaw(freeze, now);
        else if (freeze->stage == THAWING && now >= freeze->retry_at)
            advance_thaw(freeze, now);
        if (freeze->stage == THAWING || (freeze->retry_at > now && freeze->retry_at < next))
            next = freeze->retry_at < next ? freeze->retry_at : next;
    }
    return next;
}
