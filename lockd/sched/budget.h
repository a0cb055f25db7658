/* SPDX-License-Identifier: Apache-2.0
 *
 * budget.h: how many bytes each member may hold on a device, and each client on the host.
 */
#pragma once

#include "lockd/sched/state.h"

void sched_budget_plan(struct sched_device *device, uint64_t now);
void sched_host_report(struct sched_member *member, const struct gs_wire_state *state,
                       uint64_t now);
void sched_host_forget(struct sched_client *client);
void sched_host_plan(struct sched *sched, uint64_t now);
