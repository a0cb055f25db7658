/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h: the methods that kubelet calls.
 */
#pragma once

#include "cluster/plugin.h"

/* For grpc_link_new(), whose context is the struct plugin. */
extern const struct grpc_method service_methods[];

/* Tells all watchers the state of all devices. */
void service_tell(struct plugin *plugin);
/* Ends what watchers have, with no error. */
void service_end_watches(struct plugin *plugin);

/* Makes the socket, in the place of a socket that is there. 0 or -errno. */
int listen_open(struct plugin *plugin, struct gs_err *err);
/* Whether the socket in the folder is still ours: kubelet removes all when it starts. */
bool listen_is_there(const struct plugin *plugin);
/* Removes it. */
void listen_close(struct plugin *plugin);
/* Takes what wants to connect. */
void listen_accept(struct plugin *plugin);
/* Reads and writes on one connection, and ends it when that is over. */
void listen_run(struct grpc_peer *peer);
