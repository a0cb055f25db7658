/* SPDX-License-Identifier: Apache-2.0
 *
 * turns.h: the turns on a device.
 */
#pragma once

#include "lockd/sched/state.h"

void sched_turns_plan(struct sched_device *device, uint64_t now);

/* When the holder must give way to `head`, the next party: now, or when its turn is over;
 * LOCKD_NEVER: not yet known, or the policy lets it go on. Other events may end it earlier. */
uint64_t sched_turn_ends_at(const struct sched_party *holder, const struct sched_party *head,
                            uint64_t now);
