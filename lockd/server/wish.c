/* SPDX-License-Identifier: Apache-2.0
 *
 * wish.c: what a program asks for by itself. No state but the connection's. A wish says all
 * that is wished, so only what differs from the last one is done.
 */
#include "lockd/server/wish.h"

#include "lockd/base/log.h"
#include "lockd/server/clock.h"
#include "lockd/server/ending.h"
#include "lockd/server/pause.h"
#include "lockd/server/server.h"

void lockd_wish_take(struct lockd_connection *connection, const struct gs_wire_wish *wish)
{
    const bool suspended = (wish->flags & GS_WISH_SUSPEND) != 0;

    if (connection->client == NULL) {
        lockd_connection_kill(connection, "a wish before its hello");
        return;
    }
    if (suspended != connection->wish_suspended) {
        connection->wish_suspended = suspended;
        lockd_pause_wish(connection, suspended);
        if (suspended)
            sched_evict(connection->server->scheduler, connection->client, lockd_now());
        lockd_log(LOCKD_LOG_DEBUG, "%s (process %d) %s itself", connection->name,
                  (int)connection->pid, suspended ? "suspends" : "resumes");
    }
    if ((wish->flags & GS_WISH_CLASS) != 0 && wish->class_number != connection->wish_class) {
        connection->wish_class = wish->class_number;
        sched_class(connection->server->scheduler, connection->client,
                    (enum gs_wire_class)wish->class_number, lockd_now());
    }
}
