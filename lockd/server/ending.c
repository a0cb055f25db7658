/* SPDX-License-Identifier: Apache-2.0
 *
 * ending.c: connections that are to end. They exist until the present events are handled (then
 * server.c frees them), so that no code loses a connection that it uses.
 */
#include "lockd/server/ending.h"

#include "lockd/base/log.h"
#include "lockd/server/server.h"
#include "lockd/server/users.h"

#include <stdarg.h>
#include <stdio.h>

void lockd_connection_kill(struct lockd_connection *connection, const char *format, ...)
{
    char why[256] = "";
    va_list ap;

    if (connection->dead)
        return;
    connection->dead = true;
    lockd_list_remove(&connection->link);
    lockd_list_append(&connection->server->connections.dead, &connection->link);
    if (format == NULL)
        return;
    va_start(ap, format);
    vsnprintf(why, sizeof why, format, ap);
    va_end(ap);
    lockd_user_say(connection->user, LOCKD_LOG_WARNING,
                   "process %d (%s) of user %u: connection closed: %s",
                   (int)connection->peer.pid,
                   connection->hello.name[0] != '\0' ? connection->hello.name : "no name yet",
                   (unsigned)connection->peer.uid, why);
}
