/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc.c: owns allocations: cuMemAlloc and its relatives, managed memory, page-locked host
 * memory; and says what an address is and whether bytes may be touched.
 *
 * Invariants: sim_allocations holds every allocation, disjoint. Below SMALL bytes they share 2
 * MiB slabs, as on a card, where a freed one is poisoned; larger ones have a block of their
 * own, which is unmapped when freed. Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/simcuda/graph.h"
#include "tests/simcuda/managed.h"

#define SMALL      (1024ul * 1024)
#define UNIT       512ul
#define SLAB_UNITS (SIM_PAGE / UNIT)

struct sim_slab {
    struct sim_slab *next;
    struct sim_block *block;
    unsigned device;
    size_t used; /* units */
    bool spare;  /* empty, kept to be used again, and not counted on the card meanwhile */
    uint8_t taken[SLAB_UNITS];
};

static struct sim_slab *slabs;

static struct sim_slab *slab_new(unsigned device, CUresult *result)
{
    struct sim_slab *slab = calloc(1, sizeof *slab);

    if (!slab) {
        *result = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    slab->device = device;
    *result = sim_block_new(device, SIM_PAGE, &slab->block);
    if (*result) {
        free(slab);
        return NULL;
    }
    slab->next = slabs;
    slabs = slab;
    return slab;
}

/* Counts a spare slab on the card again; false if there is no room for it. */
static bool slab_wake(struct sim_slab *slab)
{
    const struct sim_device *device = &sim.device[slab->device];

    if (slab->spare && sim_card_charge(device->card, device->client, SIM_PAGE))
        return false;
    sim_stats.memory_bytes += slab->spare ? SIM_PAGE : 0;
    if (sim_stats.memory_bytes > sim_stats.memory_peak)
        sim_stats.memory_peak = sim_stats.memory_bytes;
    slab->spare = false;
    return true;
}

/* First run of units free in the slab; SLAB_UNITS if there is none. */
static size_t slab_search(const struct sim_slab *slab, size_t units)
{
    size_t run = 0;

    if (SLAB_UNITS - slab->used < units)
        return SLAB_UNITS;
    for (size_t i = 0; i < SLAB_UNITS; i++) {
        run = slab->taken[i] ? 0 : run + 1;
        if (run == units)
            return i + 1 - units;
    }
    return SLAB_UNITS;
}

static CUresult slab_take(unsigned device, size_t size, struct sim_allocation *allocation)
{
    const size_t units = (size + UNIT - 1) / UNIT;
    CUresult result = CUDA_SUCCESS;
    size_t first = SLAB_UNITS;
    struct sim_slab *slab = slabs;

    for (; slab; slab = slab->next) {
        first = slab->device == device ? slab_search(slab, units) : SLAB_UNITS;
        if (first < SLAB_UNITS && slab_wake(slab))
            break;
    }
    if (!slab) {
        slab = slab_new(device, &result);
        first = 0;
    }
    if (!slab)
        return result;
    memset(&slab->taken[first], 1, units);
    slab->used += units;
    allocation->slab = slab;
    allocation->range.start = slab->block->place->start + first * UNIT;
    return CUDA_SUCCESS;
}

static void slab_give(const struct sim_allocation *allocation)
{
    struct sim_slab *slab = allocation->slab;
    struct sim_slab **link = &slabs;
    const size_t units = (allocation->range.size + UNIT - 1) / UNIT;
    const size_t first = (allocation->range.start - slab->block->place->start) / UNIT;

    memset(&slab->taken[first], 0, units);
    slab->used -= units;
    if (sim.poison)
        memset((void *)allocation->range.start, SIM_POISON_FREED, units * UNIT);
    if (slab->used)
        return;
    const struct sim_device *device = &sim.device[slab->device];
    bool kept = false;
    for (const struct sim_slab *other = slabs; other && !kept; other = other->next)
        kept = other->spare && other->device == slab->device;
    sim_card_refund(device->card, device->client, kept ? 0 : SIM_PAGE);
    sim_stats.memory_bytes -= kept ? 0 : SIM_PAGE;
    slab->spare = !kept;
    if (slab->spare)
        return;
    while (*link != slab)
        link = &(*link)->next;
    *link = slab->next;
    sim_block_free(slab->block);
    free(slab);
}

static CUresult host_pages(size_t size, struct sim_allocation *allocation)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->range.start = (CUdeviceptr)map;
    return CUDA_SUCCESS;
}

