/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.c: sends the targets that the scheduler has put out. No state.
 */
#include "lockd/server/server.h"

#include "lockd/server/checkpoint.h"
#include "lockd/server/handover.h"

void lockd_server_flush(struct lockd_server *server)
{
    struct lockd_send send;

    do {
        while (lockd_lock_next_send(server->lock, &send)) {
            lockd_wire_header(&send.target.header, GS_WIRE_TARGET);
            lockd_trace_target(send.owner, &send.target);
            if (lockd_freeze_holds(send.owner))
                lockd_freeze_target(send.owner, &send.target);
            else
                lockd_gift_send(send.owner, &send.target, send.rise);
        }
    } while (lockd_freeze_answer(server));
    lockd_notes_apart(server);
}
