/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: what people set, of the daemon and of one client. Each change takes effect
 * with the plan that follows it. No state of its own.
 */
#include "lockd/sched/parts.h"

#include <string.h>

static bool unset(uint64_t value)
{
    return value == 0 || value == LOCKD_AUTO;
}

uint64_t sched_settings_quantum_min(const struct sched_settings *settings)
{
    if (!unset(settings->quantum_min_ns))
        return settings->quantum_min_ns;
    /* whoever set only a lower maximum means it */
    return unset(settings->quantum_max_ns) ? QUANTUM_MIN
                                           : sched_min(QUANTUM_MIN, settings->quantum_max_ns);
}

uint64_t sched_settings_quantum_max(const struct sched_settings *settings)
{
    const uint64_t most =
        unset(settings->quantum_max_ns) ? QUANTUM_MAX : settings->quantum_max_ns;

    return sched_max(most, sched_settings_quantum_min(settings));
}

uint32_t sched_settings_share(const struct sched_settings *settings)
{
    return settings->share_ppm == 0 ? SHARE_PPM : settings->share_ppm;
}

void sched_describe(struct sched *lock, struct sched_client *client,
                    const struct gs_wire_hello *hello, uint32_t user)
{
    (void)lock;
    client->weight = hello->weight != 0 ? hello->weight : GS_WEIGHT_DEFAULT;
    client->priority = hello->priority;
    client->user = user;
    memcpy(client->group, hello->group, sizeof client->group);
    client->group[sizeof client->group - 1] = '\0';
}

/* Its place in the queue may be another one now. */
static void requeue(struct sched_party *party, uint64_t now)
{
    if (party->queued_of == NULL)
        return;
    party->keeps_place = true; /* among equals */
    sched_queue_drop(party);
    sched_books_party(party, now);
    sched_plan_settle(party);
}

/* A turn that is under way becomes longer or shorter as the quantum does; with another policy
 * it begins anew. */
static void retime(struct sched_party *party, double change, bool anew, uint64_t now)
{
    const struct sched_device *device = party->device;

    if (!device->leases || !party->held || !party->gang->runs)
        return;
    if (anew) {
        sched_device_policy(device)->place(party);
        party->turn_length = sched_device_policy(device)->length(party);
    } else if (party->turn_length != LOCKD_NEVER && change != 1) {
        party->turn_length = (uint64_t)((double)party->turn_length * change);
    }
    if (party->gang->complete == 0)
        return;
    if (party->turn_length == LOCKD_NEVER)
        party->until = LOCKD_NEVER;
    else
        party->until = (anew ? now : party->gang->complete) + party->turn_length;
}

void sched_gang_requeue(struct sched_gang *gang, uint64_t now)
{
    lockd_list_each (at, &gang->parties) {
        struct sched_party *party = sched_party_of(at, of_gang);

        party->device->generation++;
        if (party->gang->gives_way) { /* it may be served now */
            sched_gang_give_way(gang, party->device->lock, false);
            sched_gang_settle(gang);
        }
        requeue(party, now);
        sched_plan_also(party->device); /* a holder may have to give way now */
    }
}

static void pause_gang(struct sched_gang *gang, bool paused, uint64_t now)
{
    gang->paused += paused ? 1 : UINT32_MAX;
    lockd_list_each (at, &gang->parties) {
        struct sched_party *party = sched_party_of(at, of_gang);

        sched_books_party(party, now);
        lockd_list_each (of, &party->members)
            sched_plan_touch(sched_member_of(of, of_party));
    }
    sched_gang_settle(gang);
}

static void evict_end(struct sched_member *member, bool out)
{
    struct sched_gang *gang = member->party->gang;

    member->evict = false;
    gang->evicting--;
    gang->out = out;
    sched_gang_settle(gang);
    sched_plan_touch(member);
}

/* It is over when nothing is left, or what is left does not leave. */
void sched_evict_check(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;

    if (!member->evict)
        return;
    if (sched_member_busy(member) || member->echoed != member->seq ||
        member->resident < member->evict_left) {
        member->evict_left = member->resident;
        member->evict_until = now + GRACE;
    }
    if (member->resident == 0 ? !sched_member_busy(member) && member->echoed == member->seq
                              : now >= member->evict_until)
        evict_end(member, true);
    else
        device->evict_at = sched_min(device->evict_at, member->evict_until);
}

void sched_evict_watch(struct sched_device *device, uint64_t now)
{
    if (now < device->evict_at)
        return;
    device->evict_at = LOCKD_NEVER;
    lockd_list_each (at, &device->members)
        sched_evict_check(sched_member_of(at, of_device), now);
}

