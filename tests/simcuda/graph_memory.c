/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_memory.c: owns the memory of graphs: what is allocated in stream order while a stream
 * is captured.
 *
 * Its address is fixed when it is captured; there is memory behind it from the first launch on,
 * also between launches, until cuDeviceGraphMemTrim finds it unused or the last graph that has
 * it goes. Invariants: each has a place in the arena and an allocation without memory of its
 * own (so that addresses in it are known to copies and sets), both for its whole life; the
 * nodes that allocate and free it hold references. Threads: any, under sim.lock; nodes run on
 * workers and take it.
 */
#include <stdlib.h>
#include "tests/simcuda/graph.h"

struct graph_memory {
    struct graph_memory *next;
    unsigned refs, device;
    struct sim_range *place;
    struct sim_allocation *allocation;
    struct sim_mapping *mapping; /* NULL: no memory now */
    unsigned launches; /* that allocate it and have not freed it yet, queued ones as well */
};

struct memory_op {
    struct sim_op op;
    struct graph_memory *memory;
};

static struct graph_memory *all;
static uint64_t high[SIM_CARDS_MAX][2]; /* used, reserved */

static uint64_t count_bytes(unsigned device, bool used)
{
    uint64_t sum = 0;

    for (const struct graph_memory *memory = all; memory; memory = memory->next)
        if (memory->device == device &&
            (used ? memory->launches != 0 : memory->mapping != NULL))
            sum += memory->place->size;
    return sum;
}

static void note_high(unsigned device)
{
    for (int used = 0; used < 2; used++) {
        const uint64_t now = count_bytes(device, used);
        if (now > high[device][used])
            high[device][used] = now;
    }
}

static void memory_put(struct graph_memory *memory)
{
    struct graph_memory **link = &all;

    if (--memory->refs > 0)
        return;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    if (memory->mapping)
        sim_unmap(memory->mapping);
    sim_ranges_remove(&sim_allocations, &memory->allocation->range);
    free(memory->allocation);
    sim_place_drop(memory->place);
    free(memory);
}

static void op_release(struct sim_op *op)
{
    memory_put(((struct memory_op *)op)->memory);
}

static CUresult free_run(const struct sim_op *op, struct sim_context *context)
{
    (void)context;
    pthread_mutex_lock(&sim.lock);
    ((const struct memory_op *)op)->memory->launches--;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

/* Consumes a reference of memory. */
static CUresult capture_node(struct sim_stream *stream, struct graph_memory *memory, bool frees)
{
    struct memory_op *op = (struct memory_op *)sim_op_new(
        sizeof *op, frees ? "graph free" : "graph alloc",
        frees ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        frees ? free_run : NULL);

    if (!op) {
        memory_put(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->memory = memory;
    op->op.release = op_release;
    return sim_capture_add(stream, &op->op);
}

static struct sim_allocation *allocation_new(const struct sim_stream *stream, CUdeviceptr start,
                                             size_t size)
{
    struct sim_allocation *allocation = calloc(1, sizeof *allocation);

    if (!allocation)
        return NULL;
    allocation->range = (struct sim_range){start, size};
    allocation->kind = SIM_DEVICE;
    allocation->device = stream->context->device;
    allocation->context_id = stream->context->id;
    allocation->id = sim.next_id++;
    allocation->freeing = true; /* not by cuMemFree: outside of graphs it is not simulated */
    if (!sim_ranges_insert(&sim_allocations, &allocation->range))
        return allocation;
    free(allocation);
    return NULL;
}

CUresult sim_graph_memory_alloc(struct sim_stream *stream, size_t size, CUdeviceptr *out)
{
    const size_t whole = (size + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    struct graph_memory *memory = calloc(1, sizeof *memory);

    if (memory && whole >= size)
        memory->place = sim_place_take(whole, SIM_PAGE, 0);
    if (memory && memory->place)
        memory->allocation = allocation_new(stream, memory->place->start, size);
    if (!memory || !memory->allocation) {
        if (memory && memory->place)
            sim_place_drop(memory->place);
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->device = stream->context->device;
    memory->refs = 1;
    memory->next = all;
    all = memory;
    *out = memory->place->start;
    return capture_node(stream, memory, false);
}

CUresult sim_graph_memory_free(struct sim_stream *stream, CUdeviceptr address)
{
    struct graph_memory *memory = all;

    while (memory && memory->place->start != address)
        memory = memory->next;
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    memory->refs++;
    return capture_node(stream, memory, true);
}

static struct graph_memory *allocated_by(const struct sim_op *op)
{
    return op->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? ((const struct memory_op *)op)->memory
                                                    : NULL;
}

static CUresult back_memory(struct graph_memory *memory)
{
    struct sim_physical *physical = NULL;
    CUresult result = sim_physical_new(memory->device, memory->place->size, false, &physical);

    if (result)
        return result;
    result = sim_map(memory->place->start, memory->place->size, physical, 0, &memory->mapping);
    physical->handles = 0; /* the mapping alone keeps it */
    if (result) {
        sim_physical_put(physical);
        return result;
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the mapping holds physical
    return sim_protect(memory->mapping, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CUresult sim_graph_memory_ready(struct sim_op *const *op, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    size_t done = 0;

    for (; done < count && !result; done++) {
        struct graph_memory *memory = allocated_by(op[done]);
        if (!memory)
            continue;
        result = memory->mapping ? CUDA_SUCCESS : back_memory(memory);
        if (result)
            break;
        memory->launches++;
        note_high(memory->device);
    }
    while (result && done-- > 0)
        if (allocated_by(op[done]))
            allocated_by(op[done])->launches--;
    return result;
}

static CUresult trim_device(CUdevice device)
{
    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    for (struct graph_memory *memory = all; memory; memory = memory->next)
        if (memory->device == (unsigned)device && memory->mapping && memory->launches == 0) {
            sim_unmap(memory->mapping);
            memory->mapping = NULL;
        }
    return CUDA_SUCCESS;
}

static CUresult handle_attribute(CUdevice device, CUgraphMem_attribute which, void *value,
                                 bool set)
{
    const bool used =
        which == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT || which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    const bool is_high = which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                         which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;

    if (device < 0 || (unsigned)device >= sim.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || (unsigned)which > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH || (set && !is_high))
        return CUDA_ERROR_INVALID_VALUE;
    if (set && *(const uint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (set)
        high[device][used] = count_bytes((unsigned)device, used);
    else
        *(uint64_t *)value = is_high ? high[device][used] : count_bytes((unsigned)device, used);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGraphMemTrim, (CUdevice device), SIM_INIT, trim_device(device))
SIM_API(cuDeviceGetGraphMemAttribute,
        (CUdevice device, CUgraphMem_attribute which, void *value), SIM_INIT,
        handle_attribute(device, which, value, false))
SIM_API(cuDeviceSetGraphMemAttribute,
        (CUdevice device, CUgraphMem_attribute which, void *value), SIM_INIT,
        handle_attribute(device, which, value, true))
