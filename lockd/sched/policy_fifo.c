/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_fifo.c: who came first runs for as long as it has something to do; a pause of the
 * device's idle time ends its turn when others wait. Fewest switches; the others may wait for
 * ever. No state.
 */
#include "lockd/sched/parts.h"

static uint64_t place(struct sched_party *party)
{
    (void)party;
    return 0;
}

static uint64_t length(struct sched_party *party)
{
    (void)party;
    return LOCKD_NEVER;
}

const struct sched_policy sched_policy_fifo = {.place = place, .length = length};