void sched_weight(struct sched *lock, struct sched_client *client, uint32_t weight,
                  uint64_t now_ns)
{
    client->weight = (uint32_t)sched_clamp(weight, 1, GS_WEIGHT_MAX);
    if (client->gang != NULL)
        sched_gang_reweigh(client->gang);
    sched_plan_pending(lock, now_ns);
}

void sched_priority(struct sched *lock, struct sched_client *client, int32_t priority,
                    uint64_t now_ns)
{
    client->priority = priority < -GS_PRIORITY_MAX  ? -GS_PRIORITY_MAX
                       : priority > GS_PRIORITY_MAX ? GS_PRIORITY_MAX
                                                    : priority;
    if (client->gang != NULL)
        sched_gang_requeue(client->gang, now_ns);
    sched_plan_pending(lock, now_ns);
}

void sched_limit(struct sched *lock, struct sched_client *client, uint64_t bytes,
                 uint64_t now_ns)
{
    client->limit = bytes;
    lockd_list_each (at, &client->members)
        sched_plan_touch(sched_member_of(at, of_client));
    sched_plan_pending(lock, now_ns);
}

void sched_quota(struct sched *lock, struct sched_client *client, const uint8_t *uuid,
                 uint64_t bytes, uint64_t now_ns)
{
    struct sched_member *member = sched_member_find(client, uuid);

    if (member == NULL) {
        client->quota_next = bytes;
    } else if (member->quota != bytes) {
        member->quota = bytes;
        sched_plan_touch(member);
        sched_plan_pending(lock, now_ns);
    }
}

void sched_evict(struct sched *lock, struct sched_client *client, uint64_t now_ns)
{
    lockd_list_each (at, &client->members) {
        struct sched_member *member = sched_member_of(at, of_client);

        if (member->evict || member->demand == 0)
            continue;
        member->evict = true;
        member->evict_left = member->resident;
        member->evict_until = now_ns + GRACE;
        client->gang->evicting++;
        sched_gang_settle(client->gang);
        sched_plan_touch(member);
        sched_evict_check(member, now_ns);
    }
    sched_plan_pending(lock, now_ns);
}

static void evict_cancel(struct sched_client *client)
{
    lockd_list_each (at, &client->members) {
        struct sched_member *member = sched_member_of(at, of_client);

        if (member->evict)
            evict_end(member, false);
    }
}

static void pause_client(struct sched_client *client, bool paused, uint64_t now)
{
    if (!paused)
        evict_cancel(client);
    if (client->paused == paused)
        return;
    lockd_list_each (of, &client->members)
        sched_books_time(sched_member_of(of, of_client), now);
    client->paused = paused;
    if (client->gang != NULL)
        pause_gang(client->gang, paused, now);
}

void sched_pause(struct sched *lock, struct sched_client *client, bool paused, uint64_t now_ns)
{
    pause_client(client, paused, now_ns);
    sched_plan_pending(lock, now_ns);
}

void sched_host(struct sched *lock, uint64_t available, uint64_t now_ns)
{
    lock->host_available = available;
    lock->host_changed = true;
    sched_plan_pending(lock, now_ns);
}

struct sched_host_info sched_host_info(const struct sched *lock)
{
    return (struct sched_host_info){lock->host_total, lock->host_used};
}

static void retake(struct sched_device *device, const struct sched_settings *before,
                   uint64_t now)
{
    const bool anew = device->lock->settings.policy != before->policy;
    const struct sched_policy *policy = sched_device_policy(device);
    const double change = (double)sched_device_quantum(device) /
                          (double)sched_max(sched_device_quantum_by(device, before), 1);

    device->recount = true;
    device->fell_at = 0;
    if (change < 1 && policy->shorter != NULL) {
        lockd_list_each (at, &device->parties)
            policy->shorter(sched_party_of(at, of_device), change);
    }
    lockd_list_each (at, &device->parties) {
        requeue(sched_party_of(at, of_device), now);
        retime(sched_party_of(at, of_device), change, anew, now);
    }
}

void sched_set(struct sched *lock, const struct sched_settings *settings, uint64_t now_ns)
{
    const struct sched_settings before = lock->settings;

    lockd_list_each (at, &lock->devices) /* so far it counts by the policy that was */
        sched_books_device_ran(lockd_entry(at, struct sched_device, link), now_ns);
    lock->settings = *settings;
    if ((unsigned)settings->policy >= GS_POLICY_COUNT)
        lock->settings.policy = before.policy;
    lock->host_changed = true;
    lockd_list_each (at, &lock->devices)
        retake(lockd_entry(at, struct sched_device, link), &before, now_ns);
    sched_plan_all(lock, now_ns);
}
