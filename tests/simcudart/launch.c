/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: kernel launches and host functions in a stream. Compiled twice, see simcudart.h.
 *
 * Stateless; any thread.
 */
#include "simcudart.h"
#include "module.h"

static cudaError_t launch_function(const void *func, dim3 grid, dim3 block, void **args,
                                   size_t shared_bytes, cudaStream_t stream)
{
    CUkernel kernel;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(func, &kernel);
    if (error)
        return error;
    if (shared_bytes > UINT32_MAX)
        return cudaErrorInvalidValue;
    return simcudart_result(DRIVER_PTSZ(cuLaunchKernel)(
        (CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        (unsigned int)shared_bytes, stream, args, NULL));
}

/* What `kernel<<<...>>>(...)` calls. kernel is what __cudaGetKernel gave: after a failure that
 * is the host stub, which is looked up again here and gives the failure's own error. */
cudaError_t SIMCUDART_PTSZ(__cudaLaunchKernel)(cudaKernel_t kernel, dim3 grid, dim3 block,
                                               void **args, size_t shared_bytes,
                                               cudaStream_t stream)
{
    return simcudart_note(launch_function(kernel, grid, block, args, shared_bytes, stream));
}

cudaError_t SIMCUDART_PTSZ(cudaLaunchKernel)(const void *func, dim3 grid, dim3 block,
                                             void **args, size_t shared_bytes,
                                             cudaStream_t stream)
{
    return simcudart_note(launch_function(func, grid, block, args, shared_bytes, stream));
}

cudaError_t SIMCUDART_PTSZ(cudaLaunchCooperativeKernel)(const void *func, dim3 grid, dim3 block,
                                                        void **args, size_t shared_bytes,
                                                        cudaStream_t stream)
{
    CUkernel kernel;
    cudaError_t error = simcudart_enter();

    error = error ?: simcudart_kernel(func, &kernel);
    if (!error && shared_bytes > UINT32_MAX)
        error = cudaErrorInvalidValue;
    if (!error)
        error = simcudart_result(DRIVER_PTSZ(cuLaunchCooperativeKernel)(
            (CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
            (unsigned int)shared_bytes, stream, args));
    return simcudart_note(error);
}

cudaError_t SIMCUDART_PTSZ(cudaLaunchKernelExC)(const cudaLaunchConfig_t *config,
                                                const void *func, void **args)
{
    CUkernel kernel;
    cudaError_t error = config ? simcudart_enter() : cudaErrorInvalidValue;

    error = error ?: simcudart_kernel(func, &kernel);
    if (!error && config->dynamicSmemBytes > UINT32_MAX)
        error = cudaErrorInvalidValue;
    if (error)
        return simcudart_note(error);
    CUlaunchConfig driver_config = simcudart_launch_config(config);

    return simcudart_note(simcudart_result(
        DRIVER_PTSZ(cuLaunchKernelEx)(&driver_config, (CUfunction)kernel, args, NULL)));
}

cudaError_t SIMCUDART_PTSZ(cudaLaunchHostFunc)(cudaStream_t stream, cudaHostFn_t function,
                                               void *data)
{
    return simcudart_note(
        simcudart_enter()
            ?: simcudart_result(DRIVER_PTSZ(cuLaunchHostFunc)(stream, function, data)));
}

cudaError_t
SIMCUDART_PTSZ(cudaGetDriverEntryPointByVersion)(const char *symbol, void **function,
                                                 unsigned int version, unsigned long long flags,
                                                 enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    cudaError_t error = symbol && function ? simcudart_load() : cudaErrorInvalidValue;

#ifdef SIMCUDART_PER_THREAD
    if (flags == cudaEnableDefault)
        flags = cudaEnablePerThreadDefaultStream;
#endif
    if (!error)
        error = simcudart_result(
            simcudart_get_proc_address(symbol, function, (int)version, flags, &found));
    /* who takes the status is told there that there is no such function */
    if (status && error == cudaErrorSymbolNotFound)
        error = cudaSuccess;
    if (status)
        *status = (enum cudaDriverEntryPointQueryResult)(int)found;
    return simcudart_note(error);
}

cudaError_t
SIMCUDART_PTSZ(cudaGetDriverEntryPoint)(const char *symbol, void **function,
                                        unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *status)
{
    return SIMCUDART_PTSZ(cudaGetDriverEntryPointByVersion)(symbol, function, CUDART_VERSION,
                                                            flags, status);
}
