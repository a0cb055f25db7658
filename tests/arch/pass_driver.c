/* SPDX-License-Identifier: Apache-2.0
 *
 * pass_driver.c: a driver for pass_check.c, whose functions look at every argument: eight of
 * them, in registers and on the stack, and a float.
 */
#include <cuda.h>

CUresult cuInit(unsigned flags)
{
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned count, CUjit_option *options,
                          void **values)
{
    const int right = state == (CUlinkState)1 && type == (CUjitInputType)2 &&
                      data == (void *)3 && size == 4 && name == (const char *)5 && count == 6 &&
                      options == (CUjit_option *)7 && values == (void **)8;

    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    const int right = function == (CUfunction)1 && offset == 2 && value == 1.5f;

    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
