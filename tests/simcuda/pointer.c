/* SPDX-License-Identifier: Apache-2.0
 *
 * pointer.c: owns the questions about addresses: cuPointerGetAttribute and what managed memory
 * may be asked. Invariants: none of its own. Threads: any, under sim.lock.
 */
#include <string.h>
#include "tests/simcuda/managed.h"

/* What an address is: an allocation, a mapping in a reservation, or (both NULL) nothing the
 * driver knows. */
struct subject {
    const struct sim_allocation *allocation;
    const struct sim_mapping *mapping;
    CUdeviceptr address;
    bool without_context; /* who asks has none: a real driver (580) then knows of no access */
};

static struct subject look_up(CUdeviceptr address)
{
    struct subject subject = {.allocation = sim_allocation_find(address), .address = address};

    if (!subject.allocation && sim_ranges_find(&sim_reservations, address))
        subject.mapping = (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);
    return subject;
}

static bool on_host(const struct subject *subject)
{
    if (subject->mapping)
        return subject->mapping->physical->host;
    return subject->allocation && (subject->allocation->kind == SIM_HOST ||
                                   subject->allocation->kind == SIM_REGISTERED);
}

static unsigned device_of(const struct subject *subject)
{
    return subject->allocation ? subject->allocation->device
                               : subject->mapping->physical->device;
}

static CUcontext context_of(const struct subject *subject)
{
    struct sim_context *context = sim.contexts;

    while (subject->allocation && context && context->id != subject->allocation->context_id)
        context = context->next;
    /* mapped memory belongs to none, nor does that of a pool */
    return subject->allocation && !subject->allocation->pool ? (CUcontext)context : NULL;
}

static CUresult put_value(void *data, const void *value, size_t size)
{
    memcpy(data, value, size);
    return CUDA_SUCCESS;
}

static CUresult put_bool(void *data, bool value)
{
    const unsigned char byte = value;

    return put_value(data, &byte, sizeof byte);
}

static CUresult put_number(void *data, unsigned value)
{
    return put_value(data, &value, sizeof value);
}

/* Of the whole the address lies in: the allocation, or the reservation. */
static const struct sim_range *range_of(const struct subject *subject)
{
    return subject->allocation ? &subject->allocation->range
                               : sim_ranges_find(&sim_reservations, subject->address);
}

