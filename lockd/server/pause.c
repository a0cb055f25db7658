/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.c: programs that a person or a quota holds back. No state.
 */
#include "lockd/server/pause.h"

#include "lockd/server/clock.h"
#include "lockd/server/server.h"

void lockd_pause_apply(struct lockd_connection *connection)
{
    sched_pause(connection->server->scheduler, connection->client,
                connection->paused || connection->over != 0, lockd_now());
}