CUresult sim_alloc(struct sim_context *context, size_t size, enum sim_memory_kind kind,
                   struct sim_allocation **out)
{
    struct sim_allocation *allocation = calloc(1, sizeof *allocation);
    CUresult result = CUDA_SUCCESS;

    if (!allocation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->kind = kind;
    allocation->range.size = size;
    allocation->device = context->device;
    allocation->context_id = context->owner ? context->owner->id : context->id;
    allocation->id = sim.next_id++;
    if (kind == SIM_HOST)
        result = host_pages(size, allocation);
    else if (kind == SIM_DEVICE && size < SMALL)
        result = slab_take(context->device, size, allocation);
    else if (kind == SIM_MANAGED) {
        result = sim_managed_new(context->device, size, &allocation->managed);
        if (!result)
            allocation->range.start = sim_managed_start(allocation->managed);
    } else if (kind != SIM_REGISTERED) {
        result = sim_block_new(context->device, size, &allocation->block);
        if (!result)
            allocation->range.start = allocation->block->place->start;
    }
    if (!result && kind != SIM_REGISTERED &&
        sim_ranges_insert(&sim_allocations, &allocation->range)) {
        sim_free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result)
        free(allocation);
    else
        *out = allocation;
    return result;
}

void sim_free(struct sim_allocation *allocation)
{
    sim_ranges_remove(&sim_allocations, &allocation->range);
    if (allocation->pool)
        sim_pool_forget(allocation);
    if (allocation->ipc_slot)
        sim_ipc_freed(allocation);
    if (allocation->kind == SIM_IPC)
        sim_ipc_closed(allocation);
    if (allocation->slab)
        slab_give(allocation);
    else if (allocation->block)
        sim_block_free(allocation->block);
    else if (allocation->managed)
        sim_managed_free(allocation->managed);
    else if (allocation->kind == SIM_HOST)
        munmap((void *)allocation->range.start, allocation->range.size);
    free(allocation);
}

struct sim_allocation *sim_allocation_find(CUdeviceptr address)
{
    return (struct sim_allocation *)sim_ranges_find(&sim_allocations, address);
}

enum sim_space sim_space_of(CUdeviceptr address)
{
    if (sim_in_arena(address))
        return SIM_SPACE_DEVICE;
    return sim_allocation_find(address) ? SIM_SPACE_PINNED : SIM_SPACE_PAGEABLE;
}

CUresult sim_memory_check(CUdeviceptr address, size_t size, bool write)
{
    const struct sim_allocation *allocation = sim_allocation_find(address);

    if (!size)
        return CUDA_SUCCESS;
    if (!address || address + size < address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_in_arena(address))
        return CUDA_SUCCESS; /* page-locked or pageable */
    if (allocation)
        return size <= allocation->range.start + allocation->range.size - address
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr next = address; next < address + size;) {
        const struct sim_mapping *mapping =
            (struct sim_mapping *)sim_ranges_find(&sim_mappings, next);
        const unsigned needed =
            write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
        if (!mapping || sim_ranges_find(&sim_reservations, next) == NULL ||
            mapping->access < needed)
            return CUDA_ERROR_INVALID_VALUE;
        next = mapping->range.start + mapping->range.size;
    }
    return CUDA_SUCCESS;
}

CUresult sim_memory_alloc(struct sim_context *context, CUdeviceptr *pointer, size_t size,
                          enum sim_memory_kind kind, unsigned flags)
{
    struct sim_allocation *allocation = NULL;

