/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: how much host memory each client may have.
 */
#pragma once

#include "lockd/sched/state.h"

void sched_host_report(struct sched_member *member, const struct gs_wire_state *state,
                       uint64_t now);
void sched_host_forget(struct sched_client *client);
void sched_host_plan(struct sched *sched, uint64_t now);
