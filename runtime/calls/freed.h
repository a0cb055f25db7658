/* SPDX-License-Identifier: Apache-2.0
 *
 * freed.h: checks whether the arguments of a call name memory that the program has freed, or that
 * lies beside its own. The driver refuses such copies and sets; memory of ours may be there, for
 * the next allocation, or at the edge of an allocation. Used by the wrappers that are made from
 * the table (calls.c), by the types of the arguments. Any thread, outside the gate.
 *
 * An extent that does not fit into 64 bits is left to the driver to refuse: it counts as 0 here.
 */
#pragma once

#include "runtime/memory/memory.h"

static inline bool gs_freed_address(CUdeviceptr address, uint64_t bytes)
{
    return address != 0 && gs_memory_is_refused(address, bytes);
}

/* from the first byte of the first row to the last one of the last row */
static inline uint64_t gs_freed_extent(uint64_t pitch, uint64_t width, uint64_t rows)
{
    uint64_t bytes;

    return rows == 0 || __builtin_mul_overflow(pitch, rows - 1, &bytes) ||
                   __builtin_add_overflow(bytes, width, &bytes)
               ? 0
               : bytes;
}

/* The bytes that a set with these arguments writes: value, count; or pitch, value, width, rows. */
static inline uint64_t gs_freed_set_bytes(unsigned first_bytes, unsigned second_bytes,
                                          uint64_t pitch, uint64_t third, uint64_t fourth,
                                          uint64_t count)
{
    if (first_bytes != 0)
        return count > UINT64_MAX / first_bytes ? 0 : count * first_bytes;
    return second_bytes == 0 || third > UINT64_MAX / second_bytes
               ? 0
               : gs_freed_extent(pitch, third * second_bytes, fourth);
}

/* one side of a copy with a shape */
static inline bool gs_freed_side(CUmemorytype type, CUdeviceptr address, uint64_t offset,
                                 uint64_t bytes)
{
    return type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_ARRAY && address != 0 &&
           (gs_memory_is_refused(address, 0) || gs_memory_is_refused(address + offset, bytes));
}

/* Rows that go beyond the pitch, which the driver (580) lets pass in mapped memory and in pools
 * only, and types of memory that there are not, which it lets pass for mapped memory only. */
static inline bool gs_freed_rows(CUmemorytype type, CUdeviceptr address, uint64_t pitch,
                                 uint64_t end)
{
    const bool unknown = type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED;
    struct gs_allocation allocation;

    return (unknown || (pitch != 0 && end > pitch &&
                        (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED))) &&
           gs_memory_find(address, &allocation) == GS_MEMORY_LIVE && !allocation.own &&
           (unknown || allocation.pool == NULL);
}

/* a pitch or height of 0 stands for what is copied and what is before it */
static inline uint64_t gs_freed_step(uint64_t step, uint64_t before, uint64_t copied)
{
    return step != 0 ? step : before + copied;
}

