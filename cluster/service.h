/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h: the methods that kubelet calls.
 */
#ifndef GS_CLUSTER_SERVICE_H
#define GS_CLUSTER_SERVICE_H

#include "cluster/plugin.h"

/* For grpc_link_serve(), whose context is the struct plugin. */
extern const struct grpc_method service_methods[];

/* Tells all watchers the state of all devices. */
void service_tell(struct plugin *plugin);
/* Ends what watchers have, with no error. */
void service_end_watches(struct plugin *plugin);

#endif
