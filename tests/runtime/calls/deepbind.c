/* SPDX-License-Identifier: Apache-2.0
 *
 * deepbind.c: a library that is linked with libcuda and is loaded by escape.c with
 * RTLD_DEEPBIND: its imports are bound to its own libcuda, past everything in front.
 */
#include <cuda.h>

__attribute__((visibility("default"))) int deepbind_run(void);

int deepbind_run(void)
{
    CUdeviceptr address;
    CUcontext context;

    return cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           cuCtxSetCurrent(context) != CUDA_SUCCESS ||
           cuMemAlloc(&address, 1 << 20) != CUDA_SUCCESS || cuMemFree(address) != CUDA_SUCCESS;
}
