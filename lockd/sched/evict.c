/* SPDX-License-Identifier: Apache-2.0
 *
 * evict.c: all memory of a client is to leave its devices because a person said so: the
 * beginning, the end and the calling off of that. Owns struct sched_member_eviction. O(1) for
 * each member of the client.
 *
 * A program that is evicted again and again must get some work done: when it comes back it first
 * runs for as long as its memory took to come back.
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

static void begin_member(struct sched_member *member, uint64_t now)
{
    struct sched_gang *gang = member->party->gang;

    member->eviction.asked = false;
    member->eviction.wanted = true;
    member->eviction.left = member->report.resident;
    member->eviction.until = now + GRACE;
    gang->evicting++;
    sched_agenda_settle_gang(gang);
    sched_agenda_touch(member);
}

/* When the eviction that was asked for may begin. */
static uint64_t begins_at(const struct sched_member *member)
{
    const struct sched_gang *gang = member->party->gang;
    const uint64_t back = member->eviction.back;

    if (back == 0 || gang->paused != 0 || !gang->runs || gang->wanting == 0)
        return 0;
    return gang->complete == 0
               ? member->eviction.until
               : sched_min(member->eviction.until, gang->complete + (gang->complete - back));
}

/* The eviction is over when nothing is left, or when the rest does not leave. */
static void check_wanted(struct sched_member *member, uint64_t now)
{
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
        member->device->evict_at = sched_min(member->device->evict_at, member->eviction.until);
}

void sched_evict_check(struct sched_member *member, uint64_t now)
{
    if (member->eviction.asked && now >= begins_at(member))
        begin_member(member, now);
    if (member->eviction.wanted)
        check_wanted(member, now);
    else if (member->eviction.asked)
        member->device->evict_at = sched_min(member->device->evict_at, begins_at(member));
}

void sched_evict_watch(struct sched_device *device, uint64_t now)
{
    if (now < device->evict_at)
        return;
    device->evict_at = LOCKD_NEVER;
    lockd_each (struct sched_member, member, &device->members, of_device)
        sched_evict_check(member, now);
}

void sched_evict_begin(struct sched_client *client, uint64_t now)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        if (member->eviction.wanted || member->report.demand == 0)
            continue;
        if (!member->eviction.asked)
            member->eviction.until = now + GRACE;
        member->eviction.asked = true;
        sched_evict_check(member, now);
    }
}

void sched_evict_cancel(struct sched_client *client)
{
    lockd_each (struct sched_member, member, &client->members, of_client) {
        member->eviction.asked = false;
        if (member->eviction.wanted)
            evict_end(member, false);
    }
}