#define GS_FREED_PITCH(copy, side)                                                             \
    gs_freed_step((copy)->side##Pitch, (copy)->side##XInBytes, (copy)->WidthInBytes)
#define GS_FREED_HEIGHT(copy, side)                                                            \
    gs_freed_step((copy)->side##Height, (copy)->side##Y, (copy)->Height)
#define GS_FREED_ROWS(copy, side)                                                              \
    gs_freed_rows((copy)->side##MemoryType, (copy)->side##Device, (copy)->side##Pitch,         \
                  (copy)->side##XInBytes + (copy)->WidthInBytes)
#define GS_FREED_SIDE_2D(copy, side)                                                           \
    GS_FREED_ROWS(copy, side) ||                                                               \
        gs_freed_side(                                                                         \
            (copy)->side##MemoryType, (copy)->side##Device,                                    \
            (copy)->side##Y *GS_FREED_PITCH(copy, side) + (copy)->side##XInBytes,              \
            gs_freed_extent(GS_FREED_PITCH(copy, side), (copy)->WidthInBytes, (copy)->Height))
#define GS_FREED_SIDE_3D(copy, side)                                                           \
    GS_FREED_ROWS(copy, side) ||                                                               \
        gs_freed_side((copy)->side##MemoryType, (copy)->side##Device,                          \
                      ((copy)->side##Z * GS_FREED_HEIGHT(copy, side) + (copy)->side##Y) *      \
                              GS_FREED_PITCH(copy, side) +                                     \
                          (copy)->side##XInBytes,                                              \
                      gs_freed_extent(GS_FREED_PITCH(copy, side), (copy)->WidthInBytes,        \
                                      gs_freed_extent(GS_FREED_HEIGHT(copy, side),             \
                                                      (copy)->Height, (copy)->Depth)))

static inline bool gs_freed_2d(const CUDA_MEMCPY2D_v2 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 && copy->Height != 0 &&
           (GS_FREED_SIDE_2D(copy, src) || GS_FREED_SIDE_2D(copy, dst));
}

static inline bool gs_freed_3d(const CUDA_MEMCPY3D_v2 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 && copy->Height != 0 && copy->Depth != 0 &&
           (GS_FREED_SIDE_3D(copy, src) || GS_FREED_SIDE_3D(copy, dst));
}

static inline bool gs_freed_3d_peer(const CUDA_MEMCPY3D_PEER_v1 *copy)
{
    return copy != NULL && copy->WidthInBytes != 0 && copy->Height != 0 && copy->Depth != 0 &&
           (GS_FREED_SIDE_3D(copy, src) || GS_FREED_SIDE_3D(copy, dst));
}

static inline bool gs_freed_set(const CUDA_MEMSET_NODE_PARAMS_v1 *set)
{
    return set != NULL &&
           gs_freed_address(set->dst, gs_freed_set_bytes(0, set->elementSize, set->pitch,
                                                         set->width, set->height, 0));
}

static inline bool gs_freed_node(const CUgraphNodeParams *node)
{
    if (node == NULL)
        return false;
    return node->type == CU_GRAPH_NODE_TYPE_MEMSET
               ? gs_freed_address(node->memset.dst,
                                  gs_freed_set_bytes(0, node->memset.elementSize,
                                                     node->memset.pitch, node->memset.width,
                                                     node->memset.height, 0))
               : node->type == CU_GRAPH_NODE_TYPE_MEMCPY &&
                     gs_freed_3d(&node->memcpy.copyParams);
}

/* cuMemcpyBatchAsync: count sources and destinations */
static inline bool gs_freed_batch(const CUdeviceptr *to, const CUdeviceptr *from,
                                  const size_t *bytes, size_t count)
{
    bool freed = false;

    for (size_t i = 0; to != NULL && from != NULL && bytes != NULL && i < count && !freed; i++)
        freed = gs_freed_address(to[i], bytes[i]) || gs_freed_address(from[i], bytes[i]);
    return freed;
}

static inline bool gs_freed_operand(const CUmemcpy3DOperand_v1 *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
           gs_freed_address(operand->op.ptr.ptr, 1);
}

/* cuMemcpy3DBatchAsync, cuMemcpy3DWithAttributesAsync */
static inline bool gs_freed_batch_3d(const CUDA_MEMCPY3D_BATCH_OP_v1 *list, size_t count)
{
    bool freed = false;

    for (size_t i = 0; list != NULL && i < count && !freed; i++)
        freed = gs_freed_operand(&list[i].src) || gs_freed_operand(&list[i].dst);
    return freed;
}

static inline bool gs_freed_fabric_operand(const CUfabricCpyOperand *operand, uint64_t bytes)
{
    return operand->type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER &&
           gs_freed_address(operand->op.ptr.ptr, bytes);
}

/* cuFabricCpyBatchAsync */
static inline bool gs_freed_fabric(const CUDA_FABRIC_COPY_BATCH_OP_v1 *list, size_t count)
{
    bool freed = false;

    for (size_t i = 0; list != NULL && i < count && !freed; i++)
        freed = gs_freed_fabric_operand(&list[i].src, list[i].size) ||
                gs_freed_fabric_operand(&list[i].dst, list[i].size);
    return freed;
}
