/* SPDX-License-Identifier: Apache-2.0
 *
 * mappings_newer.c: cases of `mappings` about functions that came after CUDA 13.0. One thread.
 */
#include "tests/runtime/mappings.h"
#include "wrap/newer_types.h"

/* the headers may be older */
#define NEWER(symbol, base, since) extern __typeof__(*(PFN_##base##_v##since)0) symbol

NEWER(cuMulticastBindMem_v2, cuMulticastBindMem, 13010);
NEWER(cuMulticastBindAddr_v2, cuMulticastBindAddr, 13010);
NEWER(cuLaunchHostFunc_v2, cuLaunchHostFunc, 13010);
NEWER(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, 13020);
NEWER(cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, 13020);
NEWER(cuLogicalEndpointIdReserve, cuLogicalEndpointIdReserve, 13030);
NEWER(cuLogicalEndpointCreate, cuLogicalEndpointCreate, 13030);
NEWER(cuLogicalEndpointBindMem, cuLogicalEndpointBindMem, 13030);
NEWER(cuLogicalEndpointBindAddr, cuLogicalEndpointBindAddr, 13030);
NEWER(cuLogicalEndpointUnbind, cuLogicalEndpointUnbind, 13030);
NEWER(cuGraphAddNode_v3, cuGraphAddNode, 13040);
NEWER(cuFabricCpyBatchAsync, cuFabricCpyBatchAsync, 13050);

static void CUDA_CB count_call(void *count)
{
    ++*(unsigned *)count;
}

static CUmemcpy3DOperand operand_at(CUdeviceptr address)
{
    CUmemcpy3DOperand operand = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER};

    operand.op.ptr.ptr = address;
    operand.op.ptr.rowLength = 16;
    operand.op.ptr.layerHeight = 1;
    return operand;
}

static void refuse_freed(CUdeviceptr freed, CUdeviceptr good, CUstream stream)
{
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP box = {.src = operand_at(good),
                                  .dst = operand_at(freed),
                                  .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                  .extent = {16, 1, 1}};
    CUDA_FABRIC_COPY_BATCH_OP_v1 far[2] = {{.size = 16}, {.size = 16}};

    for (unsigned i = 0; i < 2; i++) {
        far[i].src.type = far[i].dst.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
        far[i].src.op.ptr.ptr = good;
        far[i].dst.op.ptr.ptr = i == 0 ? good + 64 : freed;
    }
    GIVES(cuMemcpyWithAttributesAsync(good, freed, 16, &how, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpy3DWithAttributesAsync(&box, 0, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuFabricCpyBatchAsync(2, far, 0, stream), CUDA_ERROR_INVALID_VALUE);
}

/* copies, a host function and a node, of memory that is there and that was freed */
void mappings_case_newer_calls(void)
{
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP box = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                  .extent = {16, 1, 1}};
    CUDA_FABRIC_COPY_BATCH_OP_v1 far = {.size = 16};
    CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CUdeviceptr freed, good;
    unsigned calls = 0;
    CUgraphNode node;
    CUgraph graph;
    CUstream stream;

    begin_context();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&freed, 3 * GRANULE));
    OK(cuMemAlloc(&good, 3 * GRANULE));
    OK(cuMemsetD8Async(good, 1, 64, stream));
    OK(cuMemcpyWithAttributesAsync(good + 64, good, 16, &how, stream));
    box.src = operand_at(good + 64);
    box.dst = operand_at(good + 128);
    OK(cuMemcpy3DWithAttributesAsync(&box, 0, stream));
    far.src.type = far.dst.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    far.src.op.ptr.ptr = good + 128;
    far.dst.op.ptr.ptr = good + 192;
    OK(cuFabricCpyBatchAsync(1, &far, 0, stream));
    OK(cuLaunchHostFunc_v2(stream, count_call, &calls, 1));
    OK(cuStreamSynchronize(stream));
    expect_bytes(good + 192, 16, 1);
    CHECK(calls == 1);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddNode_v3(&node, graph, NULL, NULL, 0, &empty));
    OK(cuMemFree(freed));
    refuse_freed(freed, good, stream);
}

/* the second forms: the device that they name must be the memory's */
void mappings_case_multicast_newer(void)
{
    const CUmulticastObjectProp prop = {.numDevices = 1, .size = 70 * GRANULE};
    const size_t total = 70 * GRANULE;
    handle_type object, memory;
    CUdeviceptr address;

    begin_context();
    OK(cuMulticastCreate(&object, &prop));
    OK(cuMulticastAddDevice(object, 0));
    memory = create_memory(total, false);
    GIVES(cuMulticastBindMem_v2(object, 1, 0, memory, 0, total, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindMem_v2(object, 0, 0, memory, 0, total, 0));
    GIVES(cuMulticastUnbind(object, 0, 0, GRANULE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(object, 0, 0, total));
    address = reserve_addresses(total);
    OK(cuMemMap(address, total, 0, memory, 0));
    OK(cuMulticastBindAddr_v2(object, 0, 0, address, total, 0));
    OK(cuMulticastUnbind(object, 0, 0, total));
    GIVES(cuMulticastBindAddr_v2(object, 1, 0, address, total, 0), CUDA_ERROR_INVALID_VALUE);
}

/* memory of more than a chunk, bound to a logical endpoint, which unbinds all of it at once */
void mappings_case_endpoint(void)
{
    static uint64_t prop[16]; /* older headers do not have its members */
    const size_t total = 70 * GRANULE;
    handle_type memory, other;
    CUlogicalEndpointId id = 0;
    CUdeviceptr address;

    begin_context();
    OK(cuLogicalEndpointIdReserve(&id, 1));
    OK(cuLogicalEndpointCreate(id, (const CUlogicalEndpointProp *)(const void *)prop));
    memory = create_memory(total, false);
    other = create_memory(GRANULE, false);
    OK(cuLogicalEndpointBindMem(id, 0, 0, memory, 0, total, 0));
    GIVES(cuLogicalEndpointBindMem(id, 0, 69 * GRANULE, other, 0, GRANULE, 0),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuLogicalEndpointUnbind(id, 0, 0, total));
    GIVES(cuLogicalEndpointUnbind(id, 0, 0, total), CUDA_ERROR_INVALID_VALUE);
    /* the last piece overlaps: none stays */
    OK(cuLogicalEndpointBindMem(id, 0, 69 * GRANULE, other, 0, GRANULE, 0));
    GIVES(cuLogicalEndpointBindMem(id, 0, 0, memory, 0, total, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuLogicalEndpointUnbind(id, 0, 69 * GRANULE, GRANULE));
    GIVES(cuLogicalEndpointUnbind(id, 0, 0, total), CUDA_ERROR_INVALID_VALUE);
    address = reserve_addresses(total);
    OK(cuMemMap(address, total, 0, memory, 0));
    OK(cuLogicalEndpointBindAddr(id, 0, 0, as_pointer(address + GRANULE), 69 * GRANULE, 0));
    OK(cuLogicalEndpointUnbind(id, 0, 0, 69 * GRANULE));
    GIVES(cuLogicalEndpointBindAddr(id, 0, 0, as_pointer(address + GRANULE), total, 0),
          CUDA_ERROR_INVALID_VALUE);
}
