/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_params.c: the runtime's description of a copy, put into the driver's words.
 *
 * Stateless; any thread. Widths and x offsets are elements for arrays and bytes for memory in
 * the runtime; bytes in the driver (CUDA Runtime API, cudaMemcpy3D).
 */
#include "simcudart.h"

cudaError_t simcudart_memory_types(enum cudaMemcpyKind kind, CUmemorytype *dst,
                                   CUmemorytype *src)
{
    *dst = CU_MEMORYTYPE_UNIFIED;
    *src = CU_MEMORYTYPE_UNIFIED;
    switch (kind) {
    case cudaMemcpyHostToHost:
        *dst = CU_MEMORYTYPE_HOST;
        *src = CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyHostToDevice:
        *dst = CU_MEMORYTYPE_DEVICE;
        *src = CU_MEMORYTYPE_HOST;
        return cudaSuccess;
    case cudaMemcpyDeviceToHost:
        *dst = CU_MEMORYTYPE_HOST;
        *src = CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDeviceToDevice:
        *dst = CU_MEMORYTYPE_DEVICE;
        *src = CU_MEMORYTYPE_DEVICE;
        return cudaSuccess;
    case cudaMemcpyDefault:
        return cudaSuccess;
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

cudaError_t simcudart_element_size(CUarray array, size_t *size)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    cudaError_t error = simcudart_result(DRIVER(cuArray3DGetDescriptor_v2)(&descriptor, array));

    if (error)
        return error;
    switch (descriptor.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        *size = descriptor.NumChannels;
        return cudaSuccess;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        *size = (size_t)descriptor.NumChannels * 2;
        return cudaSuccess;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        *size = (size_t)descriptor.NumChannels * 4;
        return cudaSuccess;
    default:
        return cudaErrorNotSupported;
    }
}

/* Bytes per unit of x: 1 for memory, the element's size for an array. */
static cudaError_t unit_of(const struct cudaArray *array, size_t *unit)
{
    *unit = 1;
    return array ? simcudart_element_size(simcudart_array(array), unit) : cudaSuccess;
}

cudaError_t simcudart_copy_3d(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *copy)
{
    CUmemorytype dst;
    CUmemorytype src;
    size_t dst_unit;
    size_t src_unit;
    cudaError_t error =
        params ? simcudart_memory_types(params->kind, &dst, &src) : cudaErrorInvalidValue;

    error = error ?: unit_of(params->dstArray, &dst_unit);
    error = error ?: unit_of(params->srcArray, &src_unit);
    if (error)
        return error;
    if (!params->srcArray == !params->srcPtr.ptr || !params->dstArray == !params->dstPtr.ptr)
        return cudaErrorInvalidValue; /* one of the two, not both, not none */
    *copy = (CUDA_MEMCPY3D){
        .srcXInBytes = params->srcPos.x * src_unit,
        .srcY = params->srcPos.y,
        .srcZ = params->srcPos.z,
        .srcMemoryType = params->srcArray ? CU_MEMORYTYPE_ARRAY : src,
        .srcArray = (CUarray)params->srcArray,
        .srcHost = params->srcPtr.ptr,
        .srcDevice = simcudart_address(params->srcPtr.ptr),
        .srcPitch = params->srcPtr.pitch,
        .srcHeight = params->srcPtr.ysize,
        .dstXInBytes = params->dstPos.x * dst_unit,
        .dstY = params->dstPos.y,
        .dstZ = params->dstPos.z,
        .dstMemoryType = params->dstArray ? CU_MEMORYTYPE_ARRAY : dst,
        .dstArray = (CUarray)params->dstArray,
        .dstHost = params->dstPtr.ptr,
        .dstDevice = simcudart_address(params->dstPtr.ptr),
        .dstPitch = params->dstPtr.pitch,
        .dstHeight = params->dstPtr.ysize,
        .WidthInBytes = params->extent.width * (params->srcArray ? src_unit : dst_unit),
        .Height = params->extent.height,
        .Depth = params->extent.depth,
    };
    return cudaSuccess;
}

cudaError_t simcudart_copy_3d_peer(const struct cudaMemcpy3DPeerParms *params,
                                   CUDA_MEMCPY3D_PEER *copy)
{
    CUcontext dst;
    CUcontext src;
    cudaError_t error = params ? cudaSuccess : cudaErrorInvalidValue;

    error = error ?: simcudart_primary_context(params->dstDevice, &dst);
    error = error ?: simcudart_primary_context(params->srcDevice, &src);
    if (error)
        return error;
    if (params->srcArray || params->dstArray)
        return cudaErrorNotSupported;
    *copy = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = params->srcPos.x,
        .srcY = params->srcPos.y,
        .srcZ = params->srcPos.z,
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = simcudart_address(params->srcPtr.ptr),
        .srcContext = src,
        .srcPitch = params->srcPtr.pitch,
        .srcHeight = params->srcPtr.ysize,
        .dstXInBytes = params->dstPos.x,
        .dstY = params->dstPos.y,
        .dstZ = params->dstPos.z,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = simcudart_address(params->dstPtr.ptr),
        .dstContext = dst,
        .dstPitch = params->dstPtr.pitch,
        .dstHeight = params->dstPtr.ysize,
        .WidthInBytes = params->extent.width,
        .Height = params->extent.height,
        .Depth = params->extent.depth,
    };
    return cudaSuccess;
}
