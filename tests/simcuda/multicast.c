/* SPDX-License-Identifier: Apache-2.0
 *
 * multicast.c: owns multicast objects: memory of several cards that is bound to one object,
 * whose addresses reach all of it.
 *
 * Rules kept as the manual says them: a bind waits until all devices of the team are there;
 * what is bound lies in one piece of memory and overlaps nothing of its device; what is unbound
 * is what was bound, and nothing else (there: undefined). Simpler than a card: objects cannot
 * be shared; one is mapped only where memory is bound to it already, and a mapping reaches the
 * memory of the lowest device alone. Invariants: what is bound counts as a mapping of its
 * memory; an object goes with its last handle. Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include "tests/simcuda/sim.h"

struct binding {
    struct binding *next; /* by device, then by offset */
    struct sim_physical *physical;
    size_t at, size, offset; /* in the object; in the memory */
};

struct multicast {
    CUmulticastObjectProp prop;
    unsigned devices; /* a bit for each that was added */
    unsigned handles, waiting;
    struct binding *bindings;
};

static pthread_cond_t added = PTHREAD_COND_INITIALIZER;

static struct multicast *multicast_of(CUmemGenericAllocationHandle handle)
{
    struct multicast *object = (struct multicast *)(uintptr_t)handle;

    return sim_handle_is(object, SIM_KIND_MULTICAST) ? object : NULL;
}

