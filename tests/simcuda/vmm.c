/* SPDX-License-Identifier: Apache-2.0
 *
 * vmm.c: owns virtual memory management: reservations of addresses, memory handles, mappings
 * and their access.
 *
 * Rules kept as a card keeps them: sizes, offsets and addresses are multiples of the
 * granularity (2 MiB); a reservation has no neighbours that could be read by mistake; a mapping
 * lies in one reservation and overlaps no other; it cannot be touched before its access is set;
 * it is unmapped whole; a reservation is freed whole and only when empty; memory released while
 * mapped stays until it is unmapped. Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tests/simcuda/sim.h"

bool sim_has_vmm(void)
{
    const char *wanted = getenv("SIMCUDA_VMM");

    return !wanted || strcmp(wanted, "0") != 0;
}

static bool page_multiple(uint64_t bytes)
{
    return bytes % SIM_PAGE == 0;
}

/* A mapped or reserved range may have an address from the application: no wrap-around,
 * multiples of a page. */
static bool range_valid(CUdeviceptr start, size_t size)
{
    return start && size && page_multiple(start) && page_multiple(size) && start + size > start;
}

static CUresult prop_check(const CUmemAllocationProp *prop)
{
    if (!sim_has_vmm())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) /* one node, nothing shared */
        return prop->location.id != 0            ? CUDA_ERROR_INVALID_VALUE
               : prop->requestedHandleTypes != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                 : CUDA_SUCCESS;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return prop->location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                   : CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || (unsigned)prop->location.id >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult read_granularity(size_t *out, const CUmemAllocationProp *prop)
{
    const CUresult result = prop_check(prop);

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = SIM_PAGE;
    return result;
}

