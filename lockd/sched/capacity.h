/* SPDX-License-Identifier: Apache-2.0
 *
 * capacity.h: what is left of a device for programs.
 */
#pragma once

#include "lockd/sched/state.h"

uint64_t sched_device_reserve(const struct sched_device *device);
/* The most that any one program can ever get. */
uint64_t sched_device_most(const struct sched_device *device);
/* Works out the capacity; notes when shares change with it. */
void sched_device_refresh(struct sched_device *device, uint64_t now);

/* The driver had not so many bytes for it. */
void sched_short_report(struct sched_member *member, uint64_t bytes, uint64_t now);
/* The member may have more than it had before in this turn. */
void sched_short_used(struct sched_member *member);
