/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_priority.c: the highest priority first, at once; in turn among equals. Lower ones wait
 * for as long as higher ones have something to do and do not fit beside them. No state.
 */
#include "lockd/sched/parts.h"

static uint64_t place(struct sched_party *party)
{
    return (uint64_t)(INT32_MAX - (int64_t)sched_gang_priority(party->gang));
}

static uint64_t length(struct sched_party *party)
{
    return sched_device_quantum(party->device);
}

static bool ahead(const struct sched_party *head, const struct sched_party *holder)
{
    return sched_gang_priority(head->gang) > sched_gang_priority(holder->gang);
}

static bool stays(const struct sched_party *holder, const struct sched_party *head)
{
    return sched_gang_priority(holder->gang) > sched_gang_priority(head->gang);
}

const struct sched_policy sched_policy_priority = {
    .place = place, .length = length, .ahead = ahead, .stays = stays};
