/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_api.c: owns the cuMemcpy* calls, which all become a box of bytes (copy.c).
 * Invariants: none of its own. Threads: any, under sim.lock.
 */
#include <string.h>
#include "tests/simcuda/graph.h"

enum side { SIDE_ANY, SIDE_HOST, SIDE_DEVICE };

static CUresult copy_box(struct sim_call *call, struct sim_stream *stream,
                         const struct sim_copy *copy, bool sync)
{
    struct sim_op *op = NULL;
    bool must_wait = false;

    CUresult result = stream ? sim_capture_check_submit(stream) : call->result;
    if (!result)
        result = stream->capture && !sync ? sim_copy_node_op(copy, &op)
                                          : sim_copy_op(copy, sync, &op, &must_wait);
    if (result)
        return result;
    if (!op)
        return CUDA_SUCCESS;
    if (sync && stream->capture) {
        sim_capture_invalidate(stream->capture);
        sim_op_put(op);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return must_wait ? sim_submit_wait(call, stream, op) : sim_submit(call, stream, op);
}

static CUresult copy_line(struct sim_call *call, struct sim_stream *stream, CUdeviceptr to,
                          enum side to_side, CUdeviceptr from, enum side from_side, size_t size,
                          bool sync)
{
    const struct sim_copy copy = {.to = to,
                                  .from = from,
                                  .to_pitch = size,
                                  .from_pitch = size,
                                  .to_height = 1,
                                  .from_height = 1,
                                  .width = size,
                                  .height = 1,
                                  .depth = 1};

    /* a real driver (580) looks at captures before the memory */
    const CUresult result = stream ? sim_capture_check_submit(stream) : call->result;
    if (result)
        return result;
    /* page-locked memory has a device address of its own, the same */
    if (size && ((to_side == SIDE_DEVICE && sim_space_of(to) == SIM_SPACE_PAGEABLE) ||
                 (from_side == SIDE_DEVICE && sim_space_of(from) == SIM_SPACE_PAGEABLE)))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_box(call, stream, &copy, sync);
}

static CUresult copy_3d(struct sim_call *call, struct sim_stream *stream,
                        const CUDA_MEMCPY3D *box, bool sync)
{
    struct sim_copy copy;
    /* a real driver (580) looks at captures before the types of memory */
    CUresult result = stream ? sim_capture_check_submit(stream) : call->result;

    result = result ? result : sim_copy_from_3d(box, &copy);
    return result ? result : copy_box(call, stream, &copy, sync);
}

static CUresult copy_2d(struct sim_call *call, struct sim_stream *stream,
                        const CUDA_MEMCPY2D *box, bool sync)
{
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D deep = {.srcXInBytes = box->srcXInBytes,
                                .srcY = box->srcY,
                                .srcMemoryType = box->srcMemoryType,
                                .srcHost = box->srcHost,
                                .srcDevice = box->srcDevice,
                                .srcPitch = box->srcPitch,
                                .srcHeight = box->Height + box->srcY,
                                .dstXInBytes = box->dstXInBytes,
                                .dstY = box->dstY,
                                .dstMemoryType = box->dstMemoryType,
                                .dstHost = box->dstHost,
                                .dstDevice = box->dstDevice,
                                .dstPitch = box->dstPitch,
                                .dstHeight = box->Height + box->dstY,
                                .WidthInBytes = box->WidthInBytes,
                                .Height = box->Height,
                                .Depth = 1};
    return copy_3d(call, stream, &deep, sync);
}

static CUresult copy_3d_peer(struct sim_call *call, struct sim_stream *stream,
                             const CUDA_MEMCPY3D_PEER *box, bool sync)
{
    CUDA_MEMCPY3D plain;

    _Static_assert(sizeof plain == sizeof *box, "the two differ only in the context fields");
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&plain, box, sizeof plain);
    return copy_3d(call, stream, &plain, sync);
}

static CUresult copy_batch(struct sim_call *call, struct sim_stream *stream,
                           const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                           size_t count, size_t *failed)
{
    CUresult result =
        stream && to && from && sizes && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < count && !result; i++) {
        result = copy_line(call, stream, to[i], SIDE_ANY, from[i], SIDE_ANY, sizes[i], false);
        if (result && failed)
            *failed = i;
    }
    return result;
}

static CUresult copy_operands(struct sim_call *call, struct sim_stream *stream,
                              const CUDA_MEMCPY3D_BATCH_OP *op)
{
    const CUmemcpy3DOperand *to = op ? &op->dst : NULL, *from = op ? &op->src : NULL;

    if (!op)
        return CUDA_ERROR_INVALID_VALUE;
    if (to->type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        from->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return CUDA_ERROR_NOT_SUPPORTED;
    const struct sim_copy copy = {.to = to->op.ptr.ptr,
                                  .from = from->op.ptr.ptr,
                                  .to_pitch = to->op.ptr.rowLength,
                                  .from_pitch = from->op.ptr.rowLength,
                                  .to_height = to->op.ptr.layerHeight,
                                  .from_height = from->op.ptr.layerHeight,
                                  .width = op->extent.width,
                                  .height = op->extent.height,
                                  .depth = op->extent.depth};
    return copy_box(call, stream, &copy, false);
}

/* from pointer to pointer only */
static CUresult copy_fabric(struct sim_call *call, struct sim_stream *stream,
                            const CUDA_FABRIC_COPY_BATCH_OP_v1 *list, size_t count,
                            unsigned long long flags)
{
    CUresult result =
        stream && list && count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < count && !result; i++)
        result = list[i].src.type != CU_FABRIC_COPY_OPERAND_TYPE_POINTER ||
                         list[i].dst.type != CU_FABRIC_COPY_OPERAND_TYPE_POINTER
                     ? CUDA_ERROR_NOT_SUPPORTED
                     : copy_line(call, stream, list[i].dst.op.ptr.ptr, SIDE_ANY,
                                 list[i].src.op.ptr.ptr, SIDE_ANY, list[i].size, false);
    return result;
}

