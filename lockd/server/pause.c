/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.c: combines the reasons for which a program is held back. No state.
 */
#include "lockd/server/pause.h"

#include "lockd/base/clock.h"
#include "lockd/server/server.h"

static void apply_pause(struct lockd_connection *connection)
{
    const struct lockd_pause *pause = &connection->pause;

    sched_pause(connection->server->scheduler, connection->client,
                pause->asked || pause->wished || pause->moves || pause->over != 0, lockd_now());
}

void lockd_pause_ask(struct lockd_connection *connection, bool asked)
{
    connection->pause.asked = asked;
    connection->pause.wished &= asked;
    apply_pause(connection);
}

void lockd_pause_wish(struct lockd_connection *connection, bool wished)
{
    connection->pause.wished = wished;
    apply_pause(connection);
}

void lockd_pause_move(struct lockd_connection *connection, bool moves)
{
    connection->pause.moves = moves;
    apply_pause(connection);
}

void lockd_pause_hold(struct lockd_connection *connection, bool over)
{
    connection->pause.over += over ? 1 : UINT32_MAX;
    apply_pause(connection);
}
