/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.c: the table of policies, and those that keep no state: fifo, rr and priority. The
 * fair policy is in policy_fair.c.
 */
#include "lockd/sched/policy.h"

#include "lockd/sched/quantum.h"

/* --- what is the same for all of them --- */

static bool is_never(const struct sched_party *party)
{
    (void)party;
    return false;
}

static uint64_t moves_never(const struct sched_party *party, uint64_t now)
{
    (void)party;
    (void)now;
    return LOCKD_NEVER;
}

static uint64_t keeps_for_nobody(const struct sched_device *device)
{
    (void)device;
    return LOCKD_NEVER;
}

#define WITHOUT_STATE                                                                          \
    .ran = sched_share_ran, .anew = is_never, .moves_at = moves_never,                         \
    .back_until = keeps_for_nobody

/* --- fifo --- */

/* The first to come runs for as long as it has something to do; a pause of the device's idle
 * time ends its turn when others wait. Fewest switches; the others may wait for ever. */

static uint64_t place_equally(struct sched_party *party)
{
    (void)party;
    return 0;
}

static uint64_t endless_turn(struct sched_party *party)
{
    (void)party;
    return LOCKD_NEVER;
}

static const struct sched_policy policy_fifo = {WITHOUT_STATE, .place = place_equally,
                                                .length = endless_turn};

/* --- rr: in turn, one quantum each, in the order of arrival --- */

static uint64_t one_quantum(struct sched_party *party)
{
    return sched_device_quantum(party->device);
}

static const struct sched_policy policy_rr = {WITHOUT_STATE, .place = place_equally,
                                              .length = one_quantum};

/* --- priority --- */

/* The highest first, at once; in turn among equals. Lower ones wait for as long as higher ones
 * have something to do and do not fit beside them. */

int32_t sched_gang_priority(const struct sched_gang *gang)
{
    int32_t priority = INT32_MIN;

    sched_each_of_gang (member, gang)
        priority =
            member->client->set.priority > priority ? member->client->set.priority : priority;
    return priority;
}

static uint64_t place_by_priority(struct sched_party *party)
{
    return (uint64_t)(INT32_MAX - (int64_t)sched_gang_priority(party->gang));
}

static uint64_t ahead_of_lower(const struct sched_party *head, const struct sched_party *holder,
                               uint64_t now)
{
    const bool higher = sched_gang_priority(head->gang) > sched_gang_priority(holder->gang);

    return higher ? now : LOCKD_NEVER;
}

static bool stays_before(const struct sched_party *holder, const struct sched_party *head)
{
    return sched_gang_priority(holder->gang) > sched_gang_priority(head->gang);
}

static const struct sched_policy policy_priority = {
    WITHOUT_STATE, .place = place_by_priority, .length = one_quantum, .ahead = ahead_of_lower,
    .stays = stays_before};

/* --- which one --- */

static const struct sched_policy *const policies[GS_POLICY_COUNT] = {
    [GS_POLICY_FAIR] = &sched_policy_fair,
    [GS_POLICY_FIFO] = &policy_fifo,
    [GS_POLICY_RR] = &policy_rr,
    [GS_POLICY_PRIORITY] = &policy_priority,
};

const struct sched_policy *sched_policy_of(const struct sched_device *device)
{
    return policies[device->sched->settings.policy];
}