static CUresult prop_check(const CUmulticastObjectProp *prop)
{
    if (!sim_has_vmm())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!prop || !prop->numDevices || prop->numDevices > sim.device_count || !prop->size ||
        prop->size % SIM_PAGE || prop->flags)
        return CUDA_ERROR_INVALID_VALUE;
    return prop->handleTypes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult create_object(CUmemGenericAllocationHandle *out,
                              const CUmulticastObjectProp *prop)
{
    const CUresult result = out ? prop_check(prop) : CUDA_ERROR_INVALID_VALUE;

    if (result)
        return result;
    struct multicast *object = calloc(1, sizeof *object);
    if (!object || sim_handle_add(object, SIM_KIND_MULTICAST)) {
        free(object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->prop = *prop;
    object->handles = 1;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)object;
    return CUDA_SUCCESS;
}

static void unbind_one(struct binding **at)
{
    struct binding *binding = *at;

    *at = binding->next;
    binding->physical->maps--;
    sim_physical_put(binding->physical);
    free(binding);
}

static void put_object(struct multicast *object)
{
    if (!object->handles)
        sim_handle_remove(object);
    if (object->handles || object->waiting)
        return;
    while (object->bindings)
        unbind_one(&object->bindings);
    free(object);
}

bool sim_multicast_release(CUmemGenericAllocationHandle handle)
{
    struct multicast *object = multicast_of(handle);

    if (object) {
        object->handles--;
        pthread_cond_broadcast(&added);
        put_object(object);
    }
    return object != NULL;
}

static CUresult add_device(CUmemGenericAllocationHandle handle, CUdevice device)
{
    struct multicast *object = multicast_of(handle);

    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (object->devices >> device & 1 ||
        (unsigned)__builtin_popcount(object->devices) == object->prop.numDevices)
        return CUDA_ERROR_INVALID_VALUE;
    object->devices |= 1u << device;
    pthread_cond_broadcast(&added);
    return CUDA_SUCCESS;
}

/* Waits for the whole team. False: the object has gone meanwhile. */
static bool is_complete(struct multicast *object)
{
    object->waiting++;
    while (object->handles &&
           (unsigned)__builtin_popcount(object->devices) < object->prop.numDevices)
        pthread_cond_wait(&added, &sim.lock);
    object->waiting--;
    if (object->handles)
        return true;
    put_object(object);
    return false;
}

/* where the list has, or would have, what is bound there */
static struct binding **place_of(struct multicast *object, unsigned device, size_t at)
{
    struct binding **place = &object->bindings;

    while (*place && ((*place)->physical->device < device ||
                      ((*place)->physical->device == device && (*place)->at < at)))
        place = &(*place)->next;
    return place;
}

static bool is_bound(const struct multicast *object, unsigned device, size_t at, size_t size)
{
    const struct binding *binding = object->bindings;

    while (binding && (binding->physical->device != device || binding->at >= at + size ||
                       at >= binding->at + binding->size))
        binding = binding->next;
    return binding != NULL;
}

static CUresult bind_memory(struct multicast *object, size_t at, struct sim_physical *physical,
                            size_t offset, size_t size, unsigned long long flags)
{
    if (!physical || !size || (at | offset | size) % SIM_PAGE || flags ||
        offset > physical->size || size > physical->size - offset || at > object->prop.size ||
        size > object->prop.size - at || !(object->devices >> physical->device & 1) ||
        is_bound(object, physical->device, at, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *binding = malloc(sizeof *binding), **place;
    if (!binding)
        return CUDA_ERROR_OUT_OF_MEMORY;
    place = place_of(object, physical->device, at);
    *binding = (struct binding){*place, physical, at, size, offset};
    *place = binding;
    physical->maps++;
    return CUDA_SUCCESS;
}

static CUresult bind_handle(CUmemGenericAllocationHandle handle, size_t at,
                            CUmemGenericAllocationHandle memory, size_t offset, size_t size,
                            unsigned long long flags)
{
    struct sim_physical *physical = (struct sim_physical *)(uintptr_t)memory;
    struct multicast *object = multicast_of(handle);

    if (!object || !is_complete(object))
        return CUDA_ERROR_INVALID_VALUE;
    return bind_memory(object, at, sim_handle_is(physical, SIM_KIND_PHYSICAL) ? physical : NULL,
                       offset, size, flags);
}

/* Memory of cuMemCreate, and of pools. */
static CUresult bind_address(CUmemGenericAllocationHandle handle, size_t at,
                             CUdeviceptr address, size_t size, unsigned long long flags)
{
    struct multicast *object = multicast_of(handle);

    if (!object || !is_complete(object))
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);
    const struct sim_allocation *allocation = sim_allocation_find(address);
    if (!mapping || size > mapping->range.start + mapping->range.size - address ||
        (!sim_ranges_find(&sim_reservations, address) && (!allocation || !allocation->pool)))
        return CUDA_ERROR_INVALID_VALUE;
    return bind_memory(object, at, mapping->physical,
                       mapping->offset + (address - mapping->range.start), size, flags);
}

/* The second forms name the memory's device. */
static bool is_memory_of(CUmemGenericAllocationHandle memory, CUdevice device)
{
    const struct sim_physical *physical = (struct sim_physical *)(uintptr_t)memory;

    return sim_handle_is(physical, SIM_KIND_PHYSICAL) && physical->device == (unsigned)device;
}

static bool is_mapped_from(CUdeviceptr address, CUdevice device)
{
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);

    return mapping && mapping->physical->device == (unsigned)device;
}

static CUresult unbind_memory(CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
                              size_t size)
{
    struct multicast *object = multicast_of(handle);

    if (!object || device < 0 || (unsigned)device >= sim.device_count)
        return object ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    struct binding **place = place_of(object, (unsigned)device, at);
    if (!*place || (*place)->physical->device != (unsigned)device || (*place)->at != at ||
        (*place)->size != size)
        return CUDA_ERROR_INVALID_VALUE;
    unbind_one(place);
    return CUDA_SUCCESS;
}

CUresult sim_multicast_map(CUdeviceptr start, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle)
{
    struct multicast *object = multicast_of(handle);
    CUresult result = CUDA_SUCCESS;
    size_t done = 0;

    if (!object || !is_complete(object))
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct binding *binding = object->bindings; done < size && binding && !result;
         binding = binding->next) {
        const size_t from = offset + done - binding->at,
                     left = binding->at + binding->size - offset - done,
                     piece = left < size - done ? left : size - done;
        if (binding->at > offset + done || binding->at + binding->size <= offset + done)
            continue;
        result = sim_map(start + done, piece, binding->physical, binding->offset + from, NULL);
        done += piece;
    }
    if (!result && done == size)
        return CUDA_SUCCESS;
    while (sim_ranges_overlap(&sim_mappings, start, size))
        sim_unmap(
            (struct sim_mapping *)sim_mappings.item[sim_ranges_after(&sim_mappings, start)]);
    return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult read_granularity(size_t *out, const CUmulticastObjectProp *prop)
{
    const CUresult result = out ? prop_check(prop) : CUDA_ERROR_INVALID_VALUE;

    if (!result)
        *out = SIM_PAGE;
    return result;
}

SIM_API(cuMulticastCreate,
        (CUmemGenericAllocationHandle * out, const CUmulticastObjectProp *prop), SIM_INIT,
        create_object(out, prop))
SIM_API(cuMulticastAddDevice, (CUmemGenericAllocationHandle handle, CUdevice device), SIM_INIT,
        add_device(handle, device))
SIM_API(cuMulticastBindMem,
        (CUmemGenericAllocationHandle handle, size_t at, CUmemGenericAllocationHandle memory,
         size_t offset, size_t size, unsigned long long flags),
        SIM_INIT, bind_handle(handle, at, memory, offset, size, flags))
SIM_API(cuMulticastBindAddr,
        (CUmemGenericAllocationHandle handle, size_t at, CUdeviceptr address, size_t size,
         unsigned long long flags),
        SIM_INIT, bind_address(handle, at, address, size, flags))
SIM_API(cuMulticastBindMem_v2,
        (CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
         CUmemGenericAllocationHandle memory, size_t offset, size_t size,
         unsigned long long flags),
        SIM_INIT,
        is_memory_of(memory, device) ? bind_handle(handle, at, memory, offset, size, flags)
                                     : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuMulticastBindAddr_v2,
        (CUmemGenericAllocationHandle handle, CUdevice device, size_t at, CUdeviceptr address,
         size_t size, unsigned long long flags),
        SIM_INIT,
        is_mapped_from(address, device) ? bind_address(handle, at, address, size, flags)
                                        : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuMulticastUnbind,
        (CUmemGenericAllocationHandle handle, CUdevice device, size_t at, size_t size),
        SIM_INIT, unbind_memory(handle, device, at, size))
SIM_API(cuMulticastGetGranularity,
        (size_t * out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option),
        SIM_INIT, (unsigned)option > 1 ? CUDA_ERROR_INVALID_VALUE : read_granularity(out, prop))
