/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_priority.c: the highest priority first, at once; in turn among equals. Lower ones wait
 * for as long as higher ones have something to do and do not fit beside them. No state.
 */
#include "lockd/sched/parts.h"

static uint64_t place(struct lockd_party *party)
{
    return (uint64_t)(INT32_MAX - (int64_t)lockd_gang_priority(party->gang));
}

static uint64_t length(struct lockd_party *party)
{
    return lockd_device_quantum(party->device);
}

static bool ahead(const struct lockd_party *head, const struct lockd_party *holder)
{
    return lockd_gang_priority(head->gang) > lockd_gang_priority(holder->gang);
}

static bool stays(const struct lockd_party *holder, const struct lockd_party *head)
{
    return lockd_gang_priority(holder->gang) > lockd_gang_priority(head->gang);
}

const struct lockd_policy lockd_policy_priority = {
    .place = place, .length = length, .ahead = ahead, .stays = stays};
