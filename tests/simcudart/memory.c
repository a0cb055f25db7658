/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: device, host and managed memory; what a pointer is; IPC handles.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"

#include <string.h>

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    CUdeviceptr address = 0;
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error && size > 0)
        error = simcudart_result(DRIVER(cuMemAlloc_v2)(&address, size));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address = 0;
    cudaError_t error = pointer && pitch ? simcudart_enter() : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    *pitch = 0;
    if (width > 0 &&
        height >
            0) /* 4: the largest pitch, good for every element that a kernel reads at once */
        error = simcudart_result(DRIVER(cuMemAllocPitch_v2)(&address, pitch, width, height, 4));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent)
{
    size_t rows;
    cudaError_t error = pitched ? cudaSuccess : cudaErrorInvalidValue;

    if (!error && __builtin_mul_overflow(extent.height, extent.depth, &rows))
        error = cudaErrorMemoryAllocation;
    if (error)
        return simcudart_note(error);
    *pitched = (struct cudaPitchedPtr){.xsize = extent.width, .ysize = extent.height};
    return cudaMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, rows);
}

cudaError_t cudaFree(void *pointer)
{
    cudaError_t error = simcudart_enter(); /* cudaFree(0) is how programs create the context */

    if (!error && pointer)
        error = simcudart_result(DRIVER(cuMemFree_v2)(simcudart_address(pointer)));
    return simcudart_note(error);
}

cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned int flags)
{
    CUdeviceptr address = 0;
    cudaError_t error = pointer && size ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuMemAllocManaged)(&address, size, flags));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned int flags)
{
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        *pointer = NULL;
    if (!error && size > 0)
        error = simcudart_result(DRIVER(cuMemHostAlloc)(pointer, size, flags));
    return simcudart_note(error);
}

cudaError_t cudaMallocHost(void **pointer, size_t size)
{
    return cudaHostAlloc(pointer, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer)
{
    cudaError_t error = simcudart_enter();

    if (!error && pointer)
        error = simcudart_result(DRIVER(cuMemFreeHost)(pointer));
    return simcudart_note(error);
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned int flags)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuMemHostRegister_v2)(pointer, size, flags)));
}

cudaError_t cudaHostUnregister(void *pointer)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemHostUnregister)(pointer)));
}

cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned int flags)
{
    CUdeviceptr address = 0;
    cudaError_t error = device_pointer ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error =
            simcudart_result(DRIVER(cuMemHostGetDevicePointer_v2)(&address, pointer, flags));
    if (!error)
        *device_pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *pointer)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemHostGetFlags)(flags, pointer)));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    size_t unused;
    cudaError_t error = simcudart_enter();

    return simcudart_note(
        error
            ?: simcudart_result(DRIVER(cuMemGetInfo_v2)(free_bytes ? free_bytes : &unused,
                                                        total_bytes ? total_bytes : &unused)));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                     const void *pointer)
{
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
    };
    CUmemorytype type = 0;
    int device = cudaInvalidDeviceId;
    void *host = NULL;
    CUdeviceptr address = 0;
    unsigned int managed = 0;
    void *values[] = {&type, &device, &host, &address, &managed};
    cudaError_t error = attributes ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(
            DRIVER(cuPointerGetAttributes)(5, wanted, values, simcudart_address(pointer)));
    if (error)
        return simcudart_note(error);
    *attributes = (struct cudaPointerAttributes){
        .device = device, .devicePointer = simcudart_pointer(address), .hostPointer = host};
    if (managed)
        attributes->type = cudaMemoryTypeManaged;
    else if (type == CU_MEMORYTYPE_DEVICE)
        attributes->type = cudaMemoryTypeDevice;
    else if (type == CU_MEMORYTYPE_HOST)
        attributes->type = cudaMemoryTypeHost;
    else /* memory that the driver does not know: the host's own */
        *attributes = (struct cudaPointerAttributes){
            .type = cudaMemoryTypeUnregistered,
            .device = cudaInvalidDeviceId,
            .hostPointer = simcudart_pointer(simcudart_address(pointer))};
    return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol)
{
    CUdeviceptr address;
    size_t size;
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_symbol(symbol, &address, &size);
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    CUdeviceptr address;
    cudaError_t error = size ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error ?: simcudart_symbol(symbol, &address, size));
}

static CUmemLocation location_of(struct cudaMemLocation location)
{
    return (CUmemLocation){.type = (CUmemLocationType)(int)location.type, .id = location.id};
}

cudaError_t cudaMemAdvise(const void *pointer, size_t size, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemAdvise_v2)(
                                     simcudart_address(pointer), size,
                                     (CUmem_advise)(int)advice, location_of(location))));
}

cudaError_t cudaMemRangeGetAttribute(void *data, size_t data_size,
                                     enum cudaMemRangeAttribute attribute, const void *pointer,
                                     size_t size)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuMemRangeGetAttribute)(
                                     data, data_size, (CUmem_range_attribute)(int)attribute,
                                     simcudart_address(pointer), size)));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    _Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "the same handle");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuIpcGetMemHandle)(
                                     (CUipcMemHandle *)handle, simcudart_address(pointer))));
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle driver_handle;
    CUdeviceptr address = 0;
    cudaError_t error = pointer ? simcudart_enter() : cudaErrorInvalidValue;

    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    if (!error)
        error = simcudart_result(DRIVER(cuIpcOpenMemHandle_v2)(&address, driver_handle, flags));
    if (!error)
        *pointer = simcudart_pointer(address);
    return simcudart_note(error);
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuIpcCloseMemHandle)(simcudart_address(pointer))));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    _Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "the same handle");
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuIpcGetEventHandle)(
                                     (CUipcEventHandle *)handle, event)));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle driver_handle;

    memcpy(&driver_handle, &handle, sizeof(driver_handle));
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER(cuIpcOpenEventHandle)(event, driver_handle)));
}
