/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_rr.c: in turn: one quantum each, in the order of arrival. No state.
 */
#include "lockd/sched/parts.h"

static uint64_t place(struct sched_party *party)
{
    (void)party;
    return 0;
}

static uint64_t length(struct sched_party *party)
{
    return sched_device_quantum(party->device);
}

const struct sched_policy sched_policy_rr = {.place = place, .length = length};
