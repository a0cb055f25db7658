/* SPDX-License-Identifier: Apache-2.0
 *
 * newer_driver.c: a libcuda.so.1 of CUDA 14.0 as far as look-ups go: cuLaunchKernel has an ABI
 * that this gpushare's table does not know. No state.
 */
#include <string.h>

#include <cuda.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned int flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int x, unsigned int y,
                               unsigned int z, unsigned int bx, unsigned int by,
                               unsigned int bz, unsigned int shared, CUstream stream,
                               void **params, void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared,
        (void)stream;
    (void)params, (void)extra;
    return CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLaunchKernel_v9(int everything_is_different);
EXPORT CUresult cuLaunchKernel_v9(int everything_is_different)
{
    return everything_is_different == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    (void)flags;
    *function = NULL;
    if (strcmp(symbol, "cuInit") == 0)
        *function = (void *)cuInit;
    else if (strcmp(symbol, "cuLaunchKernel") == 0)
        *function = version >= 14000 ? (void *)cuLaunchKernel_v9 : (void *)cuLaunchKernel;
    if (status != NULL)
        *status = *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
