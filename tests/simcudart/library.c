/* SPDX-License-Identifier: Apache-2.0
 *
 * library.c: modules that the program loads itself (cudaLibraryLoadData and what belongs to
 * it).
 *
 * Stateless; any thread. Options of the runtime and the driver have the same numbers.
 */
#include "simcudart.h"

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *jit_options, void **jit_values,
                                unsigned int jit_count, enum cudaLibraryOption *options,
                                void **values, unsigned int count)
{
    cudaError_t error = library && code ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuLibraryLoadData)(
                                     library, code, (CUjit_option *)jit_options, jit_values,
                                     jit_count, (CUlibraryOption *)options, values, count)));
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *file,
                                    enum cudaJitOption *jit_options, void **jit_values,
                                    unsigned int jit_count, enum cudaLibraryOption *options,
                                    void **values, unsigned int count)
{
    cudaError_t error = library && file ? simcudart_enter() : cudaErrorInvalidValue;

    return simcudart_note(error
                              ?: simcudart_result(DRIVER(cuLibraryLoadFromFile)(
                                     library, file, (CUjit_option *)jit_options, jit_values,
                                     jit_count, (CUlibraryOption *)options, values, count)));
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuLibraryUnload)(library)));
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    cudaError_t error = kernel ? simcudart_enter() : cudaErrorInvalidValue;

    if (!error)
        error = simcudart_result(DRIVER(cuLibraryGetKernel)(kernel, library, name));
    return simcudart_note(error ?: simcudart_know_kernel(*kernel));
}

cudaError_t cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t library)
{
    return simcudart_note(
        simcudart_enter() ?: simcudart_result(DRIVER(cuLibraryGetKernelCount)(count, library)));
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned int count,
                                        cudaLibrary_t library)
{
    cudaError_t error = simcudart_enter();

    if (!error)
        error = simcudart_result(DRIVER(cuLibraryEnumerateKernels)(kernels, count, library));
    for (unsigned int i = 0; i < count && !error && kernels[i]; i++)
        error = simcudart_know_kernel(kernels[i]);
    return simcudart_note(error);
}

cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t library,
                                 const char *name)
{
    CUdeviceptr device_address = 0;
    cudaError_t error = simcudart_enter();

    if (!error)
        error =
            simcudart_result(DRIVER(cuLibraryGetGlobal)(&device_address, bytes, library, name));
    if (!error && address)
        *address = simcudart_pointer(device_address);
    return simcudart_note(error);
}

cudaError_t cudaLibraryGetManaged(void **address, size_t *bytes, cudaLibrary_t library,
                                  const char *name)
{
    CUdeviceptr device_address = 0;
    cudaError_t error = simcudart_enter();

    if (!error)
        error = simcudart_result(
            DRIVER(cuLibraryGetManaged)(&device_address, bytes, library, name));
    if (!error && address)
        *address = simcudart_pointer(device_address);
    return simcudart_note(error);
}

cudaError_t cudaLibraryGetUnifiedFunction(void **function, cudaLibrary_t library,
                                          const char *symbol)
{
    return simcudart_note(simcudart_enter()
                              ?: simcudart_result(DRIVER(cuLibraryGetUnifiedFunction)(
                                     function, library, symbol)));
}
