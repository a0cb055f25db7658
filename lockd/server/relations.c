/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.c: tells kin.c and balance.c of programs and their keys, shows their trials as
 * remarks, and begins the moves that balance chooses. A connection without memory for its part here
 * has its turns by itself, and stays on its device. One thread.
 */
#include "lockd/server/relations.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/programs/kin.h"
#include "lockd/server/remarks.h"
#include "lockd/server/server.h"

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
