/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_memory.h: device memory that the driver holds for the graphs of this process
 * (allocation nodes). It cannot be moved, but what no graph is using can be given back.
 */
#ifndef GS_RUNTIME_MEMORY_GRAPH_MEMORY_H
#define GS_RUNTIME_MEMORY_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/device.h"

/* Client thread, each round. at_rest: this program does not run now, and nothing of it is on
 * the GPU: what its graphs hold unused goes. When what they hold has changed, what is free on
 * the card is measured anew for the daemon. */
void gs_graph_memory_look(struct gs_device *device, bool at_rest, uint64_t now_ns);

/* Gives back what no graph is using; true if that was anything. Any thread. */
bool gs_graph_memory_trim(const struct gs_device *device);

#endif