    if (!pointer || !size)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_alloc(context, size, kind, &allocation);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && kind != SIM_HOST) {
        result = sim_context_drain(context); /* frees that are under way may make room */
        result = result ? result : sim_alloc(context, size, kind, &allocation);
    }
    if (result)
        return result;
    allocation->flags = flags;
    *pointer = allocation->range.start;
    return CUDA_SUCCESS;
}

static CUresult memory_pitch(struct sim_context *context, CUdeviceptr *pointer, size_t *pitch,
                             size_t width, size_t height, unsigned element)
{
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    const size_t row = (width + 511) / 512 * 512;
    if (row < width || row > SIZE_MAX / height)
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = row;
    return sim_memory_alloc(context, pointer, row * height, SIM_DEVICE, 0);
}

/* The fault that ended the context of an allocation: it frees nothing any more. A pool's memory has
 * no context. */
static CUresult owner_fault(const struct sim_allocation *allocation)
{
    const struct sim_context *context = sim.contexts;

    while (context && context->id != allocation->context_id)
        context = context->next;
    return context && !allocation->pool ? __atomic_load_n(&context->sticky, __ATOMIC_RELAXED)
                                        : CUDA_SUCCESS;
}

/* It needs no current context. If there is one, that is looked at first. */
static CUresult memory_free(struct sim_context *context, CUdeviceptr pointer)
{
    struct sim_allocation *allocation = pointer ? sim_allocation_find(pointer) : NULL;

    if (context && context->sticky)
        return context->sticky;
    if (sim_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!pointer)
        return CUDA_SUCCESS;
    if (!allocation || allocation->range.start != pointer || allocation->kind == SIM_HOST ||
        allocation->kind == SIM_REGISTERED || allocation->kind == SIM_IPC ||
        allocation->freeing)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult fault = owner_fault(allocation);
    if (fault)
        return fault;
    allocation->freeing = true;
    const CUresult result = /* a free waits for the device, but of a pool's memory */
        context != NULL && !allocation->pool ? sim_context_drain(context) : CUDA_SUCCESS;
    sim_free(allocation);
    return result;
}

static CUresult memory_managed(struct sim_context *context, CUdeviceptr *pointer, size_t size,
                               unsigned flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_memory_alloc(context, pointer, size, SIM_MANAGED, flags);
}

static CUresult memory_info(const struct sim_context *context, size_t *free_bytes,
                            size_t *total)
{
    struct sim_card *card = sim.device[context->device].card;

    if (free_bytes)
        *free_bytes = sim_card_free(card);
    if (total)
        *total = card->properties.memory;
    return free_bytes || total ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult address_range(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    const struct sim_range *range = sim_ranges_find(&sim_allocations, address);
    const bool asked = base || size;

    if (!range && sim_ranges_find(&sim_reservations, address)) {
        const struct sim_mapping *mapping =
            (struct sim_mapping *)sim_ranges_find(&sim_mappings, address);
        range = mapping && mapping->access ? &mapping->range : NULL;
    }
    if (base)
        *base = range ? range->start : 0;
    if (size)
        *size = range ? range->size : 0;
    return range || !asked ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t size), SIM_CTX | SIM_UNSAFE,
        sim_memory_alloc(call.context, pointer, size, SIM_DEVICE, 0))
SIM_API(cuMemAllocPitch_v2,
        (CUdeviceptr * pointer, size_t *pitch, size_t width, size_t height,
         unsigned int element),
        SIM_CTX | SIM_UNSAFE,
        memory_pitch(call.context, pointer, pitch, width, height, element))
SIM_API(cuMemFree_v2, (CUdeviceptr pointer), SIM_INIT, memory_free(call.context, pointer))
SIM_API(cuMemAllocManaged, (CUdeviceptr * pointer, size_t size, unsigned int flags),
        SIM_CTX | SIM_UNSAFE, memory_managed(call.context, pointer, size, flags))
SIM_API(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total), SIM_CTX,
        memory_info(call.context, free_bytes, total))
SIM_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *size, CUdeviceptr address),
        SIM_CTX, address_range(base, size, address))
