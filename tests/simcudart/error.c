/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: each thread's last error, and what errors are called.
 *
 * The last error belongs to its thread. An error that the driver keeps returning (a context
 * broken by a fault) comes back with the next call by itself; nothing is remembered here for
 * that. cudaErrorNotReady is an answer, and never kept (seen with NVIDIA's runtime 13.0).
 */
#include "simcudart.h"

static _Thread_local cudaError_t last_error;

struct error_name {
    cudaError_t error;
    const char *name;
};

static const struct error_name names[] = {
#include "error_names.inc"
};

/* Errors that arise in the runtime itself: the driver has no text for them. */
static const struct error_name texts[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInitializationError, "initialization error"},
    {cudaErrorInvalidConfiguration, "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "invalid pitch"},
    {cudaErrorInvalidSymbol, "not a device symbol of this program"},
    {cudaErrorInvalidMemcpyDirection, "invalid direction of copy"},
    {cudaErrorInsufficientDriver,
     "no CUDA driver was found, or it is older than the CUDA runtime"},
    {cudaErrorCallRequiresNewerDriver, "this call needs a newer CUDA driver"},
    {cudaErrorInvalidDeviceFunction, "not a kernel of this program"},
    {cudaErrorNoDevice, "no CUDA-capable device"},
    {cudaErrorInvalidDevice, "invalid device number"},
    {cudaErrorMissingConfiguration, "a kernel was called without a launch configuration"},
};

cudaError_t simcudart_note(cudaError_t error)
{
    if (error && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static const char *find_error(const struct error_name *list, size_t count, cudaError_t error)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].error == error)
            return list[i].name;
    }
    return NULL;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const char *name = find_error(names, sizeof(names) / sizeof(names[0]), error);

    return name ? name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = find_error(texts, sizeof(texts) / sizeof(texts[0]), error);

    if (text)
        return text;
    if (simcudart_load() == cudaSuccess &&
        DRIVER(cuGetErrorString)((CUresult)(int)error, &text) == CUDA_SUCCESS && text)
        return text;
    return cudaGetErrorName(error);
}
