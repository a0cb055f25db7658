/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.c: all memory of a client is to leave its devices because a person said so: the
 * beginning, the end and the calling off of that. Owns struct sched_member_eviction. O(1) for
 * each member of the client.
 */
#include "lockd/sched/evict.h"

#include "lockd/sched/device.h"

static void evict_end(struct sched_member *member, bool out)
{
    struct sched_gang *gang = member->party->gang;

    member->eviction.wanted = false;
    gang->evicting--;
    gang->out = out;
    sched_agenda_settle_gang(gang);
    sched_agenda_touch(member);
}

/* It is over when nothing is left, or what is left does not leave. */
void sched_evict_check(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;

    if (!member->eviction.wanted)
        return;
    if (sched_member_busy(member) || member->report.echoed != member->sent.seq ||
        member->report.resident < member->eviction.left) {
        member->eviction.left = member->report.resident;
        member->eviction.until = now + GRACE;
    }
    if (member->report.resident == 0
            ? !sched_member_busy(member) && member->report.echoed == member->sent.seq
            : now >= member->eviction.until)
        evict_end(member, true);
    else
        device->evict_at = sched_min(device->evict_at, member->eviction.until);
}

void sched_evict_watch(struct sched_device *device, uint64_t now)
{
    if (now < device->evict_at)
        return;
    device->evict_at = LOCKD_NEVER;
    lockd_list_each (at, &device->members)
        sched_evict_check(sched_member_of(at, of_device), now);
}

void sched_evict_begin(struct sched_client *client, uint64_t now)
{
    lockd_list_each (at, &client->members) {
        struct sched_member *member = sched_member_of(at, of_client);

        if (member->eviction.wanted || member->report.demand == 0)
            continue;
        member->eviction.wanted = true;
        member->eviction.left = member->report.resident;
        member->eviction.until = now + GRACE;
        client->gang->evicting++;
        sched_agenda_settle_gang(client->gang);
        sched_agenda_touch(member);
        sched_evict_check(member, now);
    }
}

void sched_evict_cancel(struct sched_client *client)
{
    lockd_list_each (at, &client->members) {
        struct sched_member *member = sched_member_of(at, of_client);

        if (member->eviction.wanted)
            evict_end(member, false);
    }
}
