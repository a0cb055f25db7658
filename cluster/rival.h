/* SPDX-License-Identifier: Apache-2.0
 *
 * rival.h: whether another device plugin (NVIDIA's) gives out the same GPUs: pods of both would
 * share a GPU, and only gpushare's would take turns.
 */
#ifndef GS_CLUSTER_RIVAL_H
#define GS_CLUSTER_RIVAL_H

#include "cluster/plugin.h"

void rival_init(struct rival *rival);
/* A socket of that name is in kubelet's folder. */
void rival_see(struct plugin *plugin, const char *name);
/* It is time, or the connection has something to read or write. */
void rival_run(struct plugin *plugin);

#endif
