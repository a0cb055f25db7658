/* SPDX-License-Identifier: Apache-2.0
 *
 * function.c: owns the questions about functions and kernels: attributes, parameters,
 * occupancy. Invariants: none of its own. Threads: any, under sim.lock (dropped around the
 * application's callback).
 */
#include "tests/simcuda/module.h"

static CUresult attribute_get(int *value, CUfunction_attribute attribute, const void *handle)
{
    const struct sim_function *function = sim_function_get(handle);

    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)function->kernel->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)function->kernel->shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)function->kernel->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)function->kernel->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->dynamic_shared ? function->dynamic_shared
                                          : (function->kernel->shared_bytes > 49152
                                                 ? 0
                                                 : 49152 - (int)function->kernel->shared_bytes);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function->carveout;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_set(const void *handle, CUfunction_attribute attribute, int value)
{
    struct sim_function *function = sim_function_get(handle);

    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || (unsigned)value + function->kernel->shared_bytes > 232448)
            return CUDA_ERROR_INVALID_VALUE;
        function->dynamic_shared = value;
    } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        function->carveout = value;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult name_get(const char **name, const void *handle)
{
    const struct sim_function *function = sim_function_get(handle);

    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}

static CUresult parameter_get(const void *handle, size_t index, size_t *offset, size_t *size)
{
    struct sim_function *function = sim_function_get(handle);
    struct sim_parameter parameter[SIM_PARAMS_MAX];

    if (!offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    const int count = sim_function_parameters(function, parameter);
    if (count < 0 || index >= (size_t)count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = parameter[index].offset;
    if (size)
        *size = parameter[index].size;
    return CUDA_SUCCESS;
}

static CUresult check_handle(const void *handle)
{
    return sim_function_get(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult read_loaded(CUfunctionLoadingState *state, const void *handle)
{
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return check_handle(handle);
}

/* Blocks of that size that fit on a multiprocessor by threads, registers and shared memory. */
static CUresult blocks_fit(int *blocks, const void *handle, int block_size, size_t dynamic)
{
    const struct sim_function *function = sim_function_get(handle);

    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    const size_t shared = function->kernel->shared_bytes + dynamic + 1024;
    const int warps = (block_size + 31) / 32;
    int fit = 2048 / (warps * 32);
    const int by_registers = 65536 / ((int)function->kernel->registers * warps * 32);
    fit = by_registers < fit ? by_registers : fit;
    const size_t by_shared = 233472 / shared;
    fit = by_shared < (size_t)fit ? (int)by_shared : fit;
    *blocks = block_size > (int)function->kernel->max_threads ? 0 : (fit < 32 ? fit : 32);
    return CUDA_SUCCESS;
}

static CUresult best_block(int *grid, int *block, const void *handle,
                           CUoccupancyB2DSize shared_of, size_t dynamic, int most)
{
    const struct sim_function *function = sim_function_get(handle);
    int best = 0, blocks = 0;

    if (!grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    const int limit = (int)function->kernel->max_threads;
    for (int size = most > 0 && most < limit ? most : limit; size > 0; size -= 32) {
        size_t shared = dynamic;
        if (shared_of) {
            pthread_mutex_unlock(&sim.lock);
            shared = shared_of(size);
            pthread_mutex_lock(&sim.lock);
        }
        const CUresult result = blocks_fit(&blocks, handle, size, shared);
        if (result)
            return result;
        if (blocks * size > best) {
            best = blocks * size;
            *block = size;
            *grid = blocks * 132;
        }
    }
    return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult shared_left(size_t *dynamic, const void *handle, int blocks, int block_size)
{
    const struct sim_function *function = sim_function_get(handle);

    if (!dynamic || blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    const size_t each = 233472u / (unsigned)blocks;
    const size_t taken = function->kernel->shared_bytes + 1024u;
    *dynamic = each > taken ? each - taken : 0;
    return CUDA_SUCCESS;
}

static CUresult function_same(const void *handle, void **out)
{
    struct sim_function *function = sim_function_get(handle);

    return sim_handle_out(out, function, function);
}

static CUresult function_module(const void *handle, void **out)
{
    const struct sim_function *function = sim_function_get(handle);

    return sim_handle_out(out, function, function ? function->module : NULL);
}

SIM_API(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function),
        SIM_CTX, attribute_get(value, attribute, function))
SIM_API(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value),
        SIM_CTX, attribute_set(function, attribute, value))
SIM_API(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache cache), SIM_CTX,
        ((void)cache, check_handle(function)))
SIM_API(cuFuncSetSharedMemConfig, (CUfunction function, CUsharedconfig shared), SIM_CTX,
        ((void)shared, check_handle(function)))
SIM_API(cuFuncGetName, (const char **name, CUfunction function), SIM_INIT,
        name_get(name, function))
SIM_API(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *size),
        SIM_INIT, parameter_get(function, index, offset, size))
SIM_API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function), SIM_INIT,
        read_loaded(state, function))
SIM_API(cuFuncLoad, (CUfunction function), SIM_CTX, check_handle(function))
SIM_API(cuKernelGetAttribute,
        (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device),
        SIM_INIT,
        (unsigned)device >= sim.device_count ? CUDA_ERROR_INVALID_DEVICE
                                             : attribute_get(value, attribute, kernel))
SIM_API(cuKernelSetAttribute,
        (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device), SIM_INIT,
        (unsigned)device >= sim.device_count ? CUDA_ERROR_INVALID_DEVICE
                                             : attribute_set(kernel, attribute, value))
SIM_API(cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache cache, CUdevice device),
        SIM_INIT,
        ((void)cache, (unsigned)device >= sim.device_count ? CUDA_ERROR_INVALID_DEVICE
                                                           : check_handle(kernel)))
SIM_API(cuKernelGetName, (const char **name, CUkernel kernel), SIM_INIT, name_get(name, kernel))
SIM_API(cuKernelGetParamInfo, (CUkernel kernel, size_t index, size_t *offset, size_t *size),
        SIM_INIT, parameter_get(kernel, index, offset, size))
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *blocks, CUfunction function, int size, size_t dynamic), SIM_CTX,
        blocks_fit(blocks, function, size, dynamic))
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *blocks, CUfunction function, int size, size_t dynamic, unsigned int flags),
        SIM_CTX,
        flags > 1 ? CUDA_ERROR_INVALID_VALUE : blocks_fit(blocks, function, size, dynamic))
SIM_API(cuOccupancyMaxPotentialBlockSize,
        (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
         size_t dynamic, int most),
        SIM_CTX, best_block(grid, block, function, shared_of, dynamic, most))
SIM_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
        (int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
         size_t dynamic, int most, unsigned int flags),
        SIM_CTX,
        flags > 1 ? CUDA_ERROR_INVALID_VALUE
                  : best_block(grid, block, function, shared_of, dynamic, most))
SIM_API(cuOccupancyAvailableDynamicSMemPerBlock,
        (size_t * dynamic, CUfunction function, int blocks, int size), SIM_CTX,
        shared_left(dynamic, function, blocks, size))
SIM_API(cuKernelGetFunction, (CUfunction * out, CUkernel kernel), SIM_CTX,
        function_same(kernel, (void **)out))
SIM_API(cuKernelGetLibrary, (CUlibrary * out, CUkernel kernel), SIM_INIT,
        function_module(kernel, (void **)out))
SIM_API(cuFuncGetModule, (CUmodule * out, CUfunction function), SIM_INIT,
        function_module(function, (void **)out))
