/* SPDX-License-Identifier: Apache-2.0
 *
 * budget.h: how many bytes each member may hold on a device.
 */
#pragma once

#include "lockd/sched/state.h"

void sched_budget_plan(struct sched_device *device, uint64_t now);
