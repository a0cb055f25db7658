/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: copies and fills of linear memory. Compiled twice, see simcudart.h.
 *
 * Stateless; any thread. A copy of no bytes succeeds without the driver, once there is a
 * context.
 */
#include "simcudart.h"

#include <stdbool.h>

/* Whether the copy has to be made: the context is there, and so are bytes. */
static bool is_to_copy(enum cudaMemcpyKind kind, size_t size, cudaError_t *error)
{
    CUmemorytype unused;

    *error = simcudart_memory_types(kind, &unused, &unused);
    *error = *error ?: simcudart_enter();
    return *error == cudaSuccess && size != 0;
}

static cudaError_t copy_now(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind)
{
    CUdeviceptr to = simcudart_address(dst);
    CUdeviceptr from = simcudart_address(src);
    cudaError_t error;

    if (!is_to_copy(kind, size, &error))
        return error;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return simcudart_result(DRIVER_PTDS(cuMemcpyHtoD_v2)(to, src, size));
    case cudaMemcpyDeviceToHost:
        return simcudart_result(DRIVER_PTDS(cuMemcpyDtoH_v2)(dst, from, size));
    case cudaMemcpyDeviceToDevice:
        return simcudart_result(DRIVER_PTDS(cuMemcpyDtoD_v2)(to, from, size));
    default:
        return simcudart_result(DRIVER_PTDS(cuMemcpy)(to, from, size));
    }
}

static cudaError_t copy_later(void *dst, const void *src, size_t size, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    CUdeviceptr to = simcudart_address(dst);
    CUdeviceptr from = simcudart_address(src);
    cudaError_t error;

    if (!is_to_copy(kind, size, &error))
        return error;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return simcudart_result(DRIVER_PTSZ(cuMemcpyHtoDAsync_v2)(to, src, size, stream));
    case cudaMemcpyDeviceToHost:
        return simcudart_result(DRIVER_PTSZ(cuMemcpyDtoHAsync_v2)(dst, from, size, stream));
    case cudaMemcpyDeviceToDevice:
        return simcudart_result(DRIVER_PTSZ(cuMemcpyDtoDAsync_v2)(to, from, size, stream));
    default:
        return simcudart_result(DRIVER_PTSZ(cuMemcpyAsync)(to, from, size, stream));
    }
}

cudaError_t SIMCUDART_PTDS(cudaMemcpy)(void *dst, const void *src, size_t size,
                                       enum cudaMemcpyKind kind)
{
    return simcudart_note(copy_now(dst, src, size, kind));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpyAsync)(void *dst, const void *src, size_t size,
                                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return simcudart_note(copy_later(dst, src, size, kind, stream));
}

/* The part of a symbol that a copy means; cudaErrorInvalidValue when it is not inside. */
static cudaError_t symbol_part(const void *symbol, size_t offset, size_t size, void **pointer)
{
    CUdeviceptr address;
    size_t whole;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_symbol(symbol, &address, &whole);
    if (!error && (offset > whole || size > whole - offset))
        error = cudaErrorInvalidValue;
    if (!error)
        *pointer = simcudart_pointer(address + offset);
    return error;
}

cudaError_t SIMCUDART_PTDS(cudaMemcpyToSymbol)(const void *symbol, const void *src, size_t size,
                                               size_t offset, enum cudaMemcpyKind kind)
{
    void *dst;
    cudaError_t error = symbol_part(symbol, offset, size, &dst);

    return simcudart_note(error ?: copy_now(dst, src, size, kind));
}

cudaError_t SIMCUDART_PTDS(cudaMemcpyFromSymbol)(void *dst, const void *symbol, size_t size,
                                                 size_t offset, enum cudaMemcpyKind kind)
{
    void *src;
    cudaError_t error = symbol_part(symbol, offset, size, &src);

    return simcudart_note(error ?: copy_now(dst, src, size, kind));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpyToSymbolAsync)(const void *symbol, const void *src,
                                                    size_t size, size_t offset,
                                                    enum cudaMemcpyKind kind,
                                                    cudaStream_t stream)
{
    void *dst;
    cudaError_t error = symbol_part(symbol, offset, size, &dst);

    return simcudart_note(error ?: copy_later(dst, src, size, kind, stream));
}

cudaError_t SIMCUDART_PTSZ(cudaMemcpyFromSymbolAsync)(void *dst, const void *symbol,
                                                      size_t size, size_t offset,
                                                      enum cudaMemcpyKind kind,
                                                      cudaStream_t stream)
{
    void *src;
    cudaError_t error = symbol_part(symbol, offset, size, &src);

    return simcudart_note(error ?: copy_later(dst, src, size, kind, stream));
}

cudaError_t SIMCUDART_PTDS(cudaMemset)(void *dst, int value, size_t size)
{
    cudaError_t error = simcudart_enter();

    if (!error && size > 0)
        error = simcudart_result(
            DRIVER_PTDS(cuMemsetD8_v2)(simcudart_address(dst), (unsigned char)value, size));
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaMemsetAsync)(void *dst, int value, size_t size,
                                            cudaStream_t stream)
{
    cudaError_t error = simcudart_enter();

    if (!error && size > 0)
        error = simcudart_result(DRIVER_PTSZ(cuMemsetD8Async)(
            simcudart_address(dst), (unsigned char)value, size, stream));
    return simcudart_note(error);
}

static cudaError_t check_pitch(size_t pitch, size_t width)
{
    return pitch < width ? cudaErrorInvalidPitchValue : simcudart_enter();
}

cudaError_t SIMCUDART_PTDS(cudaMemset2D)(void *dst, size_t pitch, int value, size_t width,
                                         size_t height)
{
    cudaError_t error = check_pitch(pitch, width);

    if (!error && width > 0 && height > 0)
        error = simcudart_result(DRIVER_PTDS(cuMemsetD2D8_v2)(
            simcudart_address(dst), pitch, (unsigned char)value, width, height));
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaMemset2DAsync)(void *dst, size_t pitch, int value, size_t width,
                                              size_t height, cudaStream_t stream)
{
    cudaError_t error = check_pitch(pitch, width);

    if (!error && width > 0 && height > 0)
        error = simcudart_result(DRIVER_PTSZ(cuMemsetD2D8Async)(
            simcudart_address(dst), pitch, (unsigned char)value, width, height, stream));
    return simcudart_note(error);
}

/* slices lie pitch * ysize bytes apart; each is filled for itself */
cudaError_t SIMCUDART_PTSZ(cudaMemset3DAsync)(struct cudaPitchedPtr dst, int value,
                                              struct cudaExtent extent, cudaStream_t stream)
{
    cudaError_t error = check_pitch(dst.pitch, extent.width);

    for (size_t z = 0; z < extent.depth && !error && extent.width > 0 && extent.height > 0; z++)
        error = simcudart_result(DRIVER_PTSZ(cuMemsetD2D8Async)(
            simcudart_address(dst.ptr) + z * dst.pitch * dst.ysize, dst.pitch,
            (unsigned char)value, extent.width, extent.height, stream));
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTDS(cudaMemset3D)(struct cudaPitchedPtr dst, int value,
                                         struct cudaExtent extent)
{
    cudaError_t error = check_pitch(dst.pitch, extent.width);

    for (size_t z = 0; z < extent.depth && !error && extent.width > 0 && extent.height > 0; z++)
        error = simcudart_result(DRIVER_PTDS(cuMemsetD2D8_v2)(
            simcudart_address(dst.ptr) + z * dst.pitch * dst.ysize, dst.pitch,
            (unsigned char)value, extent.width, extent.height));
    return simcudart_note(error);
}
