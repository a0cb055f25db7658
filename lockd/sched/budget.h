/* SPDX-License-Identifier: Apache-2.0
 *
 * budget.h: how many bytes each member may hold on a device.
 */
#ifndef GS_LOCKD_SCHED_BUDGET_H
#define GS_LOCKD_SCHED_BUDGET_H

#include "lockd/sched/state.h"

void sched_budget_plan(struct sched_device *device, uint64_t now);

#endif
