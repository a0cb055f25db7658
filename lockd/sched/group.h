/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: programs of one user that name the same group.
 */
#pragma once

#include "lockd/sched/state.h"

/* The party of that client on that device, in the gang of its group if it has a group that
 * fits. NULL without memory. */
struct sched_party *sched_group_join(struct sched_client *client, struct sched_device *device);
/* The client was found to be in that group (0: in none), and leaves its former group. Nothing
 * happens to a client that names its group. */
void sched_group_kin(struct sched_client *client, uint64_t kin, uint64_t now);
/* The client is gone: it leaves its gang and its group. */
void sched_group_client_gone(struct sched_client *client);
/* Parts those that are too large, and brings together those that are not any more. */
void sched_group_plan(struct sched *sched, uint64_t now);
