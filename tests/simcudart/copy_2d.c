/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_2d.c: two- and three-dimensional copies, also to and from arrays. Compiled twice, see
 * simcudart.h.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"

/* A copy between pieces of memory. */
static cudaError_t plan_copy(CUDA_MEMCPY2D *copy, void *dst, size_t dst_pitch, const void *src,
                             size_t src_pitch, size_t width, size_t height,
                             enum cudaMemcpyKind kind)
{
    *copy = (CUDA_MEMCPY2D){.srcHost = src,
                            .srcDevice = simcudart_address(src),
                            .srcPitch = src_pitch,
                            .dstHost = dst,
                            .dstDevice = simcudart_address(dst),
                            .dstPitch = dst_pitch,
                            .WidthInBytes = width,
                            .Height = height};
    cudaError_t error =
        simcudart_memory_types(kind, &copy->dstMemoryType, &copy->srcMemoryType);

    return error ?: simcudart_enter();
}

static cudaError_t run_now(const CUDA_MEMCPY2D *copy)
{
    if (copy->WidthInBytes == 0 || copy->Height == 0)
        return cudaSuccess;
    return simcudart_result(DRIVER_PTDS(cuMemcpy2DUnaligned_v2)(copy));
}

static cudaError_t run_later(const CUDA_MEMCPY2D *copy, cudaStream_t stream)
{
    if (copy->WidthInBytes == 0 || copy->Height == 0)
        return cudaSuccess;
    return simcudart_result(DRIVER_PTSZ(cuMemcpy2DAsync_v2)(copy, stream));
}

static cudaError_t check_pitches(size_t dst_pitch, size_t src_pitch, size_t width)
{
    return dst_pitch < width || src_pitch < width ? cudaErrorInvalidPitchValue : cudaSuccess;
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy2D)(void *dst, size_t dst_pitch, const void *src,
                                         size_t src_pitch, size_t width, size_t height,
                                         enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = check_pitches(dst_pitch, src_pitch, width);

    error = error ?: plan_copy(&copy, dst, dst_pitch, src, src_pitch, width, height, kind);
    return simcudart_note(error ?: run_now(&copy));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpy2DAsync)(void *dst, size_t dst_pitch, const void *src,
                                              size_t src_pitch, size_t width, size_t height,
                                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = check_pitches(dst_pitch, src_pitch, width);

    error = error ?: plan_copy(&copy, dst, dst_pitch, src, src_pitch, width, height, kind);
    return simcudart_note(error ?: run_later(&copy, stream));
}

/* Offsets into arrays are bytes here (CUDA Runtime API, cudaMemcpy2DToArray). */
static cudaError_t plan_to_array(CUDA_MEMCPY2D *copy, cudaArray_t dst, size_t x, size_t y,
                                 const void *src, size_t src_pitch, size_t width, size_t height,
                                 enum cudaMemcpyKind kind)
{
    cudaError_t error = dst && src_pitch >= width ? cudaSuccess : cudaErrorInvalidValue;

    error = error ?: plan_copy(copy, NULL, 0, src, src_pitch, width, height, kind);
    copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->dstArray = simcudart_array(dst);
    copy->dstXInBytes = x;
    copy->dstY = y;
    return error;
}

static cudaError_t plan_from_array(CUDA_MEMCPY2D *copy, void *dst, size_t dst_pitch,
                                   cudaArray_const_t src, size_t x, size_t y, size_t width,
                                   size_t height, enum cudaMemcpyKind kind)
{
    cudaError_t error = src && dst_pitch >= width ? cudaSuccess : cudaErrorInvalidValue;

    error = error ?: plan_copy(copy, dst, dst_pitch, NULL, 0, width, height, kind);
    copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy->srcArray = simcudart_array(src);
    copy->srcXInBytes = x;
    copy->srcY = y;
    return error;
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy2DToArray)(cudaArray_t dst, size_t x, size_t y,
                                                const void *src, size_t src_pitch, size_t width,
                                                size_t height, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = plan_to_array(&copy, dst, x, y, src, src_pitch, width, height, kind);

    return simcudart_note(error ?: run_now(&copy));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpy2DToArrayAsync)(cudaArray_t dst, size_t x, size_t y,
                                                     const void *src, size_t src_pitch,
                                                     size_t width, size_t height,
                                                     enum cudaMemcpyKind kind,
                                                     cudaStream_t stream)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = plan_to_array(&copy, dst, x, y, src, src_pitch, width, height, kind);

    return simcudart_note(error ?: run_later(&copy, stream));
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy2DFromArray)(void *dst, size_t dst_pitch,
                                                  cudaArray_const_t src, size_t x, size_t y,
                                                  size_t width, size_t height,
                                                  enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = plan_from_array(&copy, dst, dst_pitch, src, x, y, width, height, kind);

    return simcudart_note(error ?: run_now(&copy));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpy2DFromArrayAsync)(void *dst, size_t dst_pitch,
                                                       cudaArray_const_t src, size_t x,
                                                       size_t y, size_t width, size_t height,
                                                       enum cudaMemcpyKind kind,
                                                       cudaStream_t stream)
{
    CUDA_MEMCPY2D copy;
    cudaError_t error = plan_from_array(&copy, dst, dst_pitch, src, x, y, width, height, kind);

    return simcudart_note(error ?: run_later(&copy, stream));
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy3D)(const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_copy_3d(params, &copy);
    return simcudart_note(error ?: simcudart_result(DRIVER_PTDS(cuMemcpy3D_v2)(&copy)));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpy3DAsync)(const struct cudaMemcpy3DParms *params,
                                              cudaStream_t stream)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_copy_3d(params, &copy);
    return simcudart_note(
        error ?: simcudart_result(DRIVER_PTSZ(cuMemcpy3DAsync_v2)(&copy, stream)));
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy3DPeer)(const struct cudaMemcpy3DPeerParms *params)
{
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_copy_3d_peer(params, &copy);
    return simcudart_note(error ?: simcudart_result(DRIVER_PTDS(cuMemcpy3DPeer)(&copy)));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpy3DPeerAsync)(const struct cudaMemcpy3DPeerParms *params,
                                                  cudaStream_t stream)
{
    CUDA_MEMCPY3D_PEER copy;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_copy_3d_peer(params, &copy);
    return simcudart_note(
        error ?: simcudart_result(DRIVER_PTSZ(cuMemcpy3DPeerAsync)(&copy, stream)));
}
