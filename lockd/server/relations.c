/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.c: tells kin.c and balance.c of programs and their keys, shows their trials as
 * remarks, and begins the moves that balance chooses. A connection without memory for its part here
 * has its turns by itself, and stays on its device. One thread.
 */
#include "lockd/server/relations.h"
#include "lockd/base/halt.h"
#include "lockd/server/server.h"

#include <string.h>

/* The last remarks of programs, including programs that have ended. The table has a fixed size:
 * a repeated remark of a process is counted, and in a full table a new remark replaces an old
 * one of the account (a user, or a user in a container) with the most remarks
 * (lockd_slots_choose()). */

static struct lockd_remark *find_slot(struct lockd_remarks *remarks,
                                      const struct lockd_connection *from, int32_t pid,
                                      const struct gs_wire_note *note)
{
    struct lockd_remark *slot;

    for (int i = 0; i < LOCKD_REMARKS; i++) {
        slot = &remarks->slot[i];
        if (slot->stamp.at != 0 && slot->pid == pid && slot->kind == note->kind &&
            strcmp(slot->text, note->text) == 0 &&
            (slot->owner == from->id || strcmp(slot->name, note->name) == 0))
            return slot;
    }
    slot = &remarks->slot[lockd_slots_choose(remarks->slot, LOCKD_REMARKS, sizeof *slot,
                                             from->user->number)];
    slot->count = 0;
    return slot;
}

void lockd_remarks_add(struct lockd_remarks *remarks, const struct lockd_connection *from,
                       const struct gs_wire_note *note, uint64_t now)
{
    const int32_t pid = from->peer.pid > 0 ? (int32_t)from->peer.pid : note->pid;
    struct lockd_remark *slot = find_slot(remarks, from, pid, note);

    if (slot->count == 0)
        lockd_user_say(from->user, LOCKD_LOG_INFO, "%s (process %d): %s", note->name, pid,
                       note->text);
    slot->owner = from->id;
    slot->stamp.at = now;
    slot->pid = pid;
    slot->stamp.owner = from->user->number;
    slot->kind = note->kind;
    slot->count += slot->count < UINT32_MAX;
    memcpy(slot->name, note->name, sizeof slot->name);
    memcpy(slot->text, note->text, sizeof slot->text);
}

void lockd_remarks_say(const struct lockd_connection *about, const char *text)
{
    struct gs_wire_note note = {.pid = (int32_t)about->peer.pid, .kind = GS_NOTE_OTHER};

    memcpy(note.name, about->hello.name, sizeof note.name);
    snprintf(note.text, sizeof note.text, "%s", text);
    lockd_remarks_add(&about->server->remarks, about, &note, lockd_now());
}

/* Only people can let a stopped process go on. */
static void say_halted(const struct lockd_connection *of)
{
    const enum lockd_halt halt =
        of->peer.foreign || of->peer.pid <= 0 ? LOCKD_HALT_NONE : lockd_halt_of(of->peer.pid);
    char text[128];

    if (halt == LOCKD_HALT_NONE)
        return;
    if (halt == LOCKD_HALT_STOPPED)
        snprintf(text, sizeof text, "stopped (T): kill -CONT %d; others wait for memory",
                 (int)of->peer.pid);
    else
        snprintf(text, sizeof text, "%s; others wait for memory",
                 halt == LOCKD_HALT_TRACED ? "in a debugger (t)"
                                           : "frozen with its control group");
    lockd_remarks_say(of, text);
}

static void say_apart(const struct lockd_connection *of, const char *group, const char *device)
{
    struct gs_wire_note note = {.pid = (int32_t)of->peer.pid, .kind = GS_NOTE_OTHER};

    if (group[0] != '\0')
        snprintf(note.name, sizeof note.name, "group %.24s", group);
    else /* it has no name */
        snprintf(note.name, sizeof note.name, "gang of %.23s", of->hello.name);
    snprintf(note.text, sizeof note.text,
             "its programs together need more memory than %.63s has for them, so they "
             "take turns separately",
             device);
    lockd_remarks_add(&of->server->remarks, of, &note, lockd_now());
}

void lockd_remarks_programs(struct lockd_server *server)
{
    struct sched_remark remark;

    while (sched_next_remark(server->scheduler, &remark)) {
        if (remark.contradicted)
            lockd_remarks_say(remark.owner,
                              "its reports of GPU memory contradict the GPU, or another user's "
                              "programs: others do not wait for it, and it may go last");
        if (remark.silent)
            say_halted(remark.owner);
        if (remark.group != NULL)
            say_apart(remark.owner, remark.group, remark.device);
    }
}

