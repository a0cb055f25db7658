/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: the state of the scheduler as people are shown it. Reads only.
 */
#include "lockd/sched/books.h"
#include "lockd/sched/capacity.h"
#include "lockd/sched/device.h"
#include "lockd/sched/quantum.h"

#include <string.h>

const struct sched_settings *sched_settings(const struct sched *sched)
{
    return &sched->settings;
}

bool sched_client_paused(const struct sched_client *client)
{
    return client->paused;
}

bool sched_client_unused(const struct sched_client *client)
{
    return client->member_count == 0;
}

uint64_t sched_client_resident(const struct sched_client *client, const uint8_t *uuid)
{
    const struct sched_member *member = sched_member_find(client, uuid);

    return member != NULL ? member->report.resident : 0;
}

static enum sched_member_condition condition_of(const struct sched_member *member, uint64_t now)
{
    if (sched_member_stuck(member, now) || sched_member_clings(member, now))
        return LOCKD_STUCK;
    if (!member->party->turn.held && sched_member_busy(member))
        return LOCKD_STOPPING;
    if (member->party->gang->paused != 0)
        return LOCKD_PAUSED;
    if (member->report.demand > member->device->space.capacity &&
        (member->report.flags & GS_STATE_RUNNING) == 0)
        return LOCKD_DOES_NOT_FIT;
    if ((member->report.flags & GS_STATE_WANT) == 0)
        return LOCKD_IDLE;
    if (!sched_member_run(member))
        return LOCKD_WAITS;
    return (member->report.flags & GS_STATE_RUNNING) != 0 ? LOCKD_RUNS : LOCKD_MOVING;
}

static uint64_t gpu_ns(const struct sched_member *member, uint64_t now)
{
    const bool runs = (member->report.flags & GS_STATE_RUNNING) != 0;

    return member->time.gpu_ns + (runs ? sched_less(now, member->time.counted_at) : 0);
}

static uint64_t waits_altogether(const struct sched_member *member, uint64_t now)
{
    return member->time.waits_since != 0 ? sched_less(now, member->time.waits_since) : 0;
}

static void device_info(const struct sched_device *device, uint64_t now,
                        struct sched_device_info *info)
{
    memset(info, 0, sizeof *info);
    memcpy(info->uuid, device->identity.uuid, sizeof info->uuid);
    memcpy(info->name, device->identity.name, sizeof info->name);
    info->total = device->measure.total;
    info->capacity = device->space.capacity;
    info->external = device->measure.external;
    info->reserve = sched_device_reserve(device);
    info->short_bytes = device->space.short_bytes;
    info->demand = device->books.sum.demand;
    info->resident = device->books.sum.resident;
    info->pinned = device->books.sum.pinned;
    info->gpu_ns = device->books.gpu_ns_gone;
    for (const struct lockd_list *at = device->members.next; at != &device->members;
         at = at->next)
        info->gpu_ns += gpu_ns(sched_member_of(at, of_device), now);
    info->switches = device->turns.switches;
    info->exclusive =
        device->turns.leases && device->books.sum.demand <= device->space.capacity;
    info->quantum_ns = sched_device_quantum(device);
    info->switch_ns = sched_device_switch(device);
    info->clients = device->member_count;
    info->waiting = device->waiting.queue.count + device->waiting.hopeless.count;
    info->leases = device->turns.leases;
}

static void member_info(const struct sched_member *member, uint64_t now,
                        struct sched_member_info *info)
{
    const uint64_t waits =
        member->time.waits_since != 0 ? sched_less(now, member->time.counted_at) : 0;

    *info = (struct sched_member_info){
        .owner = member->client->owner,
        .condition = condition_of(member, now),
        .demand = member->report.demand,
        .resident = member->report.resident,
        .budget = member->budget,
        .moved_out = member->report.moved_out,
        .moved_in = member->report.moved_in,
        .calls = member->report.calls,
        .switch_ns = member->report.switch_ns,
        .turns = member->party->turn.count,
        .run = sched_member_run(member),
        .skipped = member->party->turn.skipped != 0,
        .pinned = member->report.pinned,
        .gpu_ns = gpu_ns(member, now),
        .wait_ns = member->time.wait_ns + waits,
        .wait_longest_ns =
            sched_max(member->time.wait_longest_ns, waits_altogether(member, now)),
        .apart = member->client->in_group != NULL && member->client->in_group->apart,
        .partial = (member->report.flags & GS_STATE_PARTIAL) != 0,
        .limit = sched_min(member->client->limit, member->quota),
        .host_used = member->client->host.used,
        .host_budget = member->client->host.budget,
        .weight = member->client->weight,
        .priority = member->client->priority,
        .group = member->client->group,
    };
}

void sched_visit(const struct sched *sched, sched_visit_device *device,
                 sched_visit_member *member, void *context, uint64_t now_ns)
{
    for (const struct lockd_list *at = sched->devices.next; at != &sched->devices;
         at = at->next) {
        const struct sched_device *each = lockd_entry(at, struct sched_device, link);
        struct sched_device_info info;

        device_info(each, now_ns, &info);
        device(context, &info);
        for (const struct lockd_list *of = each->members.next; of != &each->members;
             of = of->next) {
            struct sched_member_info figures;

            member_info(lockd_entry(of, struct sched_member, of_device), now_ns, &figures);
            member(context, &info, &figures);
        }
    }
}
