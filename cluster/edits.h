/* SPDX-License-Identifier: Apache-2.0
 *
 * edits.h: what a container with these GPUs is given, as mounts, device nodes and environment:
 * the edits of the specification, for kubelets and runtimes that do not know CDI.
 */
#ifndef GS_CLUSTER_EDITS_H
#define GS_CLUSTER_EDITS_H

#include "cluster/cards.h"
#include "cluster/pool.h"
#include "device_plugin.pb-c.h"

/* Fills in the answer for `count` cards; its memory is the pool's. 0 or -ENOMEM. */
int edits_fill(const struct cards *cards, const unsigned *chosen, size_t count,
               struct pool *pool, V1beta1__AllocateAnswer *answer);

/* Edits that mounts cannot say: hooks and groups. */
bool edits_have_hooks(const struct cards *cards);
bool edits_have_groups(const struct cards *cards);

#endif