static void say_remark(void *context, void *owner, const char *text)
{
    (void)context;
    lockd_remarks_say(owner, text);
}

void lockd_relations_init(struct lockd_server *server)
{
    kin_init(&server->relations.kin, say_remark, NULL);
    balance_init(&server->relations.balance, sched_client_load, say_remark, NULL);
}

void lockd_relations_deinit(struct lockd_server *server)
{
    balance_deinit(&server->relations.balance);
    kin_deinit(&server->relations.kin);
}

void lockd_relations_sees(struct lockd_connection *connection, const struct lockd_seen *seen)
{
    if (connection->related.balance != NULL && seen->total != 0)
        balance_sees(&connection->server->relations.balance, connection->related.balance, seen);
}

static void balance_begin(struct lockd_connection *connection)
{
    connection->related.balance =
        balance_came(&connection->server->relations.balance, connection->client, connection);
    for (uint32_t i = 0; i < connection->program.sees.count; i++)
        lockd_relations_sees(connection, &connection->program.sees.device[i]);
}

static void balance_end(struct lockd_connection *connection)
{
    balance_gone(&connection->server->relations.balance, connection->related.balance);
    connection->related.balance = NULL;
}

/* Without balance no program needs memory for it. */
static void switch_balance(struct lockd_server *server, bool on)
{
    if (server->relations.balance.on == on)
        return;
    balance_set(&server->relations.balance, on);
    lockd_each (struct lockd_connection, connection, &server->connections.all, link) {
        if (connection->client == NULL)
            continue;
        if (on)
            balance_begin(connection);
        else
            balance_end(connection);
    }
}

void lockd_relations_came(struct lockd_connection *connection)
{
    connection->related.kin =
        kin_came(&connection->server->relations.kin, connection->client, connection,
                 &connection->peer.identity, connection->hello.group[0] != '\0');
    if (connection->server->relations.balance.on)
        balance_begin(connection);
}

void lockd_relations_gone(struct lockd_connection *connection)
{
    kin_gone(&connection->server->relations.kin, connection->related.kin);
    connection->related.kin = NULL;
    balance_end(connection);
}

void lockd_relations_moved(struct lockd_connection *connection, enum lockd_move_end end,
                           uint64_t ns, uint64_t bytes)
{
    if (connection->related.balance != NULL)
        balance_outcome(&connection->server->relations.balance, connection->related.balance,
                        end, ns, bytes, lockd_now());
}

/* A move that cannot begin is over at once. */
static void begin_move(const struct balance_move *move)
{
    struct lockd_connection *connection = move->owner;
    enum lockd_move_end end;
    struct gs_err why = {0};

    if (lockd_move_begin(&connection->server->moves, &connection->program, move->from, move->to,
                         0, &end, &why) == 0)
        return;
    if (end != LOCKD_MOVE_LATER)
        lockd_log(LOCKD_LOG_INFO, "process %d (%s) waits and is not moved: %s",
                  (int)connection->peer.pid, connection->hello.name, why.text);
    lockd_relations_moved(connection, end, 0, 0);
}

void lockd_relations_kin(struct lockd_connection *connection, const struct gs_wire_kin *kin)
{
    struct kin *all = &connection->server->relations.kin;
    struct kin_program *program = connection->related.kin;

    if (program != NULL && (kin->flags & GS_KIN_OVER) != 0)
        kin_unlearn(all, program, kin->key, kin->kind, lockd_now());
    else if (program != NULL)
        kin_learn(all, program, kin->key, kin->kind, kin->ranks, lockd_now());
}

uint64_t lockd_relations_tend(struct lockd_server *server, uint64_t now)
{
    uint64_t next = kin_tend(&server->relations.kin, now);
    struct balance_move move;

    switch_balance(server, server->config.settings.balance);
    next = lockd_lesser(next, balance_tend(&server->relations.balance, now));
    while (balance_next(&server->relations.balance, &move))
        begin_move(&move);
    return next;
}

void lockd_relations_describe(const struct lockd_connection *connection,
                              struct gs_wire_client *client)
{
    const struct kin_program *program = connection->related.kin;

    if (client->gang == 0 || program == NULL || client->gang_why != GS_KIN_NONE)
        return;
    client->gang_why = program->trial != 0 && program->set == 0 ? GS_KIN_TRIED : program->why;
}
