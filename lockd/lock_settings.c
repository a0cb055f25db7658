/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_settings.c: what people set, of the daemon and of one client. Each change takes effect
 * with the plan that follows it. No state of its own.
 */
#include "lockd/lock_parts.h"

#include <string.h>

static const char *const policy_names[GS_POLICY_COUNT] = {
    [GS_POLICY_FAIR] = "fair",
    [GS_POLICY_FIFO] = "fifo",
    [GS_POLICY_RR] = "rr",
    [GS_POLICY_PRIORITY] = "priority",
};

const char *lockd_policy_name(uint32_t policy)
{
    return policy < GS_POLICY_COUNT ? policy_names[policy] : NULL;
}

int lockd_policy_find(const char *name)
{
    for (int i = 0; i < GS_POLICY_COUNT; i++) {
        if (strcmp(policy_names[i], name) == 0)
            return i;
    }
    return -1;
}

static bool unset(uint64_t value)
{
    return value == 0 || value == LOCKD_AUTO;
}

uint64_t lockd_settings_quantum_min(const struct lockd_settings *settings)
{
    if (!unset(settings->quantum_min_ns))
        return settings->quantum_min_ns;
    /* whoever set only a lower maximum means it */
    return unset(settings->quantum_max_ns) ? QUANTUM_MIN
                                           : lockd_min(QUANTUM_MIN, settings->quantum_max_ns);
}

uint64_t lockd_settings_quantum_max(const struct lockd_settings *settings)
{
    const uint64_t most =
        unset(settings->quantum_max_ns) ? QUANTUM_MAX : settings->quantum_max_ns;

    return lockd_max(most, lockd_settings_quantum_min(settings));
}

uint32_t lockd_settings_share(const struct lockd_settings *settings)
{
    return settings->share_ppm == 0 ? SHARE_PPM : settings->share_ppm;
}

