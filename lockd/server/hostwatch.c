/* SPDX-License-Identifier: Apache-2.0
 *
 * hostwatch.c: tells the scheduler every few seconds how much host memory is available to all
 * programs together (lockd/base/hostmem.h). State: struct lockd_hostwatch. One thread.
 */
#include "lockd/server/hostwatch.h"

#include "lockd/base/clock.h"
#include "lockd/server/server.h"

#define TELL_EVERY_NS 2000000000u /* while programs are connected */

void lockd_hostwatch_init(struct lockd_hostwatch *watch)
{
    *watch = (struct lockd_hostwatch){.stale = false};
    lockd_host_init(&watch->memory);
}

static pid_t visible_pid(const struct lockd_connection *connection)
{
    return connection->peer.foreign ? 0 : connection->peer.pid;
}

/* Tells it once at the start of the daemon, so that the first target has its part of host
 * memory. Later the figure is not needed while no program is connected. */
uint64_t lockd_hostwatch_tend(struct lockd_server *server, uint64_t now)
{
    struct lockd_hostwatch *watch = &server->host;

    if (server->connections.programs == 0 && watch->at != 0)
        return LOCKD_NEVER;
    if (now >= watch->at) {
        uint64_t available;
        bool first = true;

        lockd_each (const struct lockd_connection, each, &server->connections.all, link) {
            if (!watch->stale || each->client == NULL)
                continue;
            lockd_host_came(&watch->memory, first, visible_pid(each));
            first = false;
        }
        watch->stale = false;
        available = lockd_host_available(&watch->memory);
        if (available != UINT64_MAX)
            sched_host(server->scheduler, available, now);
        watch->at = now + TELL_EVERY_NS;
    }
    return watch->at;
}

void lockd_hostwatch_came(struct lockd_server *server,
                          const struct lockd_connection *connection)
{
    struct lockd_hostwatch *watch = &server->host;

    if (!lockd_host_came(&watch->memory, server->connections.programs == 1,
                         visible_pid(connection)))
        return;
    watch->at = 0;
    lockd_hostwatch_tend(server, lockd_now());
}