static CUresult reserve_range(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
                              unsigned long long flags)
{
    if (!sim_has_vmm())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!out || !size || !page_multiple(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment & (alignment - 1)) /* 0 stands for the granularity */
        return CUDA_ERROR_INVALID_VALUE;
    const size_t gap = alignment > SIM_PAGE ? alignment : SIM_PAGE;
    struct sim_range *place = NULL;
    if (size < SIZE_MAX - 2 * gap)
        place = sim_place_take(size + 2 * gap, gap, hint ? hint - gap : 0);
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_range *reservation = calloc(1, sizeof *reservation);
    if (reservation)
        *reservation = (struct sim_range){place->start + gap, size};
    if (!reservation || sim_ranges_insert(&sim_reservations, reservation)) {
        free(reservation);
        sim_place_drop(place);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = reservation->start;
    return CUDA_SUCCESS;
}

static CUresult reservation_free(CUdeviceptr start, size_t size)
{
    struct sim_range *reservation = sim_ranges_find(&sim_reservations, start);

    if (!reservation || reservation->start != start || reservation->size != size)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_ranges_overlap(&sim_mappings, start, size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_ranges_remove(&sim_reservations, reservation);
    free(reservation);
    sim_place_drop(sim_ranges_find(&sim_places, start));
    return CUDA_SUCCESS;
}

/* The application gets the first handle of new memory. */
static CUresult handle_out(CUmemGenericAllocationHandle *out, struct sim_physical *physical)
{
    if (sim_handle_add(physical, SIM_KIND_PHYSICAL)) {
        physical->handles = 0;
        sim_physical_put(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

static CUresult create_physical(CUmemGenericAllocationHandle *out, size_t size,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct sim_physical *physical = NULL;

    if (!out || !size || !page_multiple(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = prop_check(prop);
    if (result)
        return result;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        result = sim_physical_new_host(size, &physical);
    else
        result = sim_physical_new((unsigned)prop->location.id, size,
                                  prop->requestedHandleTypes != 0, &physical);
    if (result)
        return result;
    physical->prop = *prop;
    if (physical->shared != 0 && prop->allocFlags.gpuDirectRDMACapable != 0 &&
        fchmod(physical->fd, SIM_FOR_NETWORK) != 0)
        physical->prop.allocFlags.gpuDirectRDMACapable = 0;
    physical->for_network = physical->prop.allocFlags.gpuDirectRDMACapable != 0;
    return handle_out(out, physical);
}

static struct sim_physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = (struct sim_physical *)(uintptr_t)handle;

    return sim_handle_is(physical, SIM_KIND_PHYSICAL) ? physical : NULL;
}

static CUresult release_physical(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = physical_of(handle);

    if (!physical)
        return sim_multicast_release(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    physical->handles--;
    sim_physical_put(physical);
    return CUDA_SUCCESS;
}

static CUresult map_physical(CUdeviceptr start, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct sim_physical *physical = physical_of(handle);

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (physical && size && (offset || size != physical->size))
        return CUDA_ERROR_NOT_SUPPORTED; /* as a real driver (580) says */
    if (!range_valid(start, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = start; at < start + size;) { /* reservations side by side will do */
        const struct sim_range *reservation = sim_ranges_find(&sim_reservations, at);
        if (!reservation)
            return CUDA_ERROR_INVALID_VALUE;
        at = reservation->start + reservation->size;
    }
    if (sim_ranges_overlap(&sim_mappings, start, size))
        return CUDA_ERROR_INVALID_VALUE;
    return physical ? sim_map(start, size, physical, offset, NULL)
                    : sim_multicast_map(start, size, offset, handle);
}

/* Index of the first mapping if the range begins and ends with mappings, else -1. */
static long whole_mappings(CUdeviceptr start, size_t size)
{
    const size_t first = sim_ranges_after(&sim_mappings, start);
    CUdeviceptr next = start;

    if (!range_valid(start, size) || !sim_ranges_find(&sim_reservations, start))
        return -1;
    for (size_t i = first; next < start + size; i++) {
        if (i == sim_mappings.count || (i == first && sim_mappings.item[i]->start != next))
            return -1;
        next = sim_mappings.item[i]->start + sim_mappings.item[i]->size;
    }
    return next == start + size ? (long)first : -1;
}

/* A real driver (580) unmaps all that lies there, if anything does; it cuts no mapping. */
static CUresult unmap_range(CUdeviceptr start, size_t size)
{
    const size_t first = sim_ranges_after(&sim_mappings, start);
    const CUdeviceptr end = start + size;

    if (!range_valid(start, size) || !sim_ranges_find(&sim_reservations, start))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = first; i < sim_mappings.count && sim_mappings.item[i]->start < end; i++)
        if (sim_mappings.item[i]->start < start ||
            sim_mappings.item[i]->start + sim_mappings.item[i]->size > end)
            return CUDA_ERROR_INVALID_VALUE;
    while (first < sim_mappings.count && sim_mappings.item[first]->start < end)
        sim_unmap((struct sim_mapping *)sim_mappings.item[first]);
    return CUDA_SUCCESS;
}

/* SIMCUDA_READ_ONLY: a driver that knows no memory for reading only, or that then refuses the same
 * thread any access to the same memory. */
static bool is_refused(CUdeviceptr start, unsigned flags)
{
    static _Thread_local CUdeviceptr refused;
    const char *wanted = getenv("SIMCUDA_READ_ONLY");

    if (!wanted)
        return false;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
        refused = start;
        return true;
    }
    return !strcmp(wanted, "never") && refused == start;
}

static CUresult access_set(CUdeviceptr start, size_t size, const CUmemAccessDesc *descriptions,
                           size_t count)
{
    const long first = whole_mappings(start, size); /* as a real driver (580) */
    CUdeviceptr next = start;
    CUresult result = CUDA_SUCCESS;

    if (!descriptions || !count || first < 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const CUmemAccessDesc *wanted = &descriptions[i];
        if (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        if (wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        if (wanted->location.id < 0 || (unsigned)wanted->location.id >= sim.device_count)
            return CUDA_ERROR_INVALID_VALUE;
        if (is_refused(start, wanted->flags))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = (size_t)first; i < sim_mappings.count && next < start + size && !result;
         i++) {
        struct sim_mapping *mapping = (struct sim_mapping *)sim_mappings.item[i];
        if (mapping->range.start != next)
            break; /* a real driver (580) gives no rights behind a gap */
        next += mapping->range.size;
        for (size_t k = 0; k < count && !result; k++)
            if (mapping->physical->host ||
                (unsigned)descriptions[k].location.id == mapping->physical->device)
                result = sim_protect(mapping, descriptions[k].flags);
            else if (descriptions[k].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                mapping->peers |= 1u << descriptions[k].location.id;
            else
                mapping->peers &= ~(1u << descriptions[k].location.id);
    }
    return result;
}

static CUresult access_get(unsigned long long *flags, const CUmemLocation *location,
                           CUdeviceptr address)
{
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);

    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_HOST && /* asked on an H200 */
        (location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
         (unsigned)location->id >= sim.device_count))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!mapping)
        return CUDA_ERROR_INVALID_VALUE;
    if (mapping->physical->host || location->type == CU_MEM_LOCATION_TYPE_HOST ||
        (unsigned)location->id == mapping->physical->device)
        *flags = mapping->access;
    else
        *flags = (mapping->peers >> location->id & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                           : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

static CUresult retain_physical(CUmemGenericAllocationHandle *out, const void *address)
{
    const struct sim_mapping *mapping =
        (struct sim_mapping *)sim_ranges_find(&sim_mappings, (CUdeviceptr)address);

    if (!out || !mapping || !sim_ranges_find(&sim_reservations, (CUdeviceptr)address))
        return CUDA_ERROR_INVALID_VALUE;
    if (!mapping->physical->handles && sim_handle_add(mapping->physical, SIM_KIND_PHYSICAL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->physical->handles++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)mapping->physical;
    return CUDA_SUCCESS;
}

static CUresult read_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    const struct sim_physical *physical = physical_of(handle);

    if (!prop || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

static CUresult export_handle(void *out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct sim_physical *physical = physical_of(handle);

    /* what was imported cannot be passed on, as a real driver (580) says */
    if (!out || !physical || physical->imported || flags ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(physical->prop.requestedHandleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    const int fd = sim_shared_export(physical->fd);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(out, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *out, const void *os_handle,
                              CUmemAllocationHandleType type)
{
    struct sim_physical *physical = NULL;

    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_physical_import((int)(intptr_t)os_handle, &physical);
    return result ? result : handle_out(out, physical);
}

/* There are no arrays; what can be behind one is known. */
static CUresult map_arrays(const CUarrayMapInfo *mappings, unsigned count)
{
    if (!mappings || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const struct sim_physical *physical = physical_of(mappings[i].memHandle.memHandle);
        if (mappings[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP &&
            (!physical || physical->prop.allocFlags.usage != CU_MEM_CREATE_USAGE_TILE_POOL))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemGetAllocationGranularity,
        (size_t * out, const CUmemAllocationProp *prop,
         CUmemAllocationGranularity_flags option),
        SIM_INIT, (unsigned)option > 1 ? CUDA_ERROR_INVALID_VALUE : read_granularity(out, prop))
SIM_API(cuMemAddressReserve,
        (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr hint,
         unsigned long long flags),
        SIM_INIT, reserve_range(out, size, alignment, hint, flags))
SIM_API(cuMemAddressFree, (CUdeviceptr start, size_t size), SIM_INIT,
        reservation_free(start, size))
SIM_API(cuMemCreate,
        (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop,
         unsigned long long flags),
        SIM_INIT, create_physical(out, size, prop, flags))
SIM_API(cuMemRelease, (CUmemGenericAllocationHandle handle), SIM_INIT, release_physical(handle))
SIM_API(cuMemMap,
        (CUdeviceptr start, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        SIM_INIT, map_physical(start, size, offset, handle, flags))
SIM_API(cuMemUnmap, (CUdeviceptr start, size_t size), SIM_INIT, unmap_range(start, size))
SIM_API(cuMemSetAccess,
        (CUdeviceptr start, size_t size, const CUmemAccessDesc *descriptions, size_t count),
        SIM_INIT, access_set(start, size, descriptions, count))
SIM_API(cuMemGetAccess,
        (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
        SIM_INIT, access_get(flags, location, address))
SIM_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *address),
        SIM_INIT, retain_physical(out, address))
SIM_API(cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), SIM_INIT,
        read_properties(prop, handle))
SIM_API(cuMemExportToShareableHandle,
        (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
         unsigned long long flags),
        SIM_INIT, export_handle(out, handle, type, flags))
SIM_API(cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * out, void *os_handle, CUmemAllocationHandleType type),
        SIM_CTX, import_handle(out, os_handle, type))
SIM_STREAM_API(cuMemMapArrayAsync, _ptsz,
               (CUarrayMapInfo * mappings, unsigned int count, CUstream stream), SIM_CTX,
               ((void)stream, map_arrays(mappings, count)))
