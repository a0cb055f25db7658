/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_settings.c: what people set, of the daemon and of one client. Each change takes effect
 * with the plan that follows it. No state of its own.
 */
#include "lockd/lock_state.h"

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
    return unset(settings->quantum_min_ns) ? QUANTUM_MIN : settings->quantum_min_ns;
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

static void plan_all(struct lockd_lock *lock, uint64_t now)
{
    lockd_list_each (at, &lock->devices)
        lockd_device_plan(lockd_entry(at, struct lockd_device, link), now);
}

void lockd_lock_weight(struct lockd_lock *lock, struct lockd_client *client, uint32_t weight,
                       uint64_t now_ns)
{
    client->weight = (uint32_t)lockd_clamp(weight, 1, GS_WEIGHT_MAX);
    plan_all(lock, now_ns);
}

void lockd_lock_priority(struct lockd_lock *lock, struct lockd_client *client, int32_t priority,
                         uint64_t now_ns)
{
    client->priority = priority;
    plan_all(lock, now_ns);
}

void lockd_lock_limit(struct lockd_lock *lock, struct lockd_client *client, uint64_t bytes,
                      uint64_t now_ns)
{
    client->limit = bytes;
    plan_all(lock, now_ns);
}

void lockd_lock_evict(struct lockd_lock *lock, struct lockd_client *client, uint64_t now_ns)
{
    client->evict = true;
    plan_all(lock, now_ns);
}

void lockd_lock_host(struct lockd_lock *lock, uint64_t available, uint64_t now_ns)
{
    lock->host_available = available;
    plan_all(lock, now_ns);
}

struct lockd_host_info lockd_lock_host_info(const struct lockd_lock *lock)
{
    return (struct lockd_host_info){lock->host_total, lock->host_used};
}

void lockd_lock_set(struct lockd_lock *lock, const struct lockd_settings *settings,
                    uint64_t now_ns)
{
    lock->settings = *settings;
    plan_all(lock, now_ns);
}
