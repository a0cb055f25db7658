/* SPDX-License-Identifier: Apache-2.0
 *
 * host_memory.c: page-locked host memory: allocated here, or the program's own and registered.
 * Threads: any, under sim.lock.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/simcuda/sim.h"

#define CHUNK ((size_t)2 << 20)

/* A real driver (580) cuts smaller pieces of page-locked memory from one chunk, which has the flags
 * with which it was made. */
static unsigned flags_of_chunk(const struct sim_context *context, size_t size, unsigned flags)
{
    for (size_t i = 0; size < CHUNK && i < sim_allocations.count; i++) {
        const struct sim_allocation *other = (struct sim_allocation *)sim_allocations.item[i];

        if (other->kind == SIM_HOST && other->range.size < CHUNK &&
            other->context_id == context->id &&
            !((other->flags ^ flags) & CU_MEMHOSTALLOC_WRITECOMBINED))
            return other->flags;
    }
    return flags;
}

static CUresult host_alloc(struct sim_context *context, void **out, size_t size, unsigned flags)
{
    CUdeviceptr address = 0;

    if (!out || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    flags = flags_of_chunk(context, size, flags);
    const CUresult result = sim_memory_alloc(context, &address, size, SIM_HOST, flags);
    if (!result)
        *out = (void *)address;
    return result;
}

static CUresult host_free(struct sim_context *context, void *pointer)
{
    struct sim_allocation *allocation =
        pointer ? sim_allocation_find((CUdeviceptr)pointer) : NULL;

    if (!pointer)
        return CUDA_SUCCESS;
    if (!allocation || allocation->kind != SIM_HOST ||
        allocation->range.start != (CUdeviceptr)pointer)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_context_drain(context);
    sim_free(allocation);
    return result;
}

static CUresult host_register(struct sim_context *context, void *pointer, size_t size,
                              unsigned flags)
{
    struct sim_allocation *allocation = NULL;
    const CUdeviceptr start = (CUdeviceptr)pointer;

    if (!pointer || !size || start + size < start || (flags & ~15u) || sim_in_arena(start))
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_ranges_overlap(&sim_allocations, start, size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (msync((void *)(start / page * page), start % page + size,
              MS_ASYNC)) /* is it all there? */
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = sim_alloc(context, size, SIM_REGISTERED, &allocation);
    if (result)
        return result;
    allocation->range.start = start;
    allocation->flags = flags;
    if (sim_ranges_insert(&sim_allocations, &allocation->range)) {
        free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult host_unregister(struct sim_context *context, void *pointer)
{
    struct sim_allocation *allocation = sim_allocation_find((CUdeviceptr)pointer);

    if (!pointer)
        return CUDA_ERROR_INVALID_VALUE;
    if (!allocation || allocation->kind != SIM_REGISTERED ||
        allocation->range.start != (CUdeviceptr)pointer)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    const CUresult result = sim_context_drain(context);
    sim_free(allocation);
    return result;
}

static const struct sim_allocation *host_find(const void *pointer)
{
    const struct sim_allocation *allocation = sim_allocation_find((CUdeviceptr)pointer);

    return allocation && (allocation->kind == SIM_HOST || allocation->kind == SIM_REGISTERED)
               ? allocation
               : NULL;
}

static CUresult host_device_pointer(CUdeviceptr *address, const void *pointer, unsigned flags)
{
    if (!address || flags || !host_find(pointer))
        return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)pointer;
    return CUDA_SUCCESS;
}

static CUresult host_flags(unsigned *flags, const void *pointer)
{
    const struct sim_allocation *allocation = host_find(pointer);

    if (!flags || !allocation || allocation->kind != SIM_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = allocation->flags;
    return CUDA_SUCCESS;
}

SIM_API(cuMemAllocHost_v2, (void **out, size_t size), SIM_CTX | SIM_UNSAFE,
        host_alloc(call.context, out, size, 0))
SIM_API(cuMemHostAlloc, (void **out, size_t size, unsigned int flags), SIM_CTX | SIM_UNSAFE,
        host_alloc(call.context, out, size, flags))
SIM_API(cuMemFreeHost, (void *pointer), SIM_CTX | SIM_UNSAFE, host_free(call.context, pointer))
SIM_API(cuMemHostRegister, (void *pointer, size_t size, unsigned int flags),
        SIM_CTX | SIM_UNSAFE, host_register(call.context, pointer, size, flags))
SIM_API(cuMemHostRegister_v2, (void *pointer, size_t size, unsigned int flags),
        SIM_CTX | SIM_UNSAFE, host_register(call.context, pointer, size, flags))
SIM_API(cuMemHostUnregister, (void *pointer), SIM_CTX | SIM_UNSAFE,
        host_unregister(call.context, pointer))
SIM_API(cuMemHostGetDevicePointer_v2,
        (CUdeviceptr * address, void *pointer, unsigned int flags), SIM_CTX,
        host_device_pointer(address, pointer, flags))
SIM_API(cuMemHostGetFlags, (unsigned int *flags, void *pointer), SIM_CTX,
        host_flags(flags, pointer))