static CUresult attribute_of(void *data, CUpointer_attribute attribute,
                             const struct subject *subject)
{
    const bool host = on_host(subject);
    const CUcontext context = context_of(subject);
    const bool managed = subject->allocation && subject->allocation->kind == SIM_MANAGED;
    const CUmemoryPool pool =
        subject->allocation ? (CUmemoryPool)subject->allocation->pool : NULL;
    const struct sim_range *range = range_of(subject);
    const struct sim_range *mapped = subject->mapping ? &subject->mapping->range : range;
    const uint64_t id =
        subject->allocation ? subject->allocation->id : subject->mapping->range.start;

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return context || pool || subject->mapping
                   ? put_value(data, &context, sizeof(CUcontext))
                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put_number(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (subject->without_context)
            return CUDA_ERROR_INVALID_CONTEXT;
        return put_value(data, &subject->address, sizeof subject->address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host || managed ? put_value(data, &subject->address, sizeof subject->address)
                               : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put_bool(data, false);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put_value(data, &id, sizeof id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put_number(data,
                          managed); /* four bytes, as on a card (tests/gpu/driver_facts.c) */
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put_number(data, device_of(subject));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put_bool(data, subject->allocation && subject->allocation->kind == SIM_DEVICE &&
                                  !pool);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put_bool(data, subject->mapping && subject->mapping->physical->for_network);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return put_bool(data, false);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put_value(data, &range->start, sizeof range->start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put_value(data, &range->size, sizeof range->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put_number(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put_value(data,
                         &(uint64_t){subject->mapping
                                         ? subject->mapping->physical->prop.requestedHandleTypes
                                         : 0},
                         sizeof(uint64_t));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put_number(data, !subject->mapping          ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                : subject->without_context ? 0
                                                           : subject->mapping->access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put_value(data, &pool, sizeof(CUmemoryPool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put_value(data, &mapped->size, sizeof mapped->size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put_value(data, &mapped->start, sizeof mapped->start);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult attribute_get(const struct sim_context *context, void *data,
                              CUpointer_attribute attribute, CUdeviceptr address)
{
    struct subject subject = look_up(address);

    subject.without_context = !context;
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    if (!subject.allocation && !subject.mapping)
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(data, attribute, &subject);
}

/* What an unknown address has: the documented defaults, so that libraries may ask about any
 * pointer. */
static void attribute_default(void *data, CUpointer_attribute attribute)
{
    static const uint64_t nothing = 0;

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put_number(data, (unsigned)-2);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put_number(data, 0);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put_bool(data, false);
        break;
    default:
        put_value(data, &nothing, sizeof nothing);
    }
}

static CUresult attributes_get(const struct sim_context *context, unsigned count,
                               const CUpointer_attribute *attributes, void **data,
                               CUdeviceptr address)
{
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const int known = (int)attributes[i];
        if (!data[i] || known < CU_POINTER_ATTRIBUTE_CONTEXT ||
            known > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
            known == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute_get(context, data[i], attributes[i], address) != CUDA_SUCCESS)
            attribute_default(data[i], attributes[i]);
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_set(const void *value, CUpointer_attribute attribute,
                              CUdeviceptr address)
{
    const struct subject subject = look_up(address);

    if (!value || (!subject.allocation && !subject.mapping))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    return subject.allocation ? CUDA_SUCCESS
                              : CUDA_ERROR_NOT_SUPPORTED; /* an H100, driver 580 */
}

/* -- managed memory -- */

static CUresult managed_check(CUdeviceptr address, size_t size)
{
    const struct sim_allocation *allocation = sim_allocation_find(address);

    if (!size || !allocation || allocation->kind != SIM_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_memory_check(address, size, false);
}

static CUresult prefetch_memory(struct sim_call *call, struct sim_stream *stream,
                                CUdeviceptr address, size_t size, int device)
{
    const CUresult result = managed_check(address, size);

    if (!stream)
        return call->result;
    if (result)
        return result;
    if (device != CU_DEVICE_CPU && (device < 0 || (unsigned)device >= sim.device_count))
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_submit(call, stream, sim_managed_prefetch_op(address, size, device));
}

static CUresult advise_memory(CUdeviceptr address, size_t size, CUmem_advise advice,
                              int location)
{
    const CUresult result = managed_check(address, size);

    if (!result)
        sim_managed_advise(address, size, advice, location);
    return result;
}

static int place_of(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : CU_DEVICE_CPU;
}

/* Devices first, as in the driver's answer, then the host; the rest is filled up. */
static CUresult accessed_by(int *list, size_t count, CUdeviceptr address, size_t size)
{
    const uint32_t devices = sim_managed_accessed(address, size);
    size_t used = 0;

    for (int device = 0; device < 31 && used < count; device++)
        if (devices & (1u << device))
            list[used++] = device;
    if (devices >> 31 && used < count)
        list[used++] = CU_DEVICE_CPU;
    while (used < count)
        list[used++] = CU_DEVICE_INVALID;
    return CUDA_SUCCESS;
}

static CUresult range_attribute(void *data, size_t bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t size)
{
    const CUresult result = managed_check(address, size);
    const bool preferred = attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
                           attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE ||
                           attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID;
    int value;

    if (result)
        return result;
    if (!data || bytes < sizeof value || bytes % sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        return accessed_by(data, bytes / sizeof value, address, size);
    if (bytes != sizeof value || attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
        attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
        return CUDA_ERROR_INVALID_VALUE;
    value = sim_managed_fact(address, size,
                             attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ? SIM_READ_MOSTLY
                             : preferred                                     ? SIM_PREFERRED
                                                                             : SIM_PREFETCHED);
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE ||
        attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE)
        value = value >= 0    ? CU_MEM_LOCATION_TYPE_DEVICE
                : value == -1 ? CU_MEM_LOCATION_TYPE_HOST
                              : CU_MEM_LOCATION_TYPE_INVALID;
    else if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID ||
             attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
        value = value >= 0 ? value : 0;
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

static CUresult range_attributes(void **data, size_t *bytes, CUmem_range_attribute *attributes,
                                 size_t count, CUdeviceptr address, size_t size)
{
    CUresult result = CUDA_SUCCESS;

    if (!data || !bytes || !attributes || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++)
        result = range_attribute(data[i], bytes[i], attributes[i], address, size);
    return result;
}

static CUresult attach_memory(struct sim_call *call, struct sim_stream *stream,
                              CUdeviceptr address, unsigned flags)
{
    const CUresult result = managed_check(address, 1);

    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return call->result;
    return result ? result
                  : sim_submit(call, stream,
                               sim_op_new(sizeof(struct sim_op), "attach",
                                          CU_GRAPH_NODE_TYPE_EMPTY, NULL));
}

#define STREAM sim_stream(&call, stream, per_thread)

SIM_API(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr address),
        SIM_INIT, attribute_get(call.context, data, attribute, address))
SIM_API(cuPointerGetAttributes,
        (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address),
        SIM_INIT, attributes_get(call.context, count, attributes, data, address))
SIM_API(cuPointerSetAttribute,
        (const void *value, CUpointer_attribute attribute, CUdeviceptr address), SIM_CTX,
        attribute_set(value, attribute, address))
SIM_API(cuMemAdvise, (CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device),
        SIM_CTX, advise_memory(address, size, advice, device))
SIM_API(cuMemAdvise_v2,
        (CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location),
        SIM_CTX, advise_memory(address, size, advice, place_of(&location)))
SIM_API(cuMemRangeGetAttribute,
        (void *data, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr address,
         size_t size),
        SIM_CTX, range_attribute(data, bytes, attribute, address, size))
SIM_API(cuMemRangeGetAttributes,
        (void **data, size_t *bytes, CUmem_range_attribute *attributes, size_t count,
         CUdeviceptr address, size_t size),
        SIM_CTX, range_attributes(data, bytes, attributes, count, address, size))
SIM_STREAM_API(cuMemPrefetchAsync, _ptsz,
               (CUdeviceptr address, size_t size, CUdevice device, CUstream stream), SIM_CTX,
               prefetch_memory(&call, STREAM, address, size, device))
SIM_STREAM_API(cuMemPrefetchAsync_v2, _ptsz,
               (CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                CUstream stream),
               SIM_CTX,
               flags ? CUDA_ERROR_INVALID_VALUE
                     : prefetch_memory(&call, STREAM, address, size,
                                       location.type == CU_MEM_LOCATION_TYPE_DEVICE
                                           ? location.id
                                           : CU_DEVICE_CPU))
SIM_STREAM_API(cuStreamAttachMemAsync, _ptsz,
               (CUstream stream, CUdeviceptr address, size_t size, unsigned int flags),
               SIM_CTX | SIM_UNSAFE, ((void)size, attach_memory(&call, STREAM, address, flags)))
