/* SPDX-License-Identifier: Apache-2.0
 *
 * registration.h: telling kubelet that this plugin is there, until it has understood.
 */
#pragma once

#include "cluster/plugin.h"

void registration_init(struct registration *registration);
/* kubelet's socket is new, or kubelet must be told again: now. */
void registration_restart(struct plugin *plugin);
/* Kubelet watches: it need not be told again. */
void registration_watched(struct plugin *plugin);
/* Kubelet no longer watches: registers again, after a call that is under way. */
void registration_lost(struct plugin *plugin);
/* It is time, or the connection has something to read or write. */
void registration_run(struct plugin *plugin);

/* Whether another device plugin (NVIDIA's) gives out the same GPUs: pods of both would
 * share a GPU, and only gpushare's would take turns. */

void rival_init(struct rival *rival);
/* A socket of that name is in kubelet's folder. */
void rival_see(struct plugin *plugin, const char *name);
/* It is time, or the connection has something to read or write. */
void rival_run(struct plugin *plugin);
