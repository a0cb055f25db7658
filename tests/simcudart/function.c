/* SPDX-License-Identifier: Apache-2.0
 *
 * function.c: launch configurations on their way from <<<>>> to the stub, attributes of
 * kernels, occupancy, libraries.
 *
 * The configuration stack belongs to its thread.
 */
#include "simcudart.h"
#include "module.h"

#include <string.h>

#define CONFIGURATIONS_MAX 32 /* <<<>>> inside the arguments of <<<>>>: nobody nests deeper */

struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};

static _Thread_local struct configuration configurations[CONFIGURATIONS_MAX];
static _Thread_local unsigned int configuration_count;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                         struct CUstream_st *stream)
{
    if (configuration_count == CONFIGURATIONS_MAX)
        return (unsigned int)simcudart_note(cudaErrorLaunchFailure);
    configurations[configuration_count++] =
        (struct configuration){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                       void *stream)
{
    if (configuration_count == 0)
        return simcudart_note(cudaErrorMissingConfiguration);
    const struct configuration *top = &configurations[--configuration_count];

    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    *(cudaStream_t *)stream = top->stream;
    return cudaSuccess;
}

/* Called once per kernel, by the initialiser of a static variable: its error is not seen by
 * anybody. So the stub itself is handed out then, and the launch meets the error again. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host_function)
{
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(host_function, kernel);
    if (error)
        *kernel = (cudaKernel_t)(uintptr_t)host_function;
    return error;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *host_function)
{
    cudaError_t error = kernel ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error ?: simcudart_kernel(host_function, kernel));
}

static cudaError_t function_of(const void *func, CUfunction *function)
{
    CUkernel kernel;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(func, &kernel);
    return error ?: simcudart_result(DRIVER(cuKernelGetFunction)(function, kernel));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *symbol)
{
    cudaError_t error = function ? function_of(symbol, function) : cudaErrorInvalidValue;

    return simcudart_note(error ?: simcudart_know_kernel((CUkernel)*function));
}

static cudaError_t kernel_and_device(const void *func, CUkernel *kernel, CUdevice *device)
{
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(func, kernel);
    return error ?: simcudart_current_device(device);
}

/* Where cudaFuncGetAttributes puts which attribute: offset of the member, and whether it is a
 * size_t. */
static const struct {
    size_t offset;
    CUfunction_attribute attribute;
    bool wide;
} function_attributes[] = {
#define WIDE(member, attribute)                                                                \
    {                                                                                          \
        offsetof(struct cudaFuncAttributes, member), attribute, true                           \
    }
#define INT(member, attribute)                                                                 \
    {                                                                                          \
        offsetof(struct cudaFuncAttributes, member), attribute, false                          \
    }
    WIDE(sharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
    WIDE(constSizeBytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
    WIDE(localSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
    INT(maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    INT(numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS),
    INT(ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION),
    INT(binaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION),
    INT(cacheModeCA, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA),
    INT(maxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    INT(preferredShmemCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
    INT(clusterDimMustBeSet, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
    INT(requiredClusterWidth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
    INT(requiredClusterHeight, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
    INT(requiredClusterDepth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH),
    INT(clusterSchedulingPolicyPreference,
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE),
    INT(nonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
#undef WIDE
#undef INT
};

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *func)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error =
        attributes ? kernel_and_device(func, &kernel, &device) : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    *attributes = (struct cudaFuncAttributes){0};
    for (size_t i = 0; i < sizeof(function_attributes) / sizeof(function_attributes[0]); i++) {
        char *member = (char *)attributes + function_attributes[i].offset;
        int value = 0;

        error = simcudart_result(DRIVER(cuKernelGetAttribute)(
            &value, function_attributes[i].attribute, kernel, device));
        if (error)
            break;
        if (function_attributes[i].wide)
            memcpy(member, &(size_t){(size_t)value}, sizeof(size_t));
        else
            memcpy(member, &value, sizeof(value));
    }
    return simcudart_note(error);
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attribute, int value)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = kernel_and_device(func, &kernel, &device);

    return simcudart_note(
        error
            ?: simcudart_result(DRIVER(cuKernelSetAttribute)(
                   (CUfunction_attribute)(int)attribute, value, kernel, device)));
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                            enum cudaFuncAttribute attribute, int value,
                                            int ordinal)
{
    CUdevice device;
    cudaError_t error = simcudart_device(ordinal, &device);

    return simcudart_note(
        error
            ?: simcudart_result(DRIVER(cuKernelSetAttribute)(
                   (CUfunction_attribute)(int)attribute, value, kernel, device)));
}

cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache config)
{
    CUkernel kernel;
    CUdevice device;
    cudaError_t error = kernel_and_device(func, &kernel, &device);

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuKernelSetCacheConfig)(
                                     kernel, (CUfunc_cache)(int)config, device)));
}

cudaError_t cudaFuncGetName(const char **name, const void *func)
{
    CUkernel kernel;
    cudaError_t error = name ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_kernel(func, &kernel);
    return simcudart_note(error ?: simcudart_result(DRIVER(cuKernelGetName)(name, kernel)));
}

cudaError_t cudaFuncGetParamInfo(const void *func, size_t index, size_t *offset, size_t *size)
{
    CUkernel kernel;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(func, &kernel);
    return simcudart_note(
        error ?: simcudart_result(DRIVER(cuKernelGetParamInfo)(kernel, index, offset, size)));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *func, int block_size, size_t shared_bytes, unsigned int flags)
{
    CUfunction function;
    cudaError_t error = blocks ? function_of(func, &function) : cudaErrorInvalidValue;

    return simcudart_note(
        error
            ?: simcudart_result(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
                   blocks, function, block_size, shared_bytes, flags)));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func,
                                                          int block_size, size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, func, block_size, shared_bytes, cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *func,
                                                      int blocks, int block_size)
{
    CUfunction function;
    cudaError_t error = bytes ? function_of(func, &function) : cudaErrorInvalidValue;

    return simcudart_note(
        error
            ?: simcudart_result(DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(
                   bytes, function, blocks, block_size)));
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *func,
                                                 const cudaLaunchConfig_t *config)
{
    CUfunction function;
    cudaError_t error = size && config ? function_of(func, &function) : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    CUlaunchConfig driver_config = simcudart_launch_config(config);

    return simcudart_note(simcudart_result(
        DRIVER(cuOccupancyMaxPotentialClusterSize)(size, function, &driver_config)));
}

cudaError_t cudaOccupancyMaxActiveClusters(int *count, const void *func,
                                           const cudaLaunchConfig_t *config)
{
    CUfunction function;
    cudaError_t error = count && config ? function_of(func, &function) : cudaErrorInvalidValue;

    if (error)
        return simcudart_note(error);
    CUlaunchConfig driver_config = simcudart_launch_config(config);

    return simcudart_note(simcudart_result(
        DRIVER(cuOccupancyMaxActiveClusters)(count, function, &driver_config)));
}
