/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_memory.h: device memory that the driver holds for the graphs of this process (allocation
 * nodes). It cannot be moved, but memory that no graph is using can be released.
 */
#pragma once

#include "runtime/base/base.h"

/* Client thread, each round. at_rest: this program does not run now, and has nothing on the GPU;
 * then memory that its graphs hold unused is released. If the amount has changed, the free
 * memory of the card is measured again for the daemon. */
void gs_graph_memory_look(struct gs_device *device, bool at_rest, uint64_t now_ns);

/* Releases memory that no graph is using; true if there was any. Any thread. */
bool gs_graph_memory_trim(const struct gs_device *device);
