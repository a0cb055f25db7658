/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.c: tells lockd/kin of programs that come, say keys and go, and people of what it
 * tries. A connection without memory for its program here has its turns by itself. One thread.
 */
#include "lockd/server/relations.h"

#include "lockd/kin/trial.h"
#include "lockd/server/clock.h"
#include "lockd/server/ending.h"
#include "lockd/server/remarks.h"
#include "lockd/server/server.h"

#include <stdio.h>
#include <string.h>

static void say_remark(void *context, void *owner, const char *text)
{
    struct lockd_server *server = context;
    const struct lockd_connection *connection = owner;
    struct gs_wire_note note = {.pid = (int32_t)connection->pid, .kind = GS_NOTE_OTHER};

    snprintf(note.name, sizeof note.name, "%s", connection->name);
    snprintf(note.text, sizeof note.text, "%s", text);
    lockd_remarks_add(&server->remarks, connection, &note, lockd_now());
}

void lockd_relations_init(struct lockd_server *server)
{
    kin_init(&server->kin, server->scheduler, say_remark, server);
}

void lockd_relations_deinit(struct lockd_server *server)
{
    if (server->kin.sched != NULL)
        kin_deinit(&server->kin);
}

void lockd_relations_came(struct lockd_connection *connection)
{
    connection->kin = kin_came(&connection->server->kin, connection->client, connection,
                               &connection->identity, connection->group[0] != '\0');
}

void lockd_relations_gone(struct lockd_connection *connection)
{
    kin_gone(&connection->server->kin, connection->kin);
    connection->kin = NULL;
}

void lockd_relations_kin(struct lockd_connection *connection, const struct gs_wire_kin *kin)
{
    if (connection->client == NULL)
        lockd_connection_kill(connection, "a key before its hello");
    else if (connection->kin != NULL)
        kin_learn(&connection->server->kin, connection->kin, kin->key, kin->kind, lockd_now());
}

void lockd_relations_join(struct lockd_connection *a, struct lockd_connection *b)
{
    if (a->kin != NULL && b->kin != NULL)
        kin_join(&a->server->kin, a->kin, b->kin, GS_KIN_MEMORY, lockd_now());
}

uint64_t lockd_relations_tend(struct lockd_server *server, uint64_t now)
{
    return kin_tend(&server->kin, now);
}

void lockd_relations_describe(const struct lockd_connection *connection,
                              struct gs_wire_client *client)
{
    if (client->gang == 0 || connection->kin == NULL || client->gang_why != GS_KIN_NONE)
        return;
    client->gang_why = connection->kin->trial != 0 && connection->kin->set == 0
                           ? GS_KIN_TRIED
                           : connection->kin->why;
}
