/* SPDX-License-Identifier: Apache-2.0
 *
 * freed.h: do the arguments of a call name memory that the program has freed? The driver
 * refuses such copies and sets; memory of ours may still be there, for the next allocation.
 * Used by the wrappers that the table writes (calls.c), by the types of the arguments. Any
 * thread, outside the gate.
 */
#ifndef GS_RUNTIME_CALLS_FREED_H
#define GS_RUNTIME_CALLS_FREED_H

#include <stdbool.h>
#include <stddef.h>

#include <cudaTypedefs.h>

#include "runtime/memory/memory.h"

static inline bool gs_freed_address(CUdeviceptr address)
{
    return address != 0 && gs_memory_was_freed(address);
}

/* one side of a copy with a shape */
static inline bool gs_freed_side(CUmemorytype type, CUdeviceptr address)
{
    return (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) &&
           gs_freed_address(address);
}

static inline bool gs_freed_2d(const CUDA_MEMCPY2D_v2 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 &&
           (gs_freed_side(copy->srcMemoryType, copy->srcDevice) ||
            gs_freed_side(copy->dstMemoryType, copy->dstDevice));
}

static inline bool gs_freed_3d(const CUDA_MEMCPY3D_v2 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 &&
           (gs_freed_side(copy->srcMemoryType, copy->srcDevice) ||
            gs_freed_side(copy->dstMemoryType, copy->dstDevice));
}

static inline bool gs_freed_3d_peer(const CUDA_MEMCPY3D_PEER_v1 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 &&
           (gs_freed_side(copy->srcMemoryType, copy->srcDevice) ||
            gs_freed_side(copy->dstMemoryType, copy->dstDevice));
}

static inline bool gs_freed_set(const CUDA_MEMSET_NODE_PARAMS_v1 *set)
{
    return set != NULL && gs_freed_address(set->dst);
}

/* cuMemcpyBatchAsync: count sources and destinations */
static inline bool gs_freed_batch(const CUdeviceptr *to, const CUdeviceptr *from, size_t count)
{
    bool freed = false;

    for (size_t i = 0; to != NULL && from != NULL && i < count && !freed; i++)
        freed = gs_freed_address(to[i]) || gs_freed_address(from[i]);
    return freed;
}

static inline bool gs_freed_operand(const CUmemcpy3DOperand_v1 *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
           gs_freed_address(operand->op.ptr.ptr);
}

/* cuMemcpy3DBatchAsync */
static inline bool gs_freed_batch_3d(const CUDA_MEMCPY3D_BATCH_OP_v1 *list, size_t count)
{
    bool freed = false;

    for (size_t i = 0; list != NULL && i < count && !freed; i++)
        freed = gs_freed_operand(&list[i].src) || gs_freed_operand(&list[i].dst);
    return freed;
}

#endif
