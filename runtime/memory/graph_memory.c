/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_memory.c: watches the memory that the driver holds for graphs. The daemon counts it as
 * memory that cannot be moved, which it learns from the free memory of the card.
 *
 * State: in struct gs_device, client thread only.
 */
#include "runtime/memory/graph_memory.h"

#define LOOK_NS 500000000ull

static uint64_t reserved_bytes(const struct gs_device *device)
{
    uint64_t bytes = 0;

    return gs_driver.cuDeviceGetGraphMemAttribute(
               device->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS
               ? bytes
               : 0;
}

bool gs_graph_memory_trim(const struct gs_device *device)
{
    const uint64_t before = reserved_bytes(device);

    return before != 0 && gs_driver.cuDeviceGraphMemTrim(device->ordinal) == CUDA_SUCCESS &&
           reserved_bytes(device) < before;
}

void gs_graph_memory_look(struct gs_device *device, bool at_rest, uint64_t now_ns)
{
    const uint64_t asked = atomic_load_explicit(&device->target.asked, memory_order_acquire);
    const bool stops = at_rest && !device->graphs.trimmed;
    uint64_t bytes;

    device->graphs.trimmed = at_rest;
    if (!stops && asked == device->graphs.asked && now_ns - device->graphs.looked_at < LOOK_NS)
        return;
    device->graphs.asked = asked;
    device->graphs.looked_at = now_ns;
    if (gs_context_for(device) == NULL)
        return;
    if (stops)
        gs_graph_memory_trim(device);
    bytes = reserved_bytes(device);
    if (bytes == device->graphs.bytes)
        return;
    gs_log("device %d: graphs use %llu MiB", device->ordinal,
           (unsigned long long)(bytes >> 20));
    device->graphs.bytes = bytes;
    device->report.known = false;
}
