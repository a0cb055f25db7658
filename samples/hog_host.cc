/* SPDX-License-Identifier: Apache-2.0
 *
 * hog_host.cc: hog.cu for a machine without nvcc: compiled by g++, for the simulated card alone,
 * which runs hog_standin.c instead of kernels. All else is as nvcc makes it: the runtime is linked
 * statically, and the kernels are registered before main() under the addresses of two functions.
 */
#include <cuda_runtime_api.h>
#include <stdint.h>

extern "C" {
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *,
                            dim3 *, dim3 *, int *);

void hog_fill(uint64_t *, uint64_t, uint64_t, uint64_t)
{
}

void hog_step(uint64_t *, uint64_t, uint64_t, uint64_t, uint64_t, int, uint64_t *,
              unsigned long long *)
{
}
}

#include "hog.cu"

/* What nvcc's code hands over: crt/host_runtime.h, fatbinary_section.h. */
static struct {
    unsigned magic, version;
    const char *image;
    const void *prelinked;
} binary = {0x466243b1, 1, ".version 8.0\n.target sm_80\n.address_size 64\n", nullptr};

static void register_kernel(void **module, const void *address, const char *name)
{
    __cudaRegisterFunction(module, (const char *)address, const_cast<char *>(name), name, -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
}

__attribute__((constructor)) static void register_kernels(void)
{
    void **module = __cudaRegisterFatBinary(&binary);

    register_kernel(module, (const void *)hog_fill, "hog_fill");
    register_kernel(module, (const void *)hog_step, "hog_step");
    __cudaRegisterFatBinaryEnd(module);
}