#define STREAM  sim_stream(&call, stream, per_thread)
#define DEFAULT sim_stream(&call, NULL, per_thread)

SIM_STREAM_API(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t size), SIM_CTX,
               copy_line(&call, DEFAULT, to, SIDE_ANY, from, SIDE_ANY, size, true))
SIM_STREAM_API(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t size), SIM_CTX,
               copy_line(&call, DEFAULT, to, SIDE_DEVICE, (CUdeviceptr)from, SIDE_HOST, size,
                         true))
SIM_STREAM_API(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t size), SIM_CTX,
               copy_line(&call, DEFAULT, (CUdeviceptr)to, SIDE_HOST, from, SIDE_DEVICE, size,
                         true))
SIM_STREAM_API(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t size), SIM_CTX,
               copy_line(&call, DEFAULT, to, SIDE_DEVICE, from, SIDE_DEVICE, size, true))
SIM_STREAM_API(cuMemcpyPeer, _ptds,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t size),
               SIM_CTX,
               to_context &&from_context
                   ? copy_line(&call, DEFAULT, to, SIDE_DEVICE, from, SIDE_DEVICE, size, true)
                   : CUDA_ERROR_INVALID_CONTEXT)
SIM_STREAM_API(cuMemcpyAsync, _ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), SIM_INIT,
               copy_line(&call, STREAM, to, SIDE_ANY, from, SIDE_ANY, size, false))
SIM_STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz,
               (CUdeviceptr to, const void *from, size_t size, CUstream stream), SIM_INIT,
               copy_line(&call, STREAM, to, SIDE_DEVICE, (CUdeviceptr)from, SIDE_HOST, size,
                         false))
SIM_STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz,
               (void *to, CUdeviceptr from, size_t size, CUstream stream), SIM_INIT,
               copy_line(&call, STREAM, (CUdeviceptr)to, SIDE_HOST, from, SIDE_DEVICE, size,
                         false))
SIM_STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), SIM_INIT,
               copy_line(&call, STREAM, to, SIDE_DEVICE, from, SIDE_DEVICE, size, false))
SIM_STREAM_API(cuMemcpyPeerAsync, _ptsz,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t size, CUstream stream),
               SIM_INIT,
               to_context &&from_context
                   ? copy_line(&call, STREAM, to, SIDE_DEVICE, from, SIDE_DEVICE, size, false)
                   : CUDA_ERROR_INVALID_CONTEXT)
SIM_STREAM_API(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *box), SIM_CTX,
               copy_2d(&call, DEFAULT, box, true))
SIM_STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *box), SIM_CTX,
               copy_2d(&call, DEFAULT, box, true))
SIM_STREAM_API(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *box, CUstream stream), SIM_INIT,
               copy_2d(&call, STREAM, box, false))
SIM_STREAM_API(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *box), SIM_CTX,
               copy_3d(&call, DEFAULT, box, true))
SIM_STREAM_API(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *box, CUstream stream), SIM_INIT,
               copy_3d(&call, STREAM, box, false))
SIM_STREAM_API(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *box), SIM_CTX,
               copy_3d_peer(&call, DEFAULT, box, true))
SIM_STREAM_API(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *box, CUstream stream),
               SIM_INIT, copy_3d_peer(&call, STREAM, box, false))
SIM_STREAM_API(cuMemcpyBatchAsync, _ptsz,
               (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
                CUmemcpyAttributes *attributes, size_t *indexes, size_t attribute_count,
                size_t *failed, CUstream stream),
               SIM_CTX,
               ((void)attributes, (void)indexes, (void)attribute_count,
                copy_batch(&call, STREAM, to, from, sizes, count, failed)))
SIM_STREAM_API(cuMemcpyBatchAsync_v2, _ptsz,
               (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t count,
                CUmemcpyAttributes *attributes, size_t *indexes, size_t attribute_count,
                CUstream stream),
               SIM_CTX,
               ((void)attributes, (void)indexes, (void)attribute_count,
                copy_batch(&call, STREAM, to, from, sizes, count, NULL)))
SIM_STREAM_API(cuMemcpyWithAttributesAsync, _ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t size, CUmemcpyAttributes *attributes,
                CUstream stream),
               SIM_CTX,
               ((void)attributes,
                copy_line(&call, STREAM, to, SIDE_ANY, from, SIDE_ANY, size, false)))
SIM_STREAM_API(cuMemcpy3DWithAttributesAsync, _ptsz,
               (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
               SIM_CTX, flags ? CUDA_ERROR_INVALID_VALUE : copy_operands(&call, STREAM, op))
SIM_STREAM_API(cuFabricCpyBatchAsync, _ptsz,
               (size_t count, CUDA_FABRIC_COPY_BATCH_OP_v1 *list, unsigned long long flags,
                CUstream stream),
               SIM_CTX, copy_fabric(&call, STREAM, list, count, flags))
