/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: owns cuInit, the questions about a card, and cuGetProcAddress.
 * Invariants: none of its own; a device number is valid when it is below sim.device_count.
 * Threads: any, under sim.lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/resolve.h"
#include "tests/simcuda/sim.h"

static int driver_version(void)
{
    const char *text = getenv("SIMCUDA_DRIVER_VERSION");
    const unsigned long wanted = text ? strtoul(text, NULL, 10) : 0;

    if (sim.state == SIM_READY)
        return (int)sim.device[0].card->properties.driver_version;
    return wanted > 0 && wanted < 100000 ? (int)wanted : 13000; /* as the card will have it */
}

static bool device_valid(CUdevice device)
{
    return device >= 0 && (unsigned)device < sim.device_count;
}

static CUresult version_get(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = driver_version();
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)sim.device_count;
    return CUDA_SUCCESS;
}

static CUresult text_out(char *out, int size, const char *text)
{
    if (!out || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)size, "%s", text);
    return CUDA_SUCCESS;
}

static CUresult device_bus_id(char *id, int length, CUdevice device)
{
    char text[32];

    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, sizeof text, "0000:%02X:00.0", 0x10u + sim.device[device].card->index);
    return text_out(id, length, text);
}

static CUresult device_by_bus_id(CUdevice *device, const char *id)
{
    unsigned long part[3] = {0}; /* domain, bus, slot; the domain may be left out */
    unsigned parts = 0;
    char *end = NULL;

    if (!device || !id)
        return CUDA_ERROR_INVALID_VALUE;
    for (; parts < 3; parts++, id = end + 1) {
        part[parts] = strtoul(id, &end, 16);
        if (end == id)
            return CUDA_ERROR_INVALID_VALUE;
        if (*end != ':') {
            parts++;
            break;
        }
    }
    const unsigned long domain = parts == 3 ? part[0] : 0, bus = part[parts == 3];
    if (parts < 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < sim.device_count; i++) {
        if (!domain && bus == 0x10 + sim.device[i].card->index) {
            *device = (CUdevice)i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

bool sim_has_mig(void)
{
    const char *text = getenv("SIMCUDA_MIG");

    return text && strcmp(text, "1") == 0;
}

/* The first version tells the UUID of the card even of an instance of it. */
static CUresult device_uuid(CUuuid *uuid, CUdevice device, bool of_instance)
{
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, sim.device[device].card->uuid, sizeof uuid->bytes);
    if (sim_has_mig() && !of_instance)
        uuid->bytes[15] = (char)0xff;
    return CUDA_SUCCESS;
}

static CUresult device_total(size_t *bytes, CUdevice device)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim.device[device].card->properties.memory;
    return CUDA_SUCCESS;
}

/* What is not listed is 0: a limit of textures, or something this card cannot do. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
};

static CUresult attribute_get(int *value, CUdevice_attribute attribute, CUdevice device)
{
    if (!value || (int)attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 0x10 + device : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (attributes[i].attribute == attribute)
            *value = attributes[i].value;
    if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        *value = sim_has_vmm();
    if (attribute == CU_DEVICE_ATTRIBUTE_INTEGRATED)
        *value = getenv("SIMCUDA_INTEGRATED") != NULL;
    return CUDA_SUCCESS;
}

static CUresult capability_get(int *major, int *minor, CUdevice device)
{
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result =
        attribute_get(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    return result ? result
                  : attribute_get(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

static CUresult peer_attribute(int *value, CUdevice source, CUdevice target, int answer)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(source) || !device_valid(target))
        return CUDA_ERROR_INVALID_DEVICE;
    if (answer < 0 && source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = source != target && answer;
    return CUDA_SUCCESS;
}

/* A function of a driver of the future, under the name in SIMCUDA_FUTURE: it copies to the host. */
static CUresult future(void *to, CUdeviceptr from, size_t size)
{
    return cuMemcpyDtoH_v2(to, from, size);
}

static bool is_future(const char *name)
{
    const char *wanted = getenv("SIMCUDA_FUTURE");

    return wanted && strcmp(name, wanted) == 0;
}

static CUresult proc_get(const char *name, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status)
{
    const int known = driver_version();
    int too_old = 0;

    if (!name || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    if (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    *function = is_future(name)
                    ? (void *)future
                    : sim_resolve(name, version < known ? version : known,
                                  (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0,
                                  &too_old);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                            : (too_old ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API(cuInit, (unsigned int flags), SIM_ANYTIME,
        flags ? CUDA_ERROR_INVALID_VALUE : sim_driver_init())
SIM_API(cuDriverGetVersion, (int *version), SIM_ANYTIME, version_get(version))
SIM_API(cuDeviceGet, (CUdevice * device, int ordinal), SIM_INIT, device_get(device, ordinal))
SIM_API(cuDeviceGetCount, (int *count), SIM_INIT, device_count(count))
SIM_API(cuDeviceGetName, (char *name, int size, CUdevice device), SIM_INIT,
        device_valid(device)
            ? text_out(name, size, sim_has_mig() ? "Simulated GPU MIG 1g" : "Simulated GPU")
            : CUDA_ERROR_INVALID_DEVICE)
SIM_API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), SIM_INIT,
        device_uuid(uuid, device, false))
SIM_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), SIM_INIT,
        device_uuid(uuid, device, true))
SIM_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), SIM_INIT,
        device_total(bytes, device))
SIM_API(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device),
        SIM_INIT, attribute_get(value, attribute, device))
SIM_API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device), SIM_INIT,
        capability_get(major, minor, device))
SIM_API(cuDeviceGetPCIBusId, (char *id, int length, CUdevice device), SIM_INIT,
        device_bus_id(id, length, device))
SIM_API(cuDeviceGetByPCIBusId, (CUdevice * device, const char *id), SIM_INIT,
        device_by_bus_id(device, id))
SIM_API(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), SIM_INIT,
        peer_attribute(can, device, peer, 1))
SIM_API(cuDeviceGetP2PAttribute,
        (int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice target),
        SIM_INIT,
        peer_attribute(value, source, target,
                       attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ? 1 : 0))
SIM_API(cuGetProcAddress, (const char *symbol, void **pfn, int version, cuuint64_t flags),
        SIM_ANYTIME, proc_get(symbol, pfn, version, flags, NULL))
SIM_API(cuGetProcAddress_v2,
        (const char *symbol, void **pfn, int version, cuuint64_t flags,
         CUdriverProcAddressQueryResult *status),
        SIM_ANYTIME, proc_get(symbol, pfn, version, flags, status))
SIM_API(cuGetExportTable, (const void **table, const CUuuid *id), SIM_ANYTIME,
        table &&id ? (*table = NULL, CUDA_ERROR_NOT_FOUND) : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuProfilerStart, (void), SIM_CTX, CUDA_SUCCESS)
SIM_API(cuProfilerStop, (void), SIM_CTX, CUDA_SUCCESS)
