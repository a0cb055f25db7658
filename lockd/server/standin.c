/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.c: the reports of a checkpointed program. State: struct lockd_standin. One thread.
 *
 * It reports that nothing is resident, then a growing part, and in the end all memory and a running
 * program, until the program reports again. During that time pinned memory is part of the demand,
 * because the checkpoint moves it as well.
 */
#include "lockd/server/standin.h"

#include "lockd/base/clock.h"
#include "lockd/protocol/wire_check.h"
#include "lockd/server/outbox.h"
#include "lockd/server/server.h"
#include "lockd/server/trace.h"
#include "lockd/track/track.h"

#include <string.h>

#define SHORT_PART 16 /* of its memory, asked for in addition when a restore had no room */

static void report_device(struct lockd_standin *standin, struct lockd_standin_device *device,
                          uint64_t now)
{
    struct lockd_connection *connection = standin->connection;

    device->unanswered = false;
    if (device->target.seq != 0)
        device->state.target_seq = device->target.seq;
    lockd_trace_state(connection, &device->state);
    sched_state(connection->server->scheduler, connection->client, &device->state, now);
}

void lockd_standin_report(struct lockd_standin *standin, uint64_t now)
{
    for (size_t i = 0; i < standin->count; i++)
        report_device(standin, &standin->device[i], now);
}

/* Changes all devices before the first report, since the scheduler acts on each report. */
static void mark_out(struct lockd_standin *standin)
{
    for (size_t i = 0; i < standin->count; i++) {
        struct lockd_standin_device *device = &standin->device[i];

        device->state.flags = GS_STATE_WANT;
        device->state.demand = device->movable + device->pinned;
        device->state.short_bytes = 0;
        device->state.resident = 0;
        device->state.pinned = 0;
    }
}

void lockd_standin_report_out(struct lockd_standin *standin, uint64_t now)
{
    mark_out(standin);
    lockd_standin_report(standin, now);
}

void lockd_standin_report_short(struct lockd_standin *standin, uint64_t now)
{
    mark_out(standin);
    for (size_t i = 0; i < standin->count; i++) {
        struct lockd_standin_device *device = &standin->device[i];

        device->state.flags |= GS_STATE_SHORT; /* once for each restore */
        device->state.short_bytes = device->state.demand / SHORT_PART;
        report_device(standin, device, now);
        device->state.flags &= ~GS_STATE_SHORT;
    }
}

/* The driver does not tell how far a restore has come. Each time an eighth of the rest is added,
 * so it never counts as complete. */
void lockd_standin_report_more(struct lockd_standin *standin, uint64_t now)
{
    for (size_t i = 0; i < standin->count; i++) {
        struct gs_wire_state *state = &standin->device[i].state;

        state->flags = GS_STATE_WANT | GS_STATE_MOVING;
        state->resident += (state->demand - state->resident) / 8;
    }
    lockd_standin_report(standin, now);
}

void lockd_standin_report_back(struct lockd_standin *standin, uint64_t now)
{
    for (size_t i = 0; i < standin->count; i++) {
        struct lockd_standin_device *device = &standin->device[i];

        device->state.flags = GS_STATE_WANT | GS_STATE_RUNNING;
        device->state.demand = device->movable;
        device->state.resident = device->resident;
        device->state.pinned = device->pinned;
        report_device(standin, device, now);
        if (device->target.seq != 0)
            lockd_outbox_send(standin->connection, &device->target, sizeof device->target);
    }
}

static void ignore_device(void *context, const struct gs_wire_device *device)
{
    (void)context;
    (void)device;
}

static void record_member(void *context, const struct gs_wire_device *info, void *owner,
                          const struct gs_wire_client *member)
{
    struct lockd_standin *standin = context;
    const struct lockd_track *track;
    struct lockd_standin_device *device;

    if (owner != standin->connection || standin->count == LOCKD_DEVICES_PER_CLIENT)
        return;
    track = lockd_track_get(&standin->connection->tracks, info->uuid);
    device = &standin->device[standin->count++];
    *device = (struct lockd_standin_device){
        .may_run = (member->flags & GS_CLIENT_LEASE) != 0,
        .budget = member->budget,
        .movable = member->demand,
        .resident = member->resident,
        .pinned = member->pinned,
        .state = {.target_seq = track != NULL ? track->seq : 0,
                  .device_total = info->total,
                  .device_free = UINT64_MAX,
                  .moved_out = member->moved_out,
                  .moved_in = member->moved_in,
                  .calls = member->calls,
                  .switch_ns = member->switch_ns,
                  /* the driver keeps the memory of the device in host memory */
                  .host_used = member->host_used + member->resident + member->pinned,
                  .host_wanted = member->host_used + member->resident + member->pinned},
    };
    lockd_wire_header(&device->state.header, GS_WIRE_STATE);
    memcpy(device->state.uuid, info->uuid, sizeof device->state.uuid);
    memcpy(device->state.device_name, info->name, sizeof device->state.device_name);
}

void lockd_standin_record(struct lockd_standin *standin, uint64_t now)
{
    sched_visit(standin->connection->server->scheduler, ignore_device, record_member, standin,
                now);
}

void lockd_standin_target(struct lockd_standin *standin, const struct gs_wire_target *target)
{
    for (size_t i = 0; i < standin->count; i++) {
        struct lockd_standin_device *device = &standin->device[i];

        if (memcmp(device->state.uuid, target->uuid, sizeof device->state.uuid) != 0)
            continue;
        device->target = *target;
        device->may_run = (target->flags & GS_TARGET_RUN) != 0;
        device->budget = target->budget;
        device->unanswered = true;
        return;
    }
}

bool lockd_standin_answer(struct lockd_standin *standin)
{
    bool any = false;

    for (size_t i = 0; i < standin->count && !standin->connection->dead; i++) {
        if (!standin->device[i].unanswered)
            continue;
        report_device(standin, &standin->device[i], lockd_now());
        any = true;
    }
    return any;
}

bool lockd_standin_may_return(const struct lockd_standin *standin)
{
    for (size_t i = 0; i < standin->count; i++) {
        const struct lockd_standin_device *device = &standin->device[i];

        if (!device->may_run || device->budget < device->resident + device->pinned)
            return false;
    }
    return standin->count != 0;
}