void lockd_lock_describe(struct lockd_lock *lock, struct lockd_client *client,
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
static void requeue(struct lockd_party *party, uint64_t now)
{
    if (party->queued_of == NULL)
        return;
    party->keeps_place = true; /* among equals */
    lockd_queue_drop(party);
    lockd_books_party(party, now);
    lockd_plan_settle(party);
}

/* A turn that is under way becomes longer or shorter as the quantum does; with another policy
 * it begins anew. */
static void retime(struct lockd_party *party, double change, bool anew, uint64_t now)
{
    const struct lockd_device *device = party->device;

    if (!device->leases || !party->held || !party->gang->runs)
        return;
    if (anew) {
        lockd_device_policy(device)->place(party);
        party->turn_length = lockd_device_policy(device)->length(party);
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

void lockd_gang_requeue(struct lockd_gang *gang, uint64_t now)
{
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        party->device->generation++;
        if (party->gang->gives_way) { /* it may be served now */
            lockd_gang_give_way(gang, party->device->lock, false);
            lockd_gang_settle(gang);
        }
        requeue(party, now);
        lockd_plan_also(party->device); /* a holder may have to give way now */
    }
}

static void pause_gang(struct lockd_gang *gang, bool paused, uint64_t now)
{
    gang->paused += paused ? 1 : UINT32_MAX;
    lockd_list_each (at, &gang->parties) {
        struct lockd_party *party = lockd_party_of(at, of_gang);

        lockd_books_party(party, now);
        lockd_list_each (of, &party->members)
            lockd_plan_touch(lockd_member_of(of, of_party));
    }
    lockd_gang_settle(gang);
}

static void evict_end(struct lockd_member *member, bool out)
{
    struct lockd_gang *gang = member->party->gang;

    member->evict = false;
    gang->evicting--;
    gang->out = out;
    lockd_gang_settle(gang);
    lockd_plan_touch(member);
}

/* It is over when nothing is left, or what is left does not leave. */
void lockd_evict_check(struct lockd_member *member, uint64_t now)
{
    struct lockd_device *device = member->device;

    if (!member->evict)
        return;
    if (lockd_member_busy(member) || member->echoed != member->seq ||
        member->resident < member->evict_left) {
        member->evict_left = member->resident;
        member->evict_until = now + GRACE;
    }
    if (member->resident == 0 ? !lockd_member_busy(member) && member->echoed == member->seq
                              : now >= member->evict_until)
        evict_end(member, true);
    else
        device->evict_at = lockd_min(device->evict_at, member->evict_until);
}

void lockd_evict_watch(struct lockd_device *device, uint64_t now)
{
    if (now < device->evict_at)
        return;
    device->evict_at = LOCKD_NEVER;
    lockd_list_each (at, &device->members)
        lockd_evict_check(lockd_member_of(at, of_device), now);
}

void lockd_lock_weight(struct lockd_lock *lock, struct lockd_client *client, uint32_t weight,
                       uint64_t now_ns)
{
    client->weight = (uint32_t)lockd_clamp(weight, 1, GS_WEIGHT_MAX);
    if (client->gang != NULL)
        lockd_gang_reweigh(client->gang);
    lockd_plan_pending(lock, now_ns);
}

void lockd_lock_priority(struct lockd_lock *lock, struct lockd_client *client, int32_t priority,
                         uint64_t now_ns)
{
    client->priority = priority < -GS_PRIORITY_MAX  ? -GS_PRIORITY_MAX
                       : priority > GS_PRIORITY_MAX ? GS_PRIORITY_MAX
                                                    : priority;
    if (client->gang != NULL)
        lockd_gang_requeue(client->gang, now_ns);
    lockd_plan_pending(lock, now_ns);
}

void lockd_lock_limit(struct lockd_lock *lock, struct lockd_client *client, uint64_t bytes,
                      uint64_t now_ns)
{
    client->limit = bytes;
    lockd_list_each (at, &client->members)
        lockd_plan_touch(lockd_member_of(at, of_client));
    lockd_plan_pending(lock, now_ns);
}

void lockd_lock_quota(struct lockd_lock *lock, struct lockd_client *client, const uint8_t *uuid,
                      uint64_t bytes, uint64_t now_ns)
{
    struct lockd_member *member = lockd_member_find(client, uuid);

    if (member == NULL) {
        client->quota_next = bytes;
    } else if (member->quota != bytes) {
        member->quota = bytes;
        lockd_plan_touch(member);
        lockd_plan_pending(lock, now_ns);
    }
}

void lockd_lock_evict(struct lockd_lock *lock, struct lockd_client *client, uint64_t now_ns)
{
    lockd_list_each (at, &client->members) {
        struct lockd_member *member = lockd_member_of(at, of_client);

        if (member->evict || member->demand == 0)
            continue;
        member->evict = true;
        member->evict_left = member->resident;
        member->evict_until = now_ns + GRACE;
        client->gang->evicting++;
        lockd_gang_settle(client->gang);
        lockd_plan_touch(member);
        lockd_evict_check(member, now_ns);
    }
    lockd_plan_pending(lock, now_ns);
}

static void evict_cancel(struct lockd_client *client)
{
    lockd_list_each (at, &client->members) {
        struct lockd_member *member = lockd_member_of(at, of_client);

        if (member->evict)
            evict_end(member, false);
    }
}

static void pause_client(struct lockd_client *client, bool paused, uint64_t now)
{
    if (!paused)
        evict_cancel(client);
    if (client->paused == paused)
        return;
    lockd_list_each (of, &client->members)
        lockd_books_time(lockd_member_of(of, of_client), now);
    client->paused = paused;
    if (client->gang != NULL)
        pause_gang(client->gang, paused, now);
}

void lockd_lock_pause(struct lockd_lock *lock, struct lockd_client *client, bool paused,
                      uint64_t now_ns)
{
    pause_client(client, paused, now_ns);
    lockd_plan_pending(lock, now_ns);
}

void lockd_lock_host(struct lockd_lock *lock, uint64_t available, uint64_t now_ns)
{
    lock->host_available = available;
    lock->host_changed = true;
    lockd_plan_pending(lock, now_ns);
}

struct lockd_host_info lockd_lock_host_info(const struct lockd_lock *lock)
{
    return (struct lockd_host_info){lock->host_total, lock->host_used};
}

static void retake(struct lockd_device *device, const struct lockd_settings *before,
                   uint64_t now)
{
    const bool anew = device->lock->settings.policy != before->policy;
    const struct lockd_policy *policy = lockd_device_policy(device);
    const double change = (double)lockd_device_quantum(device) /
                          (double)lockd_max(lockd_device_quantum_by(device, before), 1);

    device->recount = true;
    device->fell_at = 0;
    if (change < 1 && policy->shorter != NULL) {
        lockd_list_each (at, &device->parties)
            policy->shorter(lockd_party_of(at, of_device), change);
    }
    lockd_list_each (at, &device->parties) {
        requeue(lockd_party_of(at, of_device), now);
        retime(lockd_party_of(at, of_device), change, anew, now);
    }
}

void lockd_lock_set(struct lockd_lock *lock, const struct lockd_settings *settings,
                    uint64_t now_ns)
{
    const struct lockd_settings before = lock->settings;

    lockd_list_each (at, &lock->devices) /* so far it counts by the policy that was */
        lockd_books_device_ran(lockd_entry(at, struct lockd_device, link), now_ns);
    lock->settings = *settings;
    if ((unsigned)settings->policy >= GS_POLICY_COUNT)
        lock->settings.policy = before.policy;
    lock->host_changed = true;
    lockd_list_each (at, &lock->devices)
        retake(lockd_entry(at, struct lockd_device, link), &before, now_ns);
    lockd_plan_all(lock, now_ns);
}
