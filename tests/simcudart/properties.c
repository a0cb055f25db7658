/* SPDX-License-Identifier: Apache-2.0
 *
 * properties.c: cudaDeviceProp, filled from the driver's device attributes, and the queries
 * about one device.
 *
 * Stateless; any thread. An attribute that the driver does not know stays 0.
 */
#include "simcudart.h"

#include <stdio.h>
#include <string.h>

/* Which attribute goes where: offset of the member, and whether it is a size_t (else an int).
 */
static const struct {
    size_t offset;
    CUdevice_attribute attribute;
    bool wide;
} fields[] = {
#define INT(member, name)                                                                      \
    {                                                                                          \
        offsetof(struct cudaDeviceProp, member), CU_DEVICE_ATTRIBUTE_##name, false             \
    }
#define WIDE(member, name)                                                                     \
    {                                                                                          \
        offsetof(struct cudaDeviceProp, member), CU_DEVICE_ATTRIBUTE_##name, true              \
    }
#include "properties.inc"
#undef INT
#undef WIDE
};

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
    CUdevice device;
    cudaError_t error = value ? simcudart_device(ordinal, &device) : cudaErrorInvalidValue;

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuDeviceGetAttribute)(
                                     value, (CUdevice_attribute)(int)attribute, device)));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int ordinal)
{
    CUdevice device;
    cudaError_t error = properties ? simcudart_device(ordinal, &device) : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    memset(properties, 0, sizeof(*properties));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char *member = (char *)properties + fields[i].offset;
        int value = 0;

        if (DRIVER(cuDeviceGetAttribute)(&value, fields[i].attribute, device))
            value = 0;
        if (fields[i].wide)
            memcpy(member, &(size_t){(size_t)value}, sizeof(size_t));
        else
            memcpy(member, &value, sizeof(value));
    }
    _Static_assert(sizeof(properties->uuid) == sizeof(CUuuid), "the same");
    (void)DRIVER(cuDeviceGetUuid)((CUuuid *)&properties->uuid, device);
    error = simcudart_result(
        DRIVER(cuDeviceGetName)(properties->name, (int)sizeof(properties->name) - 1, device));
    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuDeviceTotalMem_v2)(
                                     &properties->totalGlobalMem, device)));
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuDeviceGetPCIBusId)(id, length, device)));
}

cudaError_t cudaDeviceGetByPCIBusId(int *ordinal, const char *id)
{
    CUdevice device = 0;
    cudaError_t error = ordinal ? simcudart_load() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuDeviceGetByPCIBusId)(&device, id));
    if (!error)
        *ordinal = device;
    return simcudart_note(error);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int from,
                                      int to)
{
    CUdevice a;
    CUdevice b;
    cudaError_t error = value ? simcudart_device(from, &a) : cudaErrorInvalidValue;

    error = error ?: simcudart_device(to, &b);
    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuDeviceGetP2PAttribute)(
                                     value, (CUdevice_P2PAttribute)(int)attribute, a, b)));
}

/* The device that has most of what is asked: compute capability first, then memory. */
cudaError_t cudaChooseDevice(int *ordinal, const struct cudaDeviceProp *wanted)
{
    int count = 0;
    int best_score = -1;
    cudaError_t error = ordinal && wanted ? cudaGetDeviceCount(&count) : cudaErrorInvalidValue;

    for (int i = 0; i < count && !error; i++) {
        struct cudaDeviceProp have = {0};

        error = cudaGetDeviceProperties(&have, i);
        if (error)
            break;
        int score = 2 * (have.major * 10 + have.minor >= wanted->major * 10 + wanted->minor) +
                    (have.totalGlobalMem >= wanted->totalGlobalMem);
        if (score > best_score) {
            best_score = score;
            *ordinal = i;
        }
    }
    return simcudart_note(error);
}
