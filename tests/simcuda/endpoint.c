/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.c: owns logical endpoints: numbers to which memory is bound. Their properties are not
 * looked at, since headers before 13.3 do not have them, and nothing can be reached through them.
 *
 * Rules kept as the manual says them: what is bound lies in one piece of memory and overlaps
 * nothing else; an unbind encloses all that it unbinds. Invariants: what is bound counts as a
 * mapping of its memory. Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include "tests/simcuda/sim.h"

#define MOST 16

struct binding {
    struct binding *next;
    struct sim_physical *physical;
    uint64_t at, size;
};

static struct endpoint {
    bool reserved, created;
    struct binding *bindings;
} endpoints[MOST];

static struct endpoint *endpoint_of(CUlogicalEndpointId id)
{
    return id > 0 && id <= MOST && endpoints[id - 1].created ? &endpoints[id - 1] : NULL;
}

/* Only one number at a time. */
static CUresult reserve_number(CUlogicalEndpointId *out, cuuint32_t count)
{
    if (!out || count != 1)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < MOST; i++)
        if (!endpoints[i].reserved) {
            endpoints[i].reserved = true;
            *out = i + 1;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create_endpoint(CUlogicalEndpointId id)
{
    if (id == 0 || id > MOST || !endpoints[id - 1].reserved || endpoints[id - 1].created)
        return CUDA_ERROR_INVALID_VALUE;
    endpoints[id - 1].created = true;
    return CUDA_SUCCESS;
}

static CUresult bind_memory(CUlogicalEndpointId id, CUdevice device, uint64_t at,
                            struct sim_physical *physical, uint64_t offset, uint64_t size,
                            unsigned long long flags)
{
    struct endpoint *endpoint = endpoint_of(id);
    struct binding *binding;

    if (!endpoint || !physical || physical->device != (unsigned)device || !size || flags ||
        (at | offset | size) % SIM_PAGE || offset > physical->size ||
        size > physical->size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    for (binding = endpoint->bindings; binding; binding = binding->next)
        if (binding->at < at + size && at < binding->at + binding->size)
            return CUDA_ERROR_INVALID_VALUE;
    binding = malloc(sizeof *binding);
    if (!binding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){endpoint->bindings, physical, at, size};
    endpoint->bindings = binding;
    physical->maps++;
    return CUDA_SUCCESS;
}

static CUresult bind_handle(CUlogicalEndpointId id, CUdevice device, uint64_t at,
                            CUmemGenericAllocationHandle memory, uint64_t offset, uint64_t size,
                            unsigned long long flags)
{
    struct sim_physical *physical = (struct sim_physical *)(uintptr_t)memory;

    return bind_memory(id, device, at,
                       sim_handle_is(physical, SIM_KIND_PHYSICAL) ? physical : NULL, offset,
                       size, flags);
}

static CUresult bind_address(CUlogicalEndpointId id, CUdevice device, uint64_t at,
                             CUdeviceptr address, uint64_t size, unsigned long long flags)
{
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);

    return mapping
               ? bind_memory(id, device, at, mapping->physical,
                             mapping->offset + (address - mapping->range.start), size, flags)
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult unbind_memory(CUlogicalEndpointId id, CUdevice device, uint64_t at,
                              uint64_t size)
{
    struct endpoint *endpoint = endpoint_of(id);
    uint64_t unbound = 0;

    if (!endpoint)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct binding **place = &endpoint->bindings; *place;) {
        struct binding *binding = *place;

        if (binding->physical->device != (unsigned)device || binding->at < at ||
            binding->at + binding->size > at + size) {
            place = &binding->next;
            continue;
        }
        *place = binding->next;
        unbound += binding->size;
        binding->physical->maps--;
        sim_physical_put(binding->physical);
        free(binding);
    }
    return unbound == size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuLogicalEndpointIdReserve, (CUlogicalEndpointId * out, cuuint32_t count), SIM_INIT,
        reserve_number(out, count))
SIM_API(cuLogicalEndpointCreate, (CUlogicalEndpointId id, const CUlogicalEndpointProp *prop),
        SIM_INIT, prop ? create_endpoint(id) : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuLogicalEndpointBindMem,
        (CUlogicalEndpointId id, CUdevice device, cuuint64_t at,
         CUmemGenericAllocationHandle memory, cuuint64_t offset, cuuint64_t size,
         unsigned long long flags),
        SIM_INIT, bind_handle(id, device, at, memory, offset, size, flags))
SIM_API(cuLogicalEndpointBindAddr,
        (CUlogicalEndpointId id, CUdevice device, cuuint64_t at, void *address, cuuint64_t size,
         unsigned long long flags),
        SIM_INIT, bind_address(id, device, at, (CUdeviceptr)address, size, flags))
SIM_API(cuLogicalEndpointUnbind,
        (CUlogicalEndpointId id, CUdevice device, cuuint64_t at, cuuint64_t size), SIM_INIT,
        unbind_memory(id, device, at, size))
