/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.c: sends the targets that the scheduler has issued. No state.
 */
#include "lockd/server/targets.h"

#include "lockd/protocol/wire_check.h"
#include "lockd/server/handover.h"
#include "lockd/server/remarks.h"
#include "lockd/server/server.h"
#include "lockd/server/trace.h"
#include "lockd/start/lines.h"

/* Fills in the part of a target that does not come from the scheduler but from the
 * configuration. */
static void set_overcommit(const struct lockd_connection *connection,
                           struct gs_wire_target *target)
{
    target->overcommit = lockd_overcommits_of(&connection->server->config, connection->peer.uid,
                                              connection->peer.identity.units);
}

void lockd_targets_send(struct lockd_server *server)
{
    struct sched_send send;

    while (sched_next_send(server->scheduler, &send)) {
        lockd_wire_header(&send.target.header, GS_WIRE_TARGET);
        set_overcommit(send.owner, &send.target);
        lockd_trace_target(send.owner, &send.target);
        lockd_handover_send(send.owner, &send.target, send.rise);
    }
    lockd_remarks_apart(server);
    lockd_remarks_programs(server);
}
