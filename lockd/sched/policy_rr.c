/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_rr.c: in turn: one quantum each, in the order of arrival. No state.
 */
#include "lockd/sched/parts.h"

static uint64_t place(struct lockd_party *party)
{
    (void)party;
    return 0;
}

static uint64_t length(struct lockd_party *party)
{
    return lockd_device_quantum(party->device);
}

const struct lockd_policy lockd_policy_rr = {.place = place, .length = length};
