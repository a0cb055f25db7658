/* SPDX-License-Identifier: Apache-2.0
 *
 * turns.h: the turns on a device.
 */
#ifndef GS_LOCKD_SCHED_TURNS_H
#define GS_LOCKD_SCHED_TURNS_H

#include "lockd/sched/state.h"

void sched_turns_plan(struct sched_device *device, uint64_t now);

#endif
