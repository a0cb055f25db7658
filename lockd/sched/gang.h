/* SPDX-License-Identifier: Apache-2.0
 *
 * gang.h: membership of gangs.
 */
#pragma once

#include "lockd/sched/state.h"

/* The party of that client on that device; made if there is none. NULL without memory. */
struct sched_party *sched_gang_join(struct sched_client *client, struct sched_device *device);
void sched_gang_leave(struct sched_member *member, uint64_t now);
/* Frees the client's gang if it was its last client. */
void sched_gang_client_gone(struct sched_client *client);
/* A client's weight has changed. */
void sched_gang_reweigh(struct sched_gang *gang);
/* The client leaves its gang for that one (NULL: one of its own), with its members. Neither
 * gang may have a place or wait for a place. Without memory nothing happens. */
void sched_gang_move(struct sched_client *client, struct sched_gang *to, uint64_t now);
