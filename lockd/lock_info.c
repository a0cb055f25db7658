/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_info.c: the lock's state as a person is shown it. Reads only.
 */
#include "lockd/lock_state.h"

#include <string.h>

const struct lockd_settings *lockd_lock_settings(const struct lockd_lock *lock)
{
    return &lock->settings;
}

bool lockd_client_paused(const struct lockd_client *client)
{
    return client->paused;
}

bool lockd_client_unused(const struct lockd_client *client)
{
    return client->member_count == 0;
}

static enum lockd_member_condition condition(const struct lockd_member *member, uint64_t now)
{
    if (lockd_member_stuck(member, now))
        return LOCKD_STUCK;
    if (!member->run && lockd_member_busy(member))
        return LOCKD_STOPPING;
    if (member->client->paused)
        return LOCKD_PAUSED;
    if (member->demand > member->device->capacity && (member->flags & GS_STATE_RUNNING) == 0)
        return LOCKD_DOES_NOT_FIT;
    if ((member->flags & GS_STATE_WANT) == 0)
        return LOCKD_IDLE;
    if (!member->run)
        return LOCKD_WAITS;
    return (member->flags & GS_STATE_RUNNING) != 0 ? LOCKD_RUNS : LOCKD_MOVING;
}

static void device_info(const struct lockd_device *device, struct lockd_device_info *info)
{
    memset(info, 0, sizeof *info);
    memcpy(info->uuid, device->uuid, sizeof info->uuid);
    memcpy(info->name, device->name, sizeof info->name);
    info->total = device->total;
    info->capacity = device->capacity;
    info->external = device->external;
    info->reserve = lockd_device_reserve(device);
    info->short_bytes = device->short_bytes;
    info->demand = device->demand;
    for (const struct lockd_list *at = device->members.next; at != &device->members;
         at = at->next)
        info->resident += lockd_entry(at, struct lockd_member, of_device)->resident;
    info->quantum_ns = lockd_device_quantum(device);
    info->switch_ns = device->switch_ns;
    info->clients = device->member_count;
    info->waiting = device->queue_count;
    info->leases = device->leases;
}

static void member_info(const struct lockd_member *member, uint64_t now,
                        struct lockd_member_info *info)
{
    *info = (struct lockd_member_info){
        .owner = member->client->owner,
        .condition = condition(member, now),
        .demand = member->demand,
        .resident = member->resident,
        .budget = member->budget,
        .moved_out = member->moved_out,
        .moved_in = member->moved_in,
        .calls = member->calls,
        .switch_ns = member->switch_ns,
        .turns = member->turns,
        .run = member->run,
        .skipped = member->skipped,
        .partial = (member->flags & GS_STATE_PARTIAL) != 0,
        .limit = member->client->limit,
        .host_used = member->client->host_used,
        .host_budget = UINT64_MAX,
        .weight = member->client->weight,
        .priority = member->client->priority,
        .group = member->client->group,
    };
}

void lockd_lock_visit(const struct lockd_lock *lock, lockd_visit_device *device,
                      lockd_visit_member *member, void *context, uint64_t now_ns)
{
    for (const struct lockd_list *at = lock->devices.next; at != &lock->devices;
         at = at->next) {
        const struct lockd_device *each = lockd_entry(at, struct lockd_device, link);
        struct lockd_device_info info;

        device_info(each, &info);
        device(context, &info);
        for (const struct lockd_list *of = each->members.next; of != &each->members;
             of = of->next) {
            struct lockd_member_info figures;

            member_info(lockd_entry(of, struct lockd_member, of_device), now_ns, &figures);
            member(context, &info, &figures);
        }
    }
}
