/* SPDX-License-Identifier: Apache-2.0
 *
 * array.c: CUDA arrays as objects. Copies to and from them are in copy_2d.c. Textures and
 * surfaces are not here: no kernel on the simulated card could sample one.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                   enum cudaChannelFormatKind kind)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* Channels of one width, without gaps: x, xy or xyzw. 0 when it is none of these. */
static unsigned int channels_of(const struct cudaChannelFormatDesc *channels)
{
    int x = channels->x;

    if (x <= 0)
        return 0;
    if (!channels->y && !channels->z && !channels->w)
        return 1;
    if (channels->y == x && !channels->z && !channels->w)
        return 2;
    return channels->y == x && channels->z == x && channels->w == x ? 4 : 0;
}

static const struct {
    enum cudaChannelFormatKind kind;
    int bits;
    CUarray_format format;
} formats[] = {
    {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
    {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
    {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
    {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
    {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
    {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
    {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
    {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
};

#define FORMAT_COUNT (sizeof(formats) / sizeof(formats[0]))

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                              struct cudaExtent extent, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = extent.width, .Height = extent.height, .Depth = extent.depth, .Flags = flags};
    cudaError_t error = array && channels ? simcudart_enter() : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    descriptor.NumChannels = channels_of(channels);
    for (size_t i = 0; i < FORMAT_COUNT && descriptor.NumChannels; i++) {
        if (formats[i].kind != channels->f || formats[i].bits != channels->x)
            continue;
        descriptor.Format = formats[i].format;
        return simcudart_note(
            simcudart_result(DRIVER(cuArray3DCreate_v2)((CUarray *)array, &descriptor)));
    }
    return simcudart_note(cudaErrorInvalidChannelDescriptor);
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                            size_t width, size_t height, unsigned int flags)
{
    return cudaMalloc3DArray(array, channels, (struct cudaExtent){width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array)
{
    cudaError_t error = simcudart_enter();

    if (!error && array)
        error = simcudart_result(DRIVER(cuArrayDestroy)((CUarray)array));
    return simcudart_note(error);
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *channels, struct cudaExtent *extent,
                             unsigned int *flags, cudaArray_t array)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    cudaError_t error = simcudart_enter();

    if (!error)
        error =
            simcudart_result(DRIVER(cuArray3DGetDescriptor_v2)(&descriptor, (CUarray)array));
    if (error)
        return simcudart_note(error);
    if (extent)
        *extent = (struct cudaExtent){descriptor.Width, descriptor.Height, descriptor.Depth};
    if (flags)
        *flags = descriptor.Flags;
    for (size_t i = 0; i < FORMAT_COUNT && channels; i++) {
        int bits = formats[i].bits;
        unsigned int count = descriptor.NumChannels;

        if (formats[i].format == descriptor.Format)
            *channels =
                (struct cudaChannelFormatDesc){bits, count > 1 ? bits : 0, count > 2 ? bits : 0,
                                               count > 3 ? bits : 0, formats[i].kind};
    }
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *channels, cudaArray_const_t array)
{
    return cudaArrayGetInfo(channels, NULL, NULL, (cudaArray_t)(uintptr_t)array);
}
