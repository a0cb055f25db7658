/* SPDX-License-Identifier: Apache-2.0
 *
 * guest.c: a plugin that finds libcuda and uses it. Linked into nothing: test_others.py patches
 * copies of it for one libgpushare or another.
 */
#include <dlfcn.h>
#include <stddef.h>

#include <cudaTypedefs.h>

#define CALL(symbol, type) ((PFN_##type)dlsym(driver, #symbol))

__attribute__((visibility("default"))) int guest_works(void);

/* 0; else the number of the step that failed */
int guest_works(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned char byte = 0;
    CUdeviceptr address;
    CUcontext context;

    if (driver == NULL || CALL(cuInit, cuInit_v2000)(0) != CUDA_SUCCESS)
        return 1;
    if (CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000)(&context, 0) !=
            CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(context) != CUDA_SUCCESS)
        return 2;
    if (CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&address, 4 << 20) != CUDA_SUCCESS)
        return 3;
    for (unsigned i = 0; i < 10; i++)
        if (CALL(cuMemsetD8_v2, cuMemsetD8_v3020)(address + i, (unsigned char)i, 1) !=
            CUDA_SUCCESS)
            return 4;
    if (CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&byte, address + 9, 1) != CUDA_SUCCESS ||
        byte != 9)
        return 5;
    return 0;
}
