/* SPDX-License-Identifier: Apache-2.0
 *
 * gang.h: membership of gangs, and of groups, which are gangs as long as they fit.
 */
#pragma once

#include "lockd/sched/state.h"

/* The party of that client on that device, in the gang of its group if it has a group that fits;
 * made if there is none. NULL without memory. */
struct sched_party *sched_gang_join(struct sched_client *client, struct sched_device *device);
void sched_gang_leave(struct sched_member *member, uint64_t now);
/* The client is gone: it leaves its gang and its group, which are freed after their last client. */
void sched_gang_client_gone(struct sched_client *client);
/* A client's weight has changed. */
void sched_gang_reweigh(struct sched_gang *gang);
/* The client was found to be in that group (0: in none), and leaves its former group. Nothing
 * happens to a client that names its group. */
void sched_group_kin(struct sched_client *client, uint64_t kin, uint64_t now);
/* Parts groups that are too large, and brings together those that are not any more. */
void sched_group_plan(struct sched *sched, uint64_t now);
