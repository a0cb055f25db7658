/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h: the methods that kubelet calls, and the plugin's own calls of kubelet.
 */
#pragma once

#include "cluster/plugin.h"

/* For grpc_link_new(), whose context is the struct plugin. */
extern const struct grpc_method service_methods[];

/* Tells all watchers the state of all devices. */
void service_tell(struct plugin *plugin);
/* Ends what watchers have, with no error. */
void service_end_watches(struct plugin *plugin);

/* Makes the socket, in the place of whatever has its name, except a directory. 0 or -errno. */
int listen_open(struct plugin *plugin, struct gs_err *err);
/* Whether the socket in the folder is still ours: kubelet removes all when it starts. */
bool listen_is_there(const struct plugin *plugin);
/* Removes it. */
void listen_close(struct plugin *plugin);
/* Takes what wants to connect. */
void listen_accept(struct plugin *plugin);
/* Reads and writes on one connection, and ends it when that is over. */
void listen_run(struct grpc_peer *peer);

/* Telling kubelet that this plugin is there, until it has understood. */
void registration_init(struct registration *registration);
/* kubelet's socket is new, or kubelet must be told again: now. */
void registration_restart(struct plugin *plugin);
/* It is time, or the connection has something to read or write. */
void registration_run(struct plugin *plugin);

/* Whether another device plugin (NVIDIA's) gives out the same GPUs: pods of both would share a GPU,
 * and only gpushare's would take turns. */
void rival_init(struct rival *rival);
/* A socket of that name is in kubelet's folder. */
void rival_see(struct plugin *plugin, const char *name);
/* It is time, or the connection has something to read or write. */
void rival_run(struct plugin *plugin);
